"""The finding topic: findings, of which the alert stage makes alerts, and the other records in it.

Resolutions, name claims, acts of people and ticks are written into the partition of the findings that they are about,
so that the alert stage reads all of it in one order.

A suppressed alert is still written, with its status, at the same bounded rate: readers of the topic see what
was suppressed, and by which rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import orjson
from pydantic import Field

from assay_stream.canonical.digest import canonicalize, jcs_digest
from assay_stream.errors import IntegrityError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.fields import (
    ActionText,
    AgentName,
    BareHex,
    ChangeDirection,
    DigestText,
    Enforcement,
    Identifier,
    LeftOut,
    Micros,
    Natural,
    OriginField,
    Positive,
    Scheme,
    SchemeValue,
    SeverityId,
    ShortText,
    TriageAct,
    compile_glob,
)
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Role
from assay_stream.model.wire import ALWAYS, Wire, nested, read_record, rows, write_record
from assay_stream.text.words import skeleton

_ORIGINS = Wire(
    Annotated[list[OriginField], Field(max_length=DEFAULT_LIMITS.agent_references_max)],
    lambda origins: [origin.as_json() for origin in origins],
    lambda given: [Origin(**origin) for origin in given],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """What a user's agent says of a finding of its own.

    Args:
        title: one line, without names of strangers.
        severity_id: OCSF severity, 1 to 5.
        key: the key under which the agent found it.
        digest: of the code that found it.
        references: the records that it rests on, beside the finding's own.
    """

    agent: AgentName
    title: ShortText
    severity_id: SeverityId
    key: Annotated[tuple[str, ...], Field(max_length=DEFAULT_LIMITS.agent_key_parts_max)]
    digest: DigestText
    references: Annotated[tuple[Origin, ...], _ORIGINS] = ()

    @property
    def subject(self) -> str:
        """The subject, instead of an item's name: the agent and the key."""
        return f"{self.agent}{self.key_text}"

    @property
    def key_text(self) -> str:
        return orjson.dumps(self.key).decode()


Counted = Literal["tools", "prompts", "templates", "instructions", "privileged"]
PIN_FIELDS = ("scheme", "expected", "observed", "enforcement", "action")
FINDING_MEMBERS = {"uid": BareHex}
"""What a finding's record holds beside its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing found in one record of an input log.

    Args:
        tool_name: about which tool, ``None`` where it is about none.
        item_name: about which prompt, by name, or which resource template, by URI template; ``instructions``; of lost
            observations, whose.
        observer_id: who saw it, ``None`` where that is not known.
        time_us: event time of the record it was found in, microseconds since the epoch; of a late one, when that
            showed.
        before: full digest of the definition before.
        after: full digest of the definition after.
        changed_fields: top-level fields of the definition that differ.
        known: another observation of this server had shown the same before.
        also: of a changed, added or renamed definition, labels of what else was found about it in the same record.
        approved: it matches what operators pinned.
        offered_elsewhere: it is known, and another observer is still offered it.
        left_out: of an analysis that was cut short, codes of what was left out.
        inventory: of a first list, how many tools, prompts, templates and instructions it has, and how many
            privileged tools.
        privileged: of a first list, the first of the privileged tools by name.
        counted: of a rationed list, kinds of findings that were counted instead of reported, and how many of each.
        reason: the stable code behind it, where the kind alone does not say enough; for keys, the key.
        scheme: of a pin, the scheme that it is under.
        expected: of a pin, the value that was approved.
        observed: of a pin, the value that was observed; of a shadowed tool, the server that had the name first.
        enforcement: of a policy, what it asks for.
        action: of a policy, what it would have done.
        renamed_to: of a renamed tool, its new name.
        changes: what changed, by meaning: code, path and direction; of one code in one field the first.
        indicators: what new text brings: rule, OCSF severity id and path.
        carried_over: of a changed definition, what else of high severity or above all of its text shows.
        late_ms: of a late list, how long before the latest one its event time lies.
        detection: of a finding of a user's agent, what the agent says of it.
        rules: digest of the rules and weights that detection decided by.
        release: of one of several changes in one list, digest of everything that the list offers.
    """

    kind: Kind
    server_id: Identifier
    time_us: Micros
    origin: Origin
    tool_name: str | None = None
    item_name: str | None = None
    observer_id: Identifier | None = None
    snapshot_id: Identifier | None = None
    before: DigestText | None = None
    after: DigestText | None = None
    changed_fields: Annotated[tuple[str, ...], ALWAYS] = ()
    known: Annotated[bool, ALWAYS] = False
    reason: str | None = None
    scheme: Annotated[str | None, Wire(Scheme)] = None
    expected: SchemeValue | None = None
    observed: Annotated[str | None, Wire(SchemeValue | Identifier)] = None
    enforcement: Annotated[str | None, Wire(Enforcement)] = None
    action: Annotated[str | None, Wire(ActionText)] = None
    renamed_to: str | None = None
    changes: Annotated[tuple[tuple[str, str, str], ...], rows(tuple[str, str, ChangeDirection])] = ()
    indicators: Annotated[tuple[tuple[str, int, str], ...], rows(tuple[str, SeverityId, str])] = ()
    carried_over: Annotated[tuple[tuple[str, int, str], ...], rows(tuple[str, SeverityId, str])] = ()
    also: tuple[str, ...] = ()
    late_ms: Natural | None = None
    approved: bool = False
    offered_elsewhere: bool = False
    left_out: Annotated[tuple[str, ...], Wire(list[LeftOut], list)] = ()
    counted: Annotated[tuple[tuple[str, int], ...], rows(tuple[Kind, Positive])] = ()
    detection: Annotated[Detected | None, nested(Detected)] = None
    inventory: Annotated[tuple[tuple[str, int], ...], rows(tuple[Counted, Natural])] = ()
    privileged: Annotated[tuple[str, ...], Field(max_length=DEFAULT_LIMITS.privileged_named_max)] = ()
    rules: DigestText | None = None
    release: BareHex | None = None

    def uid(self) -> str:
        """Return the identity of the finding: the same on every observer, every time, live or replayed."""
        if self.kind is Kind.SERVER_CHANGED:
            # Which part is the most severe may change; the release stays the same.
            return uid_of(self.kind, self.server_id, None, None, self.release)
        full = self.after or self.before
        about = self.item_name if self.detection is None else self.detection.subject
        return uid_of(self.kind, self.server_id, self.tool_name, full, self.reason, item_name=about)

    def label(self) -> str:
        return self.kind.value if self.reason is None else f"{self.kind}:{self.reason}"

    def encode(self) -> bytes:
        return canonicalize(finding_fields(self))

    def output(self) -> Output:
        return _output(self.server_id, self.encode(), self.time_us, f"finding:{self.kind.value}")


def _output(key: str, value: bytes, time_us: int, label: str, partition: int | None = None) -> Output:
    return Output(Role.FINDINGS, key.encode(), value, (), time_us // 1_000, partition, label)


def decode_finding(value: bytes | None) -> Finding:
    """Decode a finding of the finding topic.

    Raises:
        IntegrityError: if the record is not a finding that this version knows.
    """
    try:
        return finding_of(orjson.loads(value or b""))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise unknown_finding() from None


def unknown_finding() -> IntegrityError:
    return IntegrityError(
        "unknown_finding", "the finding topic holds a record this version cannot read: run the version that wrote it"
    )


def uid_of(
    kind: Kind,
    server_id: str,
    tool_name: str | None,
    full: str | None,
    reason: str | None,
    *,
    item_name: str | None = None,
) -> str:
    """Return the identity of a finding, from its subject.

    Args:
        full: full digest of the definition it is about, if about one.
    """
    what = [kind.value, server_id, tool_name, full, reason]
    if item_name is not None:
        what.append(item_name)
    try:
        # A list of texts is canonical as orjson writes it.
        return sha256(orjson.dumps(what)).hexdigest()
    except orjson.JSONEncodeError:
        return jcs_digest(what).hex


def finding_fields(finding: Finding) -> dict[str, Any]:
    return write_record(finding) | {"uid": finding.uid()}


def finding_of(fields: Mapping[str, Any]) -> Finding:
    """Return the finding that a JSON object holds.

    Raises:
        AttributeError, KeyError, ValueError or TypeError: if it is no finding.
    """
    content = dict(fields)
    del content["uid"]
    return read_record(Finding, content)


ANY_SERVER = "*"
"""As a rule's server: every server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressionRule:
    """What an operator does not want to be alerted of. What is absent applies to all.

    Args:
        id: the operator's name of the rule; setting it again replaces it.
        server_id: the server, or ``*``.
        tool: glob over tool names: ``*``, ``?`` and sets in brackets.
        field: top-level field of the definition: the rule applies where only such fields changed.
        detection: agent of the operator's own: the rule applies to what this one finds.
        until_us: event time at which it ends, microseconds since the epoch.
    """

    id: Identifier
    server_id: Identifier
    tool: ShortText | None = None
    kind: Annotated[str | None, Wire(Kind)] = None
    field: ShortText | None = None
    detection: AgentName | None = None
    until_us: Micros | None = None
    author: ShortText
    reason: ShortText

    def covers(self, finding: Finding, time_us: int) -> bool:
        """Return True if the rule applies to a finding.

        Args:
            time_us: time of the alert, microseconds since the epoch.
        """
        name = finding.tool_name  # instructions and prompts are no tool of any name
        return (
            self.server_id in (ANY_SERVER, finding.server_id)
            and self.kind in (None, finding.kind.value)
            and (self.until_us is None or time_us < self.until_us)
            and (self.tool is None or (name is not None and compile_glob(self.tool).fullmatch(name) is not None))
            and self.detection in (None, finding.detection and finding.detection.agent)
            and (self.field is None or set(finding.changed_fields) == {self.field})
        )


def covering_rule(rules: Iterable[SuppressionRule], finding: Finding, time_us: int) -> SuppressionRule | None:
    """Return the rule that suppresses a finding, the first by id, ``None`` where none does."""
    return min((rule for rule in rules if rule.covers(finding, time_us)), key=lambda rule: rule.id, default=None)


Reason = Literal["definition_returned", "list_completed", "signature_returned", "decided", "no_longer_offered"]
NameDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
ENTRIES: dict[str, type[_Entry]] = {}
"""Every class of entries by its kind."""
_Class = TypeVar("_Class", bound="type[_Entry]")


NAME_GROUPS = 4
"""Groups of look-alike names: what is found in the names of one group is in one partition, and can be folded there.
Another number would separate claims from those written before."""

_IN_ANY_PARTITION = (None, Kind.TOOL_SHADOWED.value, Kind.ALERTS_FOLDED.value)
"""Kinds that a rule may cover of which alerts stand in other partitions than their server's."""

LIST_MARK = "@"
"""Between a group of names and the time of a list: no place of a record has one, since no topic may."""


def name_group(tool_name: str) -> str:
    """Return the group of a tool name and its look-alikes: the key of findings about them."""
    return f"names-{sha256(skeleton(tool_name).encode()).digest()[0] % NAME_GROUPS}"


def alone_max(group: str | None) -> int:
    """Return how many alerts of one severity a record starts: groups of names share the limit of other findings."""
    return DEFAULT_LIMITS.alerts_per_record_max // (1 if group is None else NAME_GROUPS)


class _Entry:
    __slots__ = ()
    entry_kind: ClassVar[str]

    def encode(self) -> bytes:
        return canonicalize(write_record(self) | {"kind": self.entry_kind})


def _entry(kind: str) -> Callable[[_Class], _Class]:
    def declare(cls: _Class) -> _Class:
        cls.entry_kind = kind
        ENTRIES[kind] = cls
        return cls

    return declare


@_entry("resolution")
@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution(_Entry):
    """What alerts were about has ended, for one observer or for all.

    Args:
        observer_id: for which observer, ``None`` for the whole fleet.
        everywhere: nobody else is known to see it; what was found without an observer has ended with it.
    """

    server_id: Identifier
    uids: Annotated[tuple[BareHex, ...], Field(min_length=1, max_length=DEFAULT_LIMITS.resolution_uids_max)]
    reason: Reason
    observer_id: Identifier | None = None
    time_us: Micros
    origin: Origin
    everywhere: Annotated[bool, ALWAYS] = False

    def output(self) -> Output:
        return _output(self.server_id, self.encode(), self.time_us, f"resolution:{self.reason}")


@_entry("name_claim")
@dataclass(frozen=True, slots=True, kw_only=True)
class NameClaim(_Entry):
    """A server's claim to a tool name, with one definition. The record's key is the group of the name's skeleton.

    Args:
        is_offered: whether anybody is offered it.
        approved: whether an operator approved the definition.
        added: the name came after a complete list that had others and lacked it.
        sketch: of the names that the server offered before, or offers now where it had offered none.
    """

    server_id: Identifier
    tool_name: str
    full: DigestText
    is_offered: bool
    approved: bool
    added: bool
    sketch: Annotated[tuple[NameDigest, ...], Field(max_length=DEFAULT_LIMITS.name_sketch_max)]
    time_us: Micros
    origin: Origin

    def skeleton(self) -> str:
        return skeleton(self.tool_name)

    def output(self) -> Output:
        label = f"name_claim:{'come' if self.is_offered else 'gone'}"
        return _output(name_group(self.tool_name), self.encode(), self.time_us, label)


@_entry("suppression")
@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression(_Entry):
    """A suppression rule was set, or taken back."""

    rule: Annotated[SuppressionRule, nested(SuppressionRule)]
    is_set: bool
    time_us: Micros

    @property
    def server_id(self) -> str:
        return self.rule.server_id

    def outputs(self, partitions: int) -> list[Output]:
        """Return the records that pass the rule to the alert stage: in the partition of its server, or in all of them.

        All for a rule for every server, and for one that covers alerts of shadowed tools, or those that they are folded
        into.
        """
        is_for_all = self.server_id == ANY_SERVER or self.rule.kind in _IN_ANY_PARTITION
        label = f"suppression:{'set' if self.is_set else 'removed'}"
        value, numbers = self.encode(), range(partitions) if is_for_all else (None,)
        return [_output(self.server_id, value, self.time_us, label, number) for number in numbers]


@_entry("alert_act")
@dataclass(frozen=True, slots=True, kw_only=True)
class AlertAct(_Entry):
    """A person did something with an alert.

    Args:
        alert: its uid.
        reason: why, or the comment itself.
        assignee: who is to look after it, of an assignment.
    """

    server_id: Identifier
    alert: BareHex
    act: TriageAct
    author: ShortText
    reason: ShortText
    assignee: ShortText | None = None
    time_us: Micros
    origin: Origin

    def outputs(self, partitions: int) -> list[Output]:
        """Return the records that pass it to the alert stage: in all partitions, since any may hold the alert."""
        value, label = self.encode(), f"alert_act:{self.act}"
        return [_output(self.server_id, value, self.time_us, label, number) for number in range(partitions)]


@_entry("tick")
@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(_Entry):
    """Time has come this far: what is due may be written.

    The alert stage writes it into the partitions that it owns, so that time arrives as a record like all else.
    """

    time_us: Micros


@_entry("flood_end")
@dataclass(frozen=True, slots=True, kw_only=True)
class FloodEnd(_Entry):
    """Everything found in a record stands before this: written where that is more than is alerted one by one.

    Args:
        group: of which group of names it ends the claims, ``None`` for the end of the findings.
    """

    server_id: Identifier
    group: ShortText | None = None
    findings: Positive
    time_us: Micros
    origin: Origin

    def output(self) -> Output:
        return _output(self.group or self.server_id, self.encode(), self.time_us, "flood_end")


Entry = AlertAct | Finding | FloodEnd | NameClaim | Resolution | Suppression | Tick


def decode_entry(value: bytes | None) -> Entry:
    """Decode a record of the finding topic.

    Raises:
        IntegrityError: ``unknown_finding`` if it is nothing that this version knows.
    """
    try:
        content: dict[str, Any] = orjson.loads(value or b"")
        cls = ENTRIES.get(content["kind"])
        if cls is None:
            return finding_of(content)
        del content["kind"]
        entry: Any = read_record(cls, content)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise unknown_finding() from None
    return entry  # type: ignore[no-any-return]
