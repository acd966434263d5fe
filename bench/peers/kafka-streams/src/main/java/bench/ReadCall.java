package bench;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/** Parses a call and notes where it stood; key, time and headers become those of its evidence. */
final class ReadCall extends ContextualProcessor<byte[], byte[], String, Call> {

    private static final byte[] CONTENT_TYPE = "application/cloudevents+json".getBytes(StandardCharsets.UTF_8);

    @Override
    public void process(Record<byte[], byte[]> record) {
        RecordMetadata place = context().recordMetadata().orElseThrow();
        ObjectNode event;
        try {
            event = (ObjectNode) Json.MAPPER.readTree(record.value());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        ObjectNode data = (ObjectNode) event.get("data");
        Call call = new Call(event, data, place.topic(), place.partition(), place.offset());
        long time = Instant.parse(event.get("time").textValue()).toEpochMilli();
        RecordHeaders headers = new RecordHeaders();
        headers.add("content-type", CONTENT_TYPE);
        context().forward(new Record<>(data.get("server_id").textValue(), call, time, headers));
    }
}
