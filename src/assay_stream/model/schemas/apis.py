"""The AsyncAPI 3.0 document of every topic, and the OpenAPI 3.1 document of what ``ingest`` takes and answers."""

from collections.abc import Iterable
from typing import Any

from pydantic.json_schema import models_json_schema

from assay_stream import __version__
from assay_stream.limits.serving import INGEST_LIMITS
from assay_stream.model.control import CONTROL_MODELS
from assay_stream.model.envelope import EVIDENCE_TYPE
from assay_stream.model.evidence import CHANGE_TYPE
from assay_stream.model.ingest import IngestAnswer, RequestRefusal
from assay_stream.model.record import CALL_TYPE, LIST_CHANGED_TYPE, LOSS_TYPE, SNAPSHOT_TYPE, TOPIC_NAMES, TOPICS, Role
from assay_stream.model.schemas.documents import INPUTS, OUTPUTS, SUFFIX, add_conditions, without_markup

_MESSAGES = {
    Role.SNAPSHOTS: (SNAPSHOT_TYPE, LIST_CHANGED_TYPE, LOSS_TYPE),
    Role.CONTROL: tuple(CONTROL_MODELS),
    Role.CALLS: (CALL_TYPE,),
    Role.REROUTED: (CALL_TYPE,),
}
"""What is read, by event type. What is written is named after its topic."""
_HEADERS = {
    Role.ALERTS: "assay.tool.drift.headers",
    Role.REJECTED: "assay.rejected.headers",
    Role.DEAD_LETTERS: "assay.rejected.headers",
}
_BYTES = frozenset({Role.REJECTED, Role.DEAD_LETTERS, Role.AGENT_INPUTS})
"""Topics of original bytes, whatever these are."""
_NO_VALUES = (".headers", ".key", ".payload")


def asyncapi() -> dict[str, Any]:
    channels: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for role, topic in TOPICS.items():
        of_channel: dict[str, Any] = {}
        for name in _names(role):
            messages[name] = _message(role, name)
            of_channel[name] = {"$ref": f"#/components/messages/{name}"}
        channels[role.value] = {"address": topic.name, "description": topic.holds, "messages": of_channel}
        operations[f"{'read' if role in _MESSAGES else 'write'}_{role.value}"] = {
            "action": "receive" if role in _MESSAGES else "send",
            "channel": {"$ref": f"#/channels/{role.value}"},
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "assay-stream",
            "version": __version__,
            "description": "What assay-stream reads from Kafka and what it writes. A deployment may put a "
            "prefix before every address. CloudEvents are written in structured mode; both modes are read.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }


def _names(role: Role) -> Iterable[str]:
    """Return the names of a topic's messages: a topic of JSON records without a schema is a mistake."""
    address = TOPIC_NAMES[role]
    if role in _BYTES:
        return (address,)
    found = _MESSAGES.get(role) or [
        name for name in OUTPUTS if f"{name}.".startswith(f"{address}.") and not name.endswith(_NO_VALUES)
    ]
    if not found:
        raise AssertionError(f"no schema is declared for {address}")
    return found


def _message(role: Role, name: str) -> dict[str, Any]:
    message: dict[str, Any] = {"name": name}
    if role in _MESSAGES or name in (EVIDENCE_TYPE, CHANGE_TYPE):
        message["contentType"] = "application/cloudevents+json"
    if role in _HEADERS:
        message["headers"] = _reference(_HEADERS[role])
    if role in _BYTES:
        message["contentType"] = "application/octet-stream"
    else:
        message["payload"] = _reference(name)
    return message


def _reference(name: str) -> dict[str, Any]:
    return {"schemaFormat": "application/schema+json;version=draft-2020-12", "schema": {"$ref": f"./{name}{SUFFIX}"}}


_TAKEN = (SNAPSHOT_TYPE, LIST_CHANGED_TYPE, LOSS_TYPE, CALL_TYPE)
_ANSWERS = {
    202: "Every event is acknowledged by Kafka, now or before.",
    207: "Some events are acknowledged by Kafka, others are not: look at each.",
    403: "The events are somebody else's: the path names the field.",
    413: "The request, or each of its events, is too large.",
    422: "No event is valid. The codes are those of assay.rejected.",
    503: "Kafka does not answer, or ingest is starting: send it again. Events may be stored all the same.",
}
_REFUSALS = {
    401: "No client is known by this token or certificate.",
    405: "Events are sent with POST.",
    408: "The body did not arrive in time.",
    415: "The content type, the charset or the encoding is none that is taken.",
    421: "No such host is served here.",
    429: "Too much is waiting for Kafka, or too many requests are in progress: send it again.",
}
_RETRIED = (207, 429, 503)


def openapi() -> dict[str, Any]:
    models: list[Any] = [(INPUTS[name], "validation") for name in _TAKEN]
    models += [(IngestAnswer, "validation"), (RequestRefusal, "validation")]
    names, schemas = models_json_schema(models, ref_template="#/components/schemas/{model}")
    components = without_markup(schemas["$defs"])
    add_conditions(components)
    event = {"oneOf": [names[model] for model in models[: len(_TAKEN)]]}
    batch = {"type": "array", "items": event, "minItems": 1, "maxItems": INGEST_LIMITS.events_max}
    answers = {status: {"oneOf": [names[models[-2]], names[models[-1]]]} for status in _ANSWERS}
    answers |= dict.fromkeys(_REFUSALS, names[models[-1]])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "assay-stream ingest",
            "version": __version__,
            "description": "Observations as CloudEvents 1.0 over HTTP, in structured, binary and batched mode.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "paths": {
            "/v1/events": {
                "post": {
                    "operationId": "sendEvents",
                    "summary": "Send events. Each is published once within the window, by its source and id.",
                    "security": [{"token": []}, {"certificate": []}],
                    "parameters": [_attribute(name) for name in ("specversion", "type", "source", "id", "time")],
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/cloudevents+json": {"schema": event},
                            "application/cloudevents-batch+json": {"schema": batch},
                            "application/json": {"schema": {"type": "object", "description": "Data, in binary mode."}},
                        },
                    },
                    "responses": {
                        str(status): _response(status, answers[status]) for status in sorted(_ANSWERS | _REFUSALS)
                    },
                }
            }
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}, "certificate": {"type": "mutualTLS"}},
            "schemas": components,
        },
    }


def _attribute(name: str) -> dict[str, Any]:
    return {
        "name": f"ce-{name}",
        "in": "header",
        "required": False,
        "description": "In binary mode only, where it is required.",
        "schema": {"type": "string"},
    }


def _response(status: int, schema: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": _ANSWERS.get(status) or _REFUSALS[status],
        "content": {"application/json": {"schema": schema}},
    }
    if status in _RETRIED:
        response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return response
