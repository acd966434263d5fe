"""JSON Schemas (draft 2020-12) of every record, generated from models, and the AsyncAPI and OpenAPI documents.

The core builds its records as plain dicts, for speed. The models here say what those dicts hold; the conformance tests
hold real records of the engine against them. A field that may be absent is absent, never null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from assay_stream import __version__
from assay_stream.limits import DEFAULT_LIMITS, INGEST_LIMITS
from assay_stream.model.alert import Alert, AlertHeaders
from assay_stream.model.alert_state import AGENT_RECORDS, ALERT_STATES
from assay_stream.model.checkpoint import Checkpoint, CheckpointRecord
from assay_stream.model.control import CONTROL_MODELS
from assay_stream.model.evidence import CHANGE_TYPE, EVIDENCE_TYPE, ControlChange, Evidence, VerdictRecord
from assay_stream.model.facts import FACT_CLASSES, Definition, JoinProgress
from assay_stream.model.finding import ENTRIES, FINDING_MEMBERS, Finding
from assay_stream.model.observation import CallModel, ListChangedEvent, LossEvent, SnapshotEvent
from assay_stream.model.record import CALL_TYPE, LIST_CHANGED_TYPE, LOSS_TYPE, SNAPSHOT_TYPE, TOPIC_NAMES, TOPICS, Role
from assay_stream.model.rejected import AcceptedEvents, IngestAnswer, RejectedHeaders, RejectedLine, RequestRefusal
from assay_stream.model.state_table import FormatLevel
from assay_stream.model.wire import key_form, record_model
from assay_stream.schemes import assay_tool as assay, handshake_contract as contract, handshake_event as handshake

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ID_PREFIX = "urn:assay-stream:schema:"
SUFFIX = ".schema.json"
ASYNCAPI_FILE = "asyncapi.json"
HTC_FILE = "htc_v1.json"

FACT_KEY = "assay.tool.binding.key"
INPUTS: dict[str, type[BaseModel]] = {
    SNAPSHOT_TYPE: SnapshotEvent,
    LIST_CHANGED_TYPE: ListChangedEvent,
    LOSS_TYPE: LossEvent,
    CALL_TYPE: CallModel,
    **CONTROL_MODELS,
}
OUTPUTS: dict[str, Any] = {
    EVIDENCE_TYPE: Evidence,
    CHANGE_TYPE: ControlChange,
    "assay.tool.verdict": VerdictRecord,
    "assay.tool.finding": record_model(Finding, **FINDING_MEMBERS),
    **{f"assay.tool.finding.{kind}": record_model(cls, kind=Literal[kind]) for kind, cls in sorted(ENTRIES.items())},
    "assay.tool.drift": Alert,
    "assay.tool.drift.headers": AlertHeaders,
    **ALERT_STATES,
    "assay.tool.definition": Definition,
    **AGENT_RECORDS,
    FACT_KEY: reduce(or_, (key_form(cls) for cls in FACT_CLASSES.values())),
    **{f"assay.tool.binding.{kind}": record_model(cls) for kind, cls in FACT_CLASSES.items()},
    "assay.evidence.checkpoint": CheckpointRecord,
    "assay.evidence.checkpoint.payload": record_model(Checkpoint),
    "assay.ingest.accepted": AcceptedEvents,
    "assay.call.progress": JoinProgress,
    "assay.format": FormatLevel,
    "assay.rejected.headers": RejectedHeaders,
    "assay.rejected.line": RejectedLine,
}


class _AbsentNotNull(GenerateJsonSchema):
    """Writes a field that defaults to ``None`` as one that may be absent, and is never null."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = schema["schema"]
        if schema.get("default", ...) is None and inner["type"] == "nullable":
            return self.generate_inner(inner["schema"])
        return super().default_schema(schema)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return {**super().typed_dict_schema(schema), "additionalProperties": False}

    def typed_dict_field_schema(self, schema: core_schema.TypedDictField) -> JsonSchemaValue:
        inner = schema["schema"]
        if not schema.get("required") and inner["type"] == "nullable":
            return self.generate_inner(inner["schema"])
        return super().typed_dict_field_schema(schema)


def all_schemas() -> dict[str, dict[str, Any]]:
    files: dict[str, dict[str, Any]] = {}
    for name, model in INPUTS.items():
        files[name + SUFFIX] = _finished(name, model.model_json_schema())
    for name, model in OUTPUTS.items():
        schema = TypeAdapter(model).json_schema(schema_generator=_AbsentNotNull)
        files[name + SUFFIX] = _finished(name, schema)
    for name in (SNAPSHOT_TYPE, CALL_TYPE):
        add_conditions(files[name + SUFFIX]["$defs"])
    payload = files[EVIDENCE_TYPE + SUFFIX]["$defs"]["DecisionPayload"]
    payload["allOf"] = _clusters()
    # Bound with a whole cluster, or unbound with the reason: nothing in between.
    payload["oneOf"] = [{"required": ["tool_definition_digest"]}, {"required": ["unbound_reason"]}]
    return files


def add_conditions(models: dict[str, Any]) -> None:
    """Add the conditions to input schemas that their models leave to code."""
    if "SnapshotData" in models:
        models["SnapshotData"]["properties"]["tools"]["maxItems"] = DEFAULT_LIMITS.tools_max
    if "CallData" in models:
        models["CallData"]["allOf"] = [*_clusters(), _handshake_profile()]


def _finished(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = without_markup(schema)
    return {"$schema": DIALECT, "$id": ID_PREFIX + name, **plain, "title": name}


def without_markup(part: Any) -> Any:
    """Return a schema without docstring markup and without titles that only repeat a field's name."""
    if isinstance(part, list):
        return [without_markup(item) for item in part]
    if not isinstance(part, dict):
        return part
    cleaned = {}
    for key, value in part.items():
        if key == "title" and isinstance(value, str):
            continue
        if key == "description" and isinstance(value, str):
            cleaned[key] = " ".join(value.replace("``", "`").split())
        else:
            cleaned[key] = without_markup(value)
    return cleaned


def _clusters() -> list[dict[str, Any]]:
    definition = _whole_or_absent("tool_definition_digest", assay.CLUSTER_CONSTANTS)
    policy = _whole_or_absent("policy_snapshot_digest", assay.POLICY_CLUSTER_CONSTANTS)
    whole = policy["anyOf"][1]
    whole["required"].append("policy_digest")
    whole["properties"]["policy_digest"] = {"type": "string"}
    return [definition, policy]


def _handshake_profile() -> dict[str, Any]:
    required = [name for name in handshake.RECORDED.required if name != "type"]
    properties: dict[str, Any] = {name: {"not": {"type": "null"}} for name in required}
    properties |= {name: {"type": "string", "pattern": f"^{handshake.UUID}$"} for name in ("trace_id", "tool_call_id")}
    properties |= {
        "tool_id": {"type": "string", "pattern": f"^{handshake.TOOL_ID}$"},
        "transport": {"enum": list(handshake.TRANSPORTS)},
        "timing": {"type": "object", "required": ["started_at", "ended_at", "duration_ms"]},
        "args": False,
        "result": False,
    }
    return {
        "if": {"properties": {"profile": {"const": "handshake"}}, "required": ["profile"]},
        "then": {"properties": properties, "required": required},
    }


def _whole_or_absent(digest_field: str, constants: dict[str, str]) -> dict[str, Any]:
    absent = {field: {"type": "null"} for field in (digest_field, *constants)}
    whole: dict[str, Any] = {digest_field: {"type": "string", "pattern": rf"^{assay.CLUSTER_DIGEST}$(?!\n)"}}
    whole |= {field: {"const": value} for field, value in constants.items()}
    return {"anyOf": [{"properties": absent}, {"properties": whole, "required": list(whole)}]}


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


OPENAPI_FILE = "openapi.json"


def all_files() -> dict[str, str]:
    """Return the text of every file in ``schemas/`` by its name."""
    documents = {**all_schemas(), ASYNCAPI_FILE: asyncapi(), OPENAPI_FILE: openapi(), HTC_FILE: contract.SCHEMA}
    return {name: json.dumps(content, indent=2, ensure_ascii=False) + "\n" for name, content in documents.items()}
