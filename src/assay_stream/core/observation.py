"""The models of what is observed: snapshots (``tools/list``) and calls (``tools/call``).

Both arrive as CloudEvents 1.0 JSON, in structured or binary Kafka content mode (``core.cloudevents``).
Unknown fields are accepted and ignored; what a model names must be right.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from assay_stream.core.limits import DEFAULT_LIMITS

Identifier = Annotated[
    str,
    StringConstraints(min_length=1, max_length=DEFAULT_LIMITS.identifier_chars_max, pattern=r"\S"),
]
Text = Annotated[str, StringConstraints(min_length=1, max_length=DEFAULT_LIMITS.identifier_chars_max)]
HashText = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Count = Annotated[int, Field(ge=0, le=2**53)]
UriReference = Annotated[str, StringConstraints(min_length=1, max_length=2_048)]
Timestamp = Annotated[
    str,
    StringConstraints(
        pattern=r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$",
        max_length=40,
    ),
]

SNAPSHOT_TYPE = "mcp.tools.list.observed"
CALL_TYPE = "mcp.tools.call.observed"


class Model(BaseModel):
    """Frozen, strict, and indifferent to fields it does not name."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Envelope(Model):
    """The CloudEvents 1.0 context attributes that every observation carries."""

    specversion: Literal["1.0"]
    source: UriReference
    id: Identifier
    time: Timestamp
    datacontenttype: str | None = None
    traceparent: Annotated[str, StringConstraints(pattern=r"^[0-9a-f-]{1,64}$")] | None = None


class SnapshotData(Model):
    """What one server offered to one observer: the answer to ``tools/list``, exactly as received."""

    server_id: Identifier
    observer_id: Identifier
    snapshot_id: Identifier
    server_scoped: bool
    completeness: Literal["complete", "partial", "unknown"]
    auth_context: Text | None = None
    protocol_version: Text | None = None
    tools: list[dict[str, Any]]
    prompts: list[dict[str, Any]] | None = None
    resource_templates: list[dict[str, Any]] | None = None
    signatures: dict[str, Any] | None = None


class SnapshotEvent(Envelope):
    """``mcp.tools.list.observed``: a snapshot."""

    type: Literal["mcp.tools.list.observed"]
    data: SnapshotData


class CallError(Model):
    """Why a call failed. Only the code reaches evidence: a message may quote arguments."""

    code: Text
    kind: Text | None = None
    message: str | None = None


class Timing(Model):
    """When a call ran."""

    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    duration_ms: Annotated[int | float, Field(ge=0, le=2**53, allow_inf_nan=False)] | None = None


class Actor(Model):
    """On whose behalf a call was made."""

    kind: Literal["human", "agent", "system"]
    agent_id: Text | None = None
    model_id: Text | None = None


class CallData(Model):
    """What one agent did: a ``tools/call`` and the proxy's decision on it."""

    server_id: Identifier
    observer_id: Identifier
    tool_name: Identifier
    tool_call_id: Identifier
    decision: Literal["allow", "deny", "requires_approval", "error"]
    reason_code: Text
    trace_id: Text | None = None
    snapshot_id: Identifier | None = None
    args_schema_hash: HashText | None = None
    policy_digest: HashText | None = None
    policy_snapshot_digest: HashText | None = None
    policy_snapshot_digest_alg: HashText | None = None
    policy_snapshot_canonicalization: HashText | None = None
    policy_snapshot_schema: HashText | None = None
    tool_definition_digest: HashText | None = None
    tool_definition_digest_alg: HashText | None = None
    tool_definition_canonicalization: HashText | None = None
    tool_definition_schema: HashText | None = None
    tool_definition_source: HashText | None = None
    args: Any = None
    args_hash: HashText | None = None
    result: Any = None
    result_hash: HashText | None = None
    ok: bool | None = None
    error: CallError | None = None
    timing: Timing | None = None
    actor: Actor | None = None
    side_effect: Literal["READ", "WRITE", "EXECUTE"] | None = None
    idempotency: Literal["IDEMPOTENT", "IDEMPOTENT_WITH_KEY", "NON_IDEMPOTENT"] | None = None
    tool_id: Text | None = None
    tool_version: Text | None = None
    delegated_from: Text | None = None
    delegation_depth: Count | None = None


class CallEvent(Envelope):
    """``mcp.tools.call.observed``: a call."""

    type: Literal["mcp.tools.call.observed"]
    data: CallData
