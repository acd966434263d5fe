package bench;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Calls joined with a global table of bindings, exactly once, by one thread; topics and broker as BENCH_* says. */
public final class Main {

    private Main() {}

    /** Runs until the process is told to stop. */
    public static void main(String[] arguments) throws InterruptedException {
        KafkaStreams streams = new KafkaStreams(topology(), settings());
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR) {
                ended.countDown();
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        ended.await();
    }

    private static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        GlobalKTable<String, JsonNode> bindings = builder.globalTable(
                System.getenv("BENCH_BINDINGS_TOPIC"),
                Materialized.<String, JsonNode>as(Stores.inMemoryKeyValueStore("bindings"))
                        .withKeySerde(Serdes.String())
                        .withValueSerde(trees()));
        Serde<Evidence> evidence =
                Serdes.serdeFrom((topic, value) -> value.value(), (topic, bytes) -> new Evidence(bytes, 0));
        builder.stream(System.getenv("BENCH_CALLS_TOPIC"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .process(ReadCall::new)
                .leftJoin(bindings, (serverId, call) -> call.bindingKey(), Evidence::of)
                .to(
                        System.getenv("BENCH_EVIDENCE_TOPIC"),
                        Produced.with(Serdes.String(), evidence)
                                .withStreamPartitioner((topic, key, value, count) ->
                                        Optional.of(Set.of(value.partition()))));
        return builder.build();
    }

    private static Serde<JsonNode> trees() {
        return Serdes.serdeFrom((topic, tree) -> Json.bytes(tree), (topic, bytes) -> {
            try {
                return bytes == null ? null : Json.MAPPER.readTree(bytes);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        });
    }

    private static Properties settings() {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, System.getenv("BENCH_GROUP"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("BENCH_BOOTSTRAP"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, System.getenv("BENCH_STATE_DIR"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        // As large batches as ours: the defaults are meant for less.
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), 10_000);
        settings.put(StreamsConfig.producerPrefix("batch.size"), 512 * 1_024);
        return settings;
    }
}
