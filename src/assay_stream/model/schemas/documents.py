"""JSON Schemas (draft 2020-12) of every record, generated from the models."""

from functools import reduce
from operator import or_
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.agent_topic import AGENT_RECORDS
from assay_stream.model.alert import Alert, AlertHeaders
from assay_stream.model.alert_state import ALERT_STATES
from assay_stream.model.checkpoint import Checkpoint, CheckpointRecord
from assay_stream.model.control import CONTROL_MODELS
from assay_stream.model.definition import Definition
from assay_stream.model.envelope import EVIDENCE_TYPE
from assay_stream.model.evidence import CHANGE_TYPE, ControlChange, Evidence, VerdictRecord
from assay_stream.model.facts import FACT_CLASSES
from assay_stream.model.finding import FINDING_MEMBERS, Finding
from assay_stream.model.finding_topic import ENTRIES
from assay_stream.model.ingest import AcceptedEvents
from assay_stream.model.join_progress import JoinProgress
from assay_stream.model.observation import CallModel, ListChangedEvent, LossEvent, SnapshotEvent
from assay_stream.model.record import CALL_TYPE, LIST_CHANGED_TYPE, LOSS_TYPE, SNAPSHOT_TYPE
from assay_stream.model.rejected import RejectedHeaders, RejectedLine
from assay_stream.model.wire import key_form, record_model
from assay_stream.schemes.assay import tool as assay
from assay_stream.schemes.handshake import event as handshake

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
        """Return the closed schema of a record that only assay-stream writes."""
        return {**super().typed_dict_schema(schema), "additionalProperties": False}

    def typed_dict_field_schema(self, schema: core_schema.TypedDictField) -> JsonSchemaValue:
        """Return the schema of a member, which is absent rather than null."""
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
    """Return the conditions that make both clusters atomic: whole, or absent."""
    definition = _whole_or_absent("tool_definition_digest", assay.CLUSTER_CONSTANTS)
    policy = _whole_or_absent("policy_snapshot_digest", assay.POLICY_CLUSTER_CONSTANTS)
    whole = policy["anyOf"][1]
    whole["required"].append("policy_digest")
    whole["properties"]["policy_digest"] = {"type": "string"}
    return [definition, policy]


def _handshake_profile() -> dict[str, Any]:
    """Return the condition on a call of the handshake profile (FR-EVT-007), as far as a schema can say it."""
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
