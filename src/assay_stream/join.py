"""The join: calls in, one ``assay.tool.decision`` record for each and call-time findings out.

For each call: find the definition in force (``bindings.as_of``), compare it with its pins
(``bindings.checks``), and write the evidence (``model.evidence``).

1. A server belongs to one partition of the bindings, murmur2 of its id. The call partitions that are equal to it modulo
   the number of binding partitions are its own: joining one of them takes the bindings of that one only.
2. A call that came in another partition is copied to its server's in the topic of re-routed calls, once. The copy names
   the call's own place, so that evidence and all other outputs are those of the call where it came.
3. Only the join writes that topic. A copy that is in a wrong partition again is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from msgspec import UNSET, Raw, UnsetType

from assay_stream.bindings.as_of import Binding, bind, is_overdue
from assay_stream.bindings.checks import PinEvaluation, pin_evaluation_of, pin_fields
from assay_stream.bindings.controls import UNPINNED
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.state import Bindings
from assay_stream.canonical.digest import DEFAULT_REDACTION, Redaction, canonicalize, compact_copy
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.cloudevents import Call, read_call, read_calls
from assay_stream.model.evidence import (
    STRUCTURED,
    BindingField,
    InForcePart,
    Producer,
    Scope,
    ToolIdentity,
    Unbound,
    envelope,
    fields_of,
    write_payload,
)
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.observation import CallEvent, CallProfile
from assay_stream.model.plain_call import NativeCall, Writing, is_native, native_part, quoted, write_native
from assay_stream.model.record import Origin, Output, Record, Role, home_of, made_of, size_bytes
from assay_stream.model.rejected import refusal
from assay_stream.schemes.hangar import Action

_BINDINGS = Role.BINDINGS
_EVIDENCE = Role.EVIDENCE  # reading a member of an enum costs a call
_UNPINNED = canonicalize(UNPINNED.as_json())
_RAW_UNPINNED = Raw(_UNPINNED)


class _InForce(NamedTuple):
    """What was in force for a call, in the form that evidence needs.

    Args:
        since_us: start of the period in which it is the same for every such call, inclusive, microseconds.
        until_us: its end, exclusive.
        binding: the answer.
        part: its part of the payload.
        native: the same for calls that the extension read, ``None`` without it.
        label: label that is counted.
        is_controlled: whether anything was ever decided about the server.
    """

    since_us: int
    until_us: int
    binding: Binding
    part: InForcePart
    native: Any
    label: str
    is_controlled: bool


@dataclass(slots=True, kw_only=True, eq=False)
class Join:
    """The state of a join: the content of the binding topic, and how calls are read and hashed.

    Args:
        producer: the producer named in the evidence.
        bindings: the binding topic's content, empty at first.
        redaction: what is removed from arguments and results before they are hashed.
        call_profile: what every call must satisfy, whatever profile it names itself.
    """

    producer: Producer
    bindings: Bindings = field(default_factory=Bindings)
    limits: Limits = DEFAULT_LIMITS
    redaction: Redaction = DEFAULT_REDACTION
    call_profile: CallProfile = "assay"

    def read(self, record: Record) -> Call | InputError:
        """Return the call that a record holds, or why it is refused.

        The answer depends on the record alone: a caller that has to wait for the registry reads the call once and
        passes it to ``process``.
        """
        try:
            return read_call(record, limits=self.limits, call_profile=self.call_profile)
        except InputError as error:
            return error

    def read_some(self, records: Sequence[Record]) -> list[Call | InputError]:
        """Return the result of ``read`` for each record, at lower cost."""
        return read_calls(records, limits=self.limits, call_profile=self.call_profile)

    def names_known_snapshot(self, event: Call) -> bool:
        """Return True if a call names a known snapshot of its own observer: later lists do not change its definition.

        One that only others published may still come from this observer, and would then take precedence.
        """
        server = self.bindings.find(event.server_id)
        named = event.snapshot_id
        return server is not None and named is not None and bool(server.named_by(named, event.observer_id))


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
        join.bindings.take(record)
        return []
    (outputs,) = process_calls(join, [(record, join.read(record) if event is None else event)])
    return outputs


def process_calls(join: Join, calls: Iterable[tuple[Record, Call | InputError]]) -> list[list[Output]]:
    """Join calls, and return the outputs of each. Evidence of plain calls is written for all of them at once.

    Args:
        calls: records of the calls topic, each with what ``Join.read`` returned for it.
    """
    found: list[list[Output]] = []
    waiting: list[tuple[list[Output], Record, NativeCall, str]] = []
    writings: list[Writing] = []
    for record, event in calls:
        if isinstance(event, InputError):
            found.append(refusal(record, event))
            continue
        server = join.bindings.find(event.server_id)
        in_force = _in_force(join, server, record, event)
        binding = in_force.binding
        evaluation = None
        if server is not None and in_force.is_controlled:
            seen = None if binding.scope is None else binding.seen
            evaluation = pin_evaluation_of(server, seen, binding.fingerprint, event.tool_name, event.time_us)
        outputs: list[Output] = []
        if evaluation is not None or binding.unbound is not None:
            outputs += [finding.output() for finding in _call_findings(server, record, event, binding, evaluation)]
        found.append(outputs)
        if is_native(event):
            waiting.append((outputs, record, event, in_force.label))
            topic, partition, offset = record.origin
            pin, signature = (_UNPINNED, None) if evaluation is None else evaluation[2:]
            writings.append((event, quoted(topic), partition, offset, in_force.native, pin, signature))
        else:
            value = _evidence_bytes(join, record, event, in_force, evaluation)
            outputs.insert(0, _evidence_output(record, event, in_force.label, value))
    written = write_native(writings, join.producer.fragment)
    for (outputs, record, event, label), value in zip(waiting, written, strict=True):
        outputs.insert(0, _evidence_output(record, event, label, value))
    return found


def _evidence_output(record: Record, event: Call, label: str, value: bytes) -> Output:
    headers = STRUCTURED
    if event.traceparent is not None:
        headers = (*STRUCTURED, ("traceparent", event.traceparent.encode()))
    key, partition = event.server_id.encode(), record.origin.partition
    return made_of(Output, (_EVIDENCE, key, value, headers, event.time_us // 1_000, partition, label))


def _evidence_bytes(
    join: Join, record: Record, event: CallEvent, in_force: _InForce, evaluation: PinEvaluation | None
) -> bytes:
    fields = fields_of(event.data, join.redaction) if event.fields is None else event.fields
    if evaluation is None:
        data = write_payload(fields, record.origin, in_force.part, _RAW_UNPINNED)
    else:
        raw_signature = UNSET if evaluation.signature_fragment is None else Raw(evaluation.signature_fragment)
        data = write_payload(fields, record.origin, in_force.part, Raw(evaluation.pin_fragment), raw_signature)
    return envelope(data, event, join.producer)


def _call_findings(
    server: ServerBindings | None, record: Record, event: Call, binding: Binding, evaluation: PinEvaluation | None
) -> Iterator[Finding]:
    if binding.unbound is Unbound.NOT_LISTED:
        yield _call_finding(Kind.CALL_TO_UNLISTED_TOOL, record, event, binding)
    if binding.unbound is Unbound.LIST_CHANGE_ANNOUNCED and server is not None:
        announcement = server.endings.announced(event.observer_id, binding.seen, event.time_us)
        if announcement is not None and is_overdue(server, announcement, event.time_us, DEFAULT_LIMITS):
            yield _call_finding(Kind.LIST_CHANGE_UNANSWERED, record, event, binding)
    if evaluation is not None and evaluation.pin.action is Action.BLOCK and event.decision == "allow":
        yield _call_finding(Kind.BLOCKED_TOOL_CALLED, record, event, binding, evaluation)


def _in_force(join: Join, server: ServerBindings | None, record: Record, event: Call) -> _InForce:
    """Return what was in force for a call: computed once for all calls that differ only in time."""
    tool_name, observer_id, snapshot_id, time_us = (
        event.tool_name,
        event.observer_id,
        event.snapshot_id,
        event.time_us,
    )
    question: tuple[str | None, str | None, str] = (None, None, tool_name)
    if server is not None:
        if snapshot_id is not None and (named := server.named(snapshot_id, observer_id)):
            question = (snapshot_id, named[0].observer_id, tool_name)
        elif observer_id in server.observers or server.endings.concern(observer_id):
            question = (None, observer_id, tool_name)
        known: _InForce | None = server.answers.get(question)
        if known is not None and known.since_us <= time_us < known.until_us and not record.hold_expired:
            return known
    if record.hold_expired and not join.names_known_snapshot(event):
        binding = Binding(unbound=Unbound.UNAVAILABLE)
    else:
        binding = bind(server, tool_name=tool_name, observer_id=observer_id, snapshot_id=snapshot_id, time_us=time_us)
    part = _describe(server, event.server_id, tool_name, binding)
    label = f"bound:{binding.scope}" if binding.unbound is None else f"unbound:{binding.unbound}"
    is_controlled = server is not None and bool(server.controls)
    if server is None or binding.fingerprint is None or binding.span_us is None:
        # Not kept: made-up names must not fill the memory.
        return _InForce(time_us, time_us, binding, part, native_part(part), label, is_controlled)
    found = _InForce(*binding.span_us, binding, part, native_part(part), label, is_controlled)
    server.answers.keep(question, found)
    return found


def _describe(server: ServerBindings | None, server_id: str, tool_name: str, binding: Binding) -> InForcePart:
    identity: Raw | UnsetType = UNSET
    digest: str | None = None
    rests_on: BindingField = {"scope": "none" if binding.scope is None else binding.scope.value}  # type: ignore[typeddict-item]
    if binding.seen is not None:
        seen = binding.seen
        rests_on["snapshot_id"] = seen.snapshot_id
        rests_on["origin"] = seen.origin.as_json()
        if server is not None and binding.scope is not None:
            rests_on["catalogue_digest"] = seen.catalogue
            rests_on["server_scoped"] = server.catalogue_of(seen).server_scoped
    found = binding.fingerprint
    if found is not None:
        rests_on["full_digest"] = found.full
        # What another observer hid from its client says nothing about this one's.
        if binding.scope is not Scope.SERVER and binding.seen and (tool_name, found.full) in binding.seen.hidden:
            rests_on["hidden"] = True
        digest = found.definition_digest()
        if "assay.schema_hash" in found.schemes:
            named: ToolIdentity = {
                "server_id": server_id,
                "tool_name": tool_name,
                "schema_hash": found.schemes["assay.schema_hash"],
                "meta_hash": found.schemes["assay.meta_hash"],
            }
            identity = Raw(compact_copy(canonicalize(named)))
    return InForcePart(
        Raw(compact_copy(canonicalize(rests_on))),
        identity,
        UNSET if digest is None else digest,
        UNSET if binding.unbound is None else binding.unbound.value,
    )


def _call_finding(
    kind: Kind, record: Record, event: Call, binding: Binding, evaluation: PinEvaluation | None = None
) -> Finding:
    return Finding(
        kind=kind,
        server_id=event.server_id,
        # An unanswered announcement is about the server, whichever tool is called meanwhile.
        tool_name=None if kind is Kind.LIST_CHANGE_UNANSWERED else event.tool_name,
        observer_id=event.observer_id,
        time_us=event.time_us,
        origin=record.origin,
        snapshot_id=binding.seen.snapshot_id if binding.seen else None,
        after=binding.fingerprint.full if evaluation and binding.fingerprint else None,
        **(pin_fields(evaluation.pin) if evaluation else {}),
    )


FIRST_ORIGIN = "assay-first-origin"
"""Header of a re-routed call: topic, partition and offset of the call, and its log time in milliseconds."""

_INT64_MAX = 2**63 - 1
"""No record can be written with a greater value, and joining it would stop the stage."""

LABEL = "rerouted"
"""Label that re-routed calls are counted under."""


class Routing(NamedTuple):
    """How calls are spread over partitions.

    Args:
        calls: number of call partitions, a multiple of ``bindings``.
        bindings: number of binding partitions.
    """

    calls: int
    bindings: int

    def needed_by(self, partition: int) -> int:
        return partition % self.bindings

    def is_home(self, server_id: str, partition: int) -> bool:
        return home_of(server_id, self.bindings) == partition % self.bindings

    def home_near(self, server_id: str, partition: int) -> int:
        """Return the partition that a call is re-routed to: neighbouring partitions stay spread."""
        return partition - partition % self.bindings + home_of(server_id, self.bindings)


def reroute(record: Record, server_id: str, routing: Routing) -> Output:
    """Return the copy of a call that goes to a partition of its server.

    Raises:
        InputError: ``too_large`` if the topic of copies would not accept it.
    """
    if size_bytes(record.key, record.value, record.headers) > DEFAULT_LIMITS.rerouted_bytes_max:
        text = f"a call that is not in a partition of its server may have {DEFAULT_LIMITS.rerouted_bytes_max} bytes"
        raise InputError("too_large", f"{text}, with key and headers: leave headers out, or use the key server_id")
    # Not by RFC 8785, whose numbers are doubles: a producer may set any time.
    place = {**record.origin.as_json(), "timestamp_ms": record.timestamp_ms}
    first = orjson.dumps(place, option=orjson.OPT_SORT_KEYS)
    return Output(
        role=Role.REROUTED,
        key=record.key,
        value=record.value,
        headers=(*record.headers, (FIRST_ORIGIN, first)),
        timestamp_ms=record.timestamp_ms,
        partition=routing.home_near(server_id, record.origin.partition),
        label=LABEL,
    )


def call_in(copy: Record, *, topic: str, partitions: int) -> Record:
    """Return the call that a re-routed record copies, as it was where it came.

    Args:
        topic: the topic of calls.
        partitions: its number of partitions.

    Raises:
        InputError: ``bad_reroute`` if no join wrote the record.
    """
    *headers, (name, value) = copy.headers or (("", b""),)
    try:
        first = orjson.loads(value) if name == FIRST_ORIGIN else None
    except orjson.JSONDecodeError:
        first = None
    match first:
        case {"topic": str(named), "partition": int(number), "offset": int(offset), "timestamp_ms": int(timestamp_ms)}:
            numbers = (number, offset, timestamp_ms)
            if named == topic and number < partitions and all(type(n) is int and 0 <= n <= _INT64_MAX for n in numbers):
                return copy._replace(
                    role=Role.CALLS,
                    origin=Origin(topic, number, offset),
                    headers=tuple(headers),
                    timestamp_ms=timestamp_ms,
                )
    raise InputError("bad_reroute", f"the last header of a re-routed call is {FIRST_ORIGIN} with a place in {topic}")
