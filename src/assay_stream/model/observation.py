"""The models of what is observed: snapshots (``tools/list``), announced changes, and calls (``tools/call``).

All arrive as CloudEvents 1.0 JSON, in structured or binary Kafka content mode (``model.cloudevents``).
Unknown fields are accepted and ignored; what a model names must be right.
"""

from typing import Annotated, Any, Literal, NamedTuple, Required

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, with_config
from typing_extensions import TypedDict

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.fields import (
    Completeness,
    Count,
    Decision,
    DigestText,
    HashText,
    Identifier,
    Instructions,
    NotObserved,
    Prefix,
    Reference,
    ShortText,
    ShownName,
    Timestamp,
    Token,
    UriReference,
)

CallProfile = Literal["assay", "handshake"]
"""What a call must hold: the fields below as they are, or everything that Handshake's FR-EVT-007 asks for."""

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled", "unknown"]
"""What MCP says of a task; ``unknown`` is any other word."""


_as_given = with_config(ConfigDict(strict=True, extra="ignore"))


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


class HiddenTool(Model):
    """An offered definition that a proxy kept from its client: its name (empty if it has none) and full digest."""

    name: Annotated[str, StringConstraints(max_length=DEFAULT_LIMITS.identifier_chars_max)]
    digest: DigestText


class SnapshotData(Model):
    """What one server offered to one observer: the answer to ``tools/list``, exactly as received.

    ``instructions`` are those of its answer to ``initialize`` or ``server/discover``; empty, it is known to give none.
    Where a gateway put ``shown_prefix`` before the names of the tools, ``tools`` has them without it.
    ``hidden`` names the tools among them that the client was not shown.
    """

    server_id: Identifier
    observer_id: Identifier
    snapshot_id: Identifier
    server_scoped: bool
    completeness: Completeness
    auth_context: ShortText | None = None
    shown_prefix: Prefix | None = None
    protocol_version: ShortText | None = None
    tools: list[dict[str, Any]]
    hidden: list[HiddenTool] | None = None
    prompts: list[dict[str, Any]] | None = None
    resource_templates: list[dict[str, Any]] | None = None
    instructions: Instructions | None = None
    signatures: dict[str, Any] | None = None
    ttl_ms: Annotated[int, Field(ge=0, le=2**53)] | None = None


class SnapshotEvent(Envelope):
    """``mcp.tools.list.observed``: a snapshot."""

    type: Literal["mcp.tools.list.observed"]
    data: SnapshotData


class ListChangedData(Model):
    """A server told one observer that its tools changed: ``notifications/tools/list_changed``."""

    server_id: Identifier
    observer_id: Identifier
    session_id: ShortText | None = None
    auth_context: ShortText | None = None


class LossData(Model):
    """What one observer dropped of one server since it last said so: too much, too large, or not deliverable."""

    server_id: Identifier
    observer_id: Identifier
    lists: Count
    calls: Count


class LossEvent(Envelope):
    """``mcp.observer.loss.observed``: observations that an observer dropped."""

    type: Literal["mcp.observer.loss.observed"]
    data: LossData


class ListChangedEvent(Envelope):
    """``mcp.tools.list_changed.observed``: an announced change of the list of tools."""

    type: Literal["mcp.tools.list_changed.observed"]
    data: ListChangedData


@_as_given
class CallError(TypedDict, total=False):
    """Why a call failed. Only the code reaches evidence: a message may quote arguments."""

    code: Required[ShortText]
    kind: ShortText | None
    message: str | None


@_as_given
class Timing(TypedDict, total=False):
    """When a call ran."""

    started_at: Timestamp | None
    ended_at: Timestamp | None
    duration_ms: Annotated[float, Field(ge=0, le=2**53)] | None


@_as_given
class Actor(TypedDict, total=False):
    """On whose behalf a call was made."""

    kind: Required[Literal["human", "agent", "system"]]
    agent_id: ShortText | None
    model_id: ShortText | None


@_as_given
class Inputs(TypedDict, total=False):
    """What a server asked of its client during a call: how often, by kind. Never what was asked, nor the answers.

    ``requests_hash`` is the SHA-256 of a text with a line for each request: its method, a space, the digest of its
    redacted parameters. ``more``: these are the first ones only.
    """

    elicitation_form: Count | None
    elicitation_url: Count | None
    sampling: Count | None
    roots: Count | None
    other: Count | None
    accepted: Count | None
    declined: Count | None
    requests_hash: Required[DigestText]
    more: bool | None


@_as_given
class CallTask(TypedDict, total=False):
    """The MCP task that a call became: the SHA-256 of its id, and the latest status that was seen."""

    id_hash: Required[DigestText]
    status: Required[TaskStatus]


class Ruled(TypedDict, total=False):
    """What a proxy must report of a call."""

    server_id: Required[Identifier]
    observer_id: Required[Identifier]
    tool_call_id: Required[Identifier]
    decision: Required[Decision]
    reason_code: Required[ShortText]


class Facts(TypedDict, total=False):
    """What a proxy may report of a call, which its evidence repeats."""

    profile: CallProfile | None
    shown_tool_name: ShownName | None
    not_observed: Annotated[list[NotObserved], Field(max_length=8)] | None
    trace_id: ShortText | None
    args_schema_hash: HashText | None
    args_hash: HashText | None
    args_ref: Reference | None
    result_hash: HashText | None
    result_ref: Reference | None
    policy_digest: HashText | None
    policy_snapshot_digest: HashText | None
    policy_snapshot_digest_alg: HashText | None
    policy_snapshot_canonicalization: HashText | None
    policy_snapshot_schema: HashText | None
    ok: bool | None
    timing: Timing | None
    actor: Actor | None
    side_effect: Literal["READ", "WRITE", "EXECUTE"] | None
    idempotency: Literal["IDEMPOTENT", "IDEMPOTENT_WITH_KEY", "NON_IDEMPOTENT"] | None
    idempotency_key: Token | None
    transport: Token | None
    tool_id: ShortText | None
    tool_version: ShortText | None
    delegated_from: ShortText | None
    delegation_depth: Count | None
    rounds: Count | None
    unmatched_retry: bool | None
    progress_count: Count | None
    inputs: Inputs | None
    task: CallTask | None


class CallFacts(Facts, total=False):
    """The optional facts about a call, as ``call_event`` takes them."""

    snapshot_id: Identifier | None
    error: CallError | None


class Reported(Ruled, Facts, total=False):
    """What a proxy reports of a call and its evidence repeats."""


@_as_given
class CallData(Reported, CallFacts, total=False):
    """What one agent did: a ``tools/call`` and the proxy's decision on it."""

    # No model: calls are the many, and an instance of thirty fields takes longer to build than to check.

    tool_name: Required[Identifier]
    args: Any
    result: Any
    tool_definition_digest: HashText | None
    tool_definition_digest_alg: HashText | None
    tool_definition_canonicalization: HashText | None
    tool_definition_schema: HashText | None
    tool_definition_source: HashText | None


class CallModel(Envelope):
    """``mcp.tools.call.observed``: a call."""

    model_config = ConfigDict(title="CallEvent")

    type: Literal["mcp.tools.call.observed"]
    data: CallData


class CallEvent(NamedTuple):
    """A call that was read: by its model, with all of its ``data``, or by ``plain_call``, with its ``fields`` only.

    Args:
        time: event time as it was written, RFC 3339.
        data: what the model says; null fields are left out, but for the arguments and the result.
        fields: what enters the evidence as it is.
    """

    source: str
    id: str
    time: str
    time_us: int
    traceparent: str | None
    server_id: str
    tool_name: str
    observer_id: str
    snapshot_id: str | None
    decision: str
    data: CallData
    fields: Any = None
