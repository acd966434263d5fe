package bench;

import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * One call as it was read, and where it stood.
 *
 * @param event the whole CloudEvent
 * @param data its data
 * @param topic topic it was read from
 * @param partition its partition
 * @param offset its offset
 */
record Call(ObjectNode event, ObjectNode data, String topic, int partition, long offset) {

    /** The key of the binding topic's record that tells of the called tool. */
    String bindingKey() {
        return data.get("server_id").textValue() + "/" + data.get("tool_name").textValue();
    }
}
