"""Evidence: one ``assay.tool.decision`` record per call, in the Assay envelope, as JCS bytes.

The record says what was observed and by which rule it was bound. It never says that a tool is safe.
Arguments, results, definitions and messages never enter it: only digests, codes and identifiers do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson
from msgspec import UNSET, Raw

from assay_stream.canonical.digest import canonicalize, kept
from assay_stream.canonical.redaction import DEFAULT_REDACTION, Redaction, redacted_digest
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.cloudevents import Call, read_call
from assay_stream.model.envelope import STRUCTURED, Producer, envelope
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.observation import CallData, CallEvent, CallProfile
from assay_stream.model.plain_call import PlainCall, PlainPart, plain_payload
from assay_stream.model.record import Headers, Output, Record, Role, made_of
from assay_stream.registry.as_of import Binding, Scope, Unbound, bind, is_overdue, span_of
from assay_stream.registry.pin_evaluation import Standing, pin_fields, standing_of
from assay_stream.registry.pins import UNPINNED
from assay_stream.registry.refusal import refusal
from assay_stream.registry.state import Bindings, ServerBindings
from assay_stream.schemes import assay
from assay_stream.schemes.hangar import Action

_BINDINGS = Role.BINDINGS
_EVIDENCE = Role.EVIDENCE  # reading a member of an enum takes a call of its own
_UNPINNED = canonicalize(UNPINNED.as_json())
_UNPINNED_RAW = Raw(_UNPINNED)
_LABELS: dict[Scope | Unbound | None, str] = {scope: f"bound:{scope.value}" for scope in Scope} | {
    reason: f"unbound:{reason.value}" for reason in Unbound
}
_NOT_COPIED = frozenset(
    (
        "snapshot_id",
        "args",
        "result",
        "tool_definition_digest",
        "tool_definition_digest_alg",
        "tool_definition_canonicalization",
        "tool_definition_schema",
        "tool_definition_source",
    )
)
"""Fields of a call that do not enter its evidence: some are hashed, some are what others say of the definition."""


class _InForce(NamedTuple):
    """What was in force for a call, and what evidence says of that.

    Args:
        since_us: the event time from which on it is the same for every such call, microseconds.
        until_us: the event time before which it is.
        binding: the answer.
        part: its part of the payload.
        plain: the same for a plain call.
        label: what is counted.
        is_controlled: whether anything was ever decided about the server.
    """

    since_us: int
    until_us: int
    binding: Binding
    part: dict[str, Any]
    plain: PlainPart
    label: str
    is_controlled: bool


class Join:
    """What a join works with: everything the binding topic says, and how calls are read and hashed.

    Args:
        producer: who writes the evidence.
        view: the binding topic's content; empty where it is ``None``.
        redaction: what is removed from arguments and results before they are hashed.
        call_profile: what every call must satisfy, whatever profile it names itself.
    """

    __slots__ = ("call_profile", "limits", "producer", "redaction", "view")

    def __init__(
        self,
        *,
        producer: Producer,
        view: Bindings | None = None,
        limits: Limits = DEFAULT_LIMITS,
        redaction: Redaction = DEFAULT_REDACTION,
        call_profile: CallProfile = "assay",
    ) -> None:
        self.producer = producer
        self.view = Bindings() if view is None else view
        self.limits = limits
        self.redaction = redaction
        self.call_profile: CallProfile = call_profile

    def read(self, record: Record) -> Call | InputError:
        """Return the call that a record holds, or why it is refused.

        The answer depends on the record alone: a caller that has to wait for the registry reads the call once and
        passes it to ``process``.
        """
        try:
            return read_call(record, limits=self.limits, call_profile=self.call_profile)
        except InputError as error:
            return error

    def names_known_snapshot(self, event: Call) -> bool:
        """Tell whether a call names a snapshot that is already known: later lists do not change its definition."""
        server = self.view.servers.get(event.server_id)
        return server is not None and event.snapshot_id in server.snapshots


def process(join: Join, record: Record, event: Call | InputError | None = None) -> list[Output]:
    """Apply a record of the binding topic, or join a call: its evidence first, then call-time findings.

    Args:
        join: the state; only a fact changes it.
        record: the next record of the binding topic or of the calls topic.
        event: what ``Join.read`` returned for the record, if it has been read before.

    Raises:
        IntegrityError: if the binding topic holds what no registry writes, or has lost a fact. Bad input never raises.
    """
    if record.role is _BINDINGS:
        join.view.take(record)
        return []
    if event is None:
        try:
            event = read_call(record, limits=join.limits, call_profile=join.call_profile)
        except InputError as error:
            return refusal(record, error)
    elif isinstance(event, InputError):
        return refusal(record, event)
    server_id, time_us = event.server_id, event.time_us
    server = join.view.servers.get(server_id)
    in_force = _in_force(join, server, record, event)
    binding = in_force.binding
    standing = None
    if server is not None and in_force.is_controlled:
        seen = None if binding.scope is None else binding.seen
        standing = standing_of(server, seen, binding.fingerprint, event.tool_name, time_us)
    if isinstance(event, PlainCall):
        data = _plain_data(event, record, in_force, standing)
    else:
        data = _data(event, record, in_force, standing, join.redaction)
    evidence = made_of(
        Output,
        (
            _EVIDENCE,
            server_id.encode(),
            envelope(data, event, join.producer),
            STRUCTURED if event.traceparent is None else _headers(event.traceparent),
            time_us // 1_000,
            record.origin.partition,
            in_force.label,
        ),
    )
    if standing is None and binding.unbound is None:
        return [evidence]
    return [evidence, *(finding.output() for finding in _call_findings(server, record, event, binding, standing))]


def _call_findings(
    server: ServerBindings | None, record: Record, event: Call, binding: Binding, standing: Standing | None
) -> Iterator[Finding]:
    if binding.unbound is Unbound.NOT_LISTED:
        yield _call_finding(Kind.CALL_TO_UNLISTED_TOOL, record, event, binding)
    if binding.unbound is Unbound.LIST_CHANGE_ANNOUNCED and _is_overdue(server, event, binding):
        yield _call_finding(Kind.LIST_CHANGE_UNANSWERED, record, event, binding)
    if standing is not None and standing.pin.action is Action.BLOCK and event.decision == "allow":
        yield _call_finding(Kind.BLOCKED_TOOL_CALLED, record, event, binding, standing)


def _headers(traceparent: str) -> Headers:
    return (*STRUCTURED, ("traceparent", traceparent.encode()))


def _in_force(join: Join, server: ServerBindings | None, record: Record, event: Call) -> _InForce:
    """Return what was in force for a call: worked out once for all calls that differ in nothing but their time."""
    tool_name, observer_id, snapshot_id, time_us = (
        event.tool_name,
        event.observer_id,
        event.snapshot_id,
        event.time_us,
    )
    question: tuple[str | None, str | None, str] = (None, None, tool_name)
    if server is not None:
        if snapshot_id is not None and snapshot_id in server.snapshots:
            question = (snapshot_id, None, tool_name)
        elif observer_id in server.observers or observer_id in server.endings.own:
            question = (None, observer_id, tool_name)
        known: _InForce | None = server.memo.get(question)
        if known is not None and known.since_us <= time_us < known.until_us and not record.hold_expired:
            return known
    if record.hold_expired and not join.names_known_snapshot(event):
        binding = Binding(unbound=Unbound.UNAVAILABLE)
    else:
        binding = bind(server, tool_name=tool_name, observer_id=observer_id, snapshot_id=snapshot_id, time_us=time_us)
    part, plain = _describe(server, event.server_id, tool_name, binding)
    label = _LABELS[binding.unbound or binding.scope]
    is_controlled = server is not None and bool(server.controls)
    if server is None or binding.fingerprint is None:
        # Not kept: whoever makes names up must not fill the memory with what they are not.
        return _InForce(time_us, time_us, binding, part, plain, label, is_controlled)
    span_us = span_of(server, binding, observer_id=observer_id, time_us=time_us)
    found = _InForce(*span_us, binding, part, plain, label, is_controlled)
    join.view.remember(server, question, found)
    return found


def _plain_data(event: PlainCall, record: Record, in_force: _InForce, standing: Standing | None) -> bytes:
    if standing is None:
        return plain_payload(event, record.origin, in_force.plain, _UNPINNED_RAW)
    signature = standing.signature_fragment
    return plain_payload(
        event,
        record.origin,
        in_force.plain,
        Raw(standing.pin_fragment),
        UNSET if signature is None else Raw(signature),
    )


def _data(
    event: CallEvent, record: Record, in_force: _InForce, standing: Standing | None, redaction: Redaction
) -> bytes:
    payload = _payload(record, event.data, redaction)
    payload.update(in_force.part)
    payload["pin"] = orjson.Fragment(_UNPINNED if standing is None else standing.pin_fragment)
    if standing is not None and standing.signature_fragment is not None:
        payload["signature"] = orjson.Fragment(standing.signature_fragment)
    return orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)


def _payload(record: Record, data: CallData, redaction: Redaction) -> dict[str, Any]:
    """Return what enters of the call itself, such that sorted orjson output is JCS: keys are ASCII."""
    payload: dict[str, Any] = {**data}
    payload["tool"] = payload.pop("tool_name")
    payload["origin"] = record.origin.as_json()
    if not _NOT_COPIED.isdisjoint(payload):
        for name in _NOT_COPIED & payload.keys():
            del payload[name]
        # What is given inline is hashed here, and wins over a hash that somebody else computed.
        if "args" in data:
            payload["args_hash"] = str(redacted_digest(data["args"], redaction))
        if "result" in data:
            payload["result_hash"] = str(redacted_digest(data["result"], redaction))
        if not redaction.is_default and ("args" in data or "result" in data):
            payload["redaction"] = redaction.id
    if "error" in payload:
        payload["error"] = {"code": payload["error"]["code"]}
    duration_ms = payload["timing"].get("duration_ms") if "timing" in payload else None
    if duration_ms is not None:
        whole = duration_ms.is_integer()
        exact = int(duration_ms) if whole else orjson.Fragment(canonicalize(duration_ms))
        payload["timing"] = payload["timing"] | {"duration_ms": exact}
    return payload


def _describe(
    server: ServerBindings | None, server_id: str, tool_name: str, binding: Binding
) -> tuple[dict[str, Any], PlainPart]:
    """Return the part of the payload that says what was in force, and the same for a plain call."""
    part: dict[str, Any] = {}
    identity_form: bytes | None = None
    if binding.unbound is not None:
        part["unbound_reason"] = binding.unbound.value
    rests_on: dict[str, Any] = {"scope": "none" if binding.scope is None else binding.scope.value}
    if binding.seen is not None:
        seen = binding.seen
        rests_on |= {"snapshot_id": seen.snapshot_id, "origin": seen.origin.as_json()}
        if server is not None and binding.scope is not None:
            rests_on["catalogue_digest"] = seen.catalogue
            rests_on["server_scoped"] = server.catalogue_of(seen).server_scoped
    found = binding.fingerprint
    if found is not None:
        rests_on["full_digest"] = found.full
        if "assay.schema_hash" in found.schemes:
            identity = {
                "server_id": server_id,
                "tool_name": tool_name,
                "schema_hash": found.schemes["assay.schema_hash"],
                "meta_hash": found.schemes["assay.meta_hash"],
            }
            identity_form = kept(canonicalize(identity))
            part["tool_identity"] = orjson.Fragment(identity_form)
        digest = found.definition_digest()
        if digest is not None:
            part.update(assay.CLUSTER_CONSTANTS, tool_definition_digest=digest)
    binding_form = kept(canonicalize(rests_on))
    part["binding"] = orjson.Fragment(binding_form)
    plain = PlainPart(
        Raw(binding_form),
        UNSET if identity_form is None else Raw(identity_form),
        part.get("tool_definition_digest", UNSET),
        part.get("unbound_reason", UNSET),
    )
    return part, plain


def _is_overdue(server: ServerBindings | None, event: Call, binding: Binding) -> bool:
    """Tell whether an announced change has gone without a list that lasts for longer than the limit."""
    if server is None:
        return False
    told = server.endings.announced(event.observer_id, binding.seen, event.time_us)
    return told is not None and is_overdue(server, told, event.time_us, DEFAULT_LIMITS)


def _call_finding(
    kind: Kind,
    record: Record,
    event: Call,
    binding: Binding,
    standing: Standing | None = None,
) -> Finding:
    return Finding(
        kind=kind,
        server_id=event.server_id,
        # A change that nobody listed is about the server, whichever tool is called meanwhile.
        tool_name=None if kind is Kind.LIST_CHANGE_UNANSWERED else event.tool_name,
        observer_id=event.observer_id,
        time_us=event.time_us,
        origin=record.origin,
        snapshot_id=binding.seen.snapshot_id if binding.seen else None,
        after=binding.fingerprint.full if standing and binding.fingerprint else None,
        **(pin_fields(standing.pin) if standing else {}),
    )
