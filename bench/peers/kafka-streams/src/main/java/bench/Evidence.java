package bench;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/**
 * The evidence of one call: the Assay envelope around its payload, as canonical JSON.
 *
 * @param value the record's bytes
 * @param partition the partition of the call
 */
record Evidence(byte[] value, int partition) {

    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final JsonNode UNPINNED = NODES.objectNode().put("status", "unpinned");

    private static final byte[] COVERED_START = ascii("{\"data\":");
    private static final byte[] COVERED_MIDDLE =
            ascii(",\"datacontenttype\":\"application/json\",\"specversion\":\"1.0\",\"subject\":");
    private static final byte[] END = ascii(",\"type\":\"assay.tool.decision\"}");
    private static final byte[] PRODUCER =
            ascii("\",\"assaygit\":\"unknown\",\"assaypii\":false,\"assayproducer\":\"assay-stream\","
                    + "\"assayproducerversion\":\"" + System.getenv("BENCH_VERSION")
                    + "\",\"assaysecrets\":false,\"data\":");

    /** Joins a call with what its server last listed under the tool's name. */
    static Evidence of(Call call, JsonNode binding) {
        byte[] subject = Json.bytes(call.data().get("tool_name"));
        byte[] data = Json.bytes(payload(call, binding));
        byte[] covered = joined(COVERED_START, data, COVERED_MIDDLE, subject, END);
        ArrayNode identity = NODES.arrayNode().add(call.event().get("source")).add(call.event().get("id"));
        byte[] value = joined(
                ascii("{\"assaycontenthash\":\"sha256:"), sha256(covered), PRODUCER, data,
                ascii(",\"datacontenttype\":\"application/json\",\"id\":\""), sha256(Json.bytes(identity)),
                ascii("\",\"source\":\"urn:assay-stream\",\"specversion\":\"1.0\",\"subject\":"), subject,
                ascii(",\"time\":"), Json.bytes(call.event().get("time")), END);
        return new Evidence(value, call.partition());
    }

    private static ObjectNode payload(Call call, JsonNode binding) {
        // The call's own tree is changed, not copied: nobody reads it after this.
        ObjectNode evidence = call.data();
        evidence.set("tool", evidence.remove("tool_name"));
        JsonNode named = evidence.remove("snapshot_id");
        evidence.putObject("origin")
                .put("topic", call.topic()).put("partition", call.partition()).put("offset", call.offset());
        evidence.set("pin", UNPINNED);
        if (binding == null) {
            evidence.put("unbound_reason", "definition_not_observed");
            evidence.putObject("binding").put("scope", "none");
            return evidence;
        }
        JsonNode seen = binding.get("seen").get(evidence.get("observer_id").textValue());
        ObjectNode restsOn = (ObjectNode) binding.get("binding");
        restsOn.setAll((ObjectNode) seen);
        restsOn.put("scope", seen.get("snapshot_id").equals(named) ? "exact" : "observer");
        evidence.set("binding", restsOn);
        evidence.set("tool_identity", binding.get("tool_identity"));
        evidence.setAll((ObjectNode) binding.get("cluster"));
        return evidence;
    }

    private static byte[] sha256(byte[] bytes) {
        try {
            return ascii(HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes)));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    private static byte[] joined(byte[]... parts) {
        ByteArrayOutputStream all = new ByteArrayOutputStream(3_072);
        for (byte[] part : parts) {
            all.writeBytes(part);
        }
        return all.toByteArray();
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }
}
