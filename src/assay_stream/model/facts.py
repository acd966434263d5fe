"""Facts: what the registry publishes to the compacted binding topic, and everything it restores itself from.

A fact's key is a JSON array that starts with the fact's kind; its value is a JSON object. A tombstone takes a
fact back. State changes by facts alone: the registry applies to itself what it publishes, so that a restored
registry and a join worker's view are the same thing read from the same log.

A run takes the place of ``seen`` facts, which the registry takes back in the same transaction (``registry.retention``).

Of a definition, facts say what a server offers and in which lists; who saw a list and when, only ``Seen`` says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Required, cast

import orjson
from typing_extensions import TypedDict

from assay_stream import __version__
from assay_stream.canonical.digest import canonicalize, compact_copy
from assay_stream.errors import InputError, IntegrityError
from assay_stream.model.control import AnyControlFact
from assay_stream.model.fields import (
    BareHex,
    Base64,
    Completeness,
    DigestText,
    Identifier,
    Micros,
    Natural,
    SchemeValue,
    Subject,
)
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.model.wire import (
    ALWAYS,
    FACTS,
    BaseFact,
    FactKey,
    PlacedFact,
    Wire,
    fact,
    pairs,
    read_fact,
    rows,
    shared,
    write_record,
)
from assay_stream.schemes import assay_tool as assay
from assay_stream.schemes.fingerprint import Fingerprint


class Projection(TypedDict, total=False):
    """The bounded projection that the tool definition digest covers, without a server's id."""

    name: Required[str]
    description: str
    input_schema: dict[str, Any]


class Definition(TypedDict):
    """One distinct tool, prompt, resource template or instructions text, for reviewers. Its key is the full digest."""

    full_digest: DigestText
    definition: dict[str, Any]
    projection: NotRequired[Projection]


def definition_record(record: Record, full: str, definition: dict[str, Any]) -> Output:
    """Return the record of a definition: the same bytes for every observer and kind of list.

    Args:
        definition: a tool, a prompt or a resource template as received, or ``{"instructions": text}``.
    """
    value: Definition = {"full_digest": full, "definition": definition}
    label = "definition"
    if definition.keys() != {"instructions"}:
        try:
            value["projection"] = cast(Projection, assay.definition_projection(definition, server_id=None))
        except InputError:
            label = "definition:not_digestible"
    return Output(
        role=Role.DEFINITIONS,
        key=full.encode(),
        value=canonicalize(value),
        timestamp_ms=record.timestamp_ms,
        label=label,
    )


def _item_subject(given: Any) -> Subject:
    subject = Subject(str(given))
    if subject is Subject.TOOL:
        raise ValueError("tools have facts of their own")
    return subject


_ItemSubject = Annotated[Subject, Wire(Literal["prompt", "template", "instructions"], read=_item_subject)]


@fact("tool", "server_id", "server_scoped", "full")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFact(BaseFact):
    """A definition seen on a server: its digest under every scheme, and of every top-level field."""

    server_id: Identifier
    server_scoped: bool
    full: DigestText
    schemes: Annotated[Mapping[str, str], Wire(dict[str, SchemeValue], dict)]
    errors: Annotated[Mapping[str, str], Wire(dict[str, str], dict)]
    fields: Annotated[Mapping[str, str], pairs(DigestText)]
    packed: Base64

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(full=self.full, schemes=self.schemes, errors=self.errors, fields=self.fields)

    @classmethod
    def of(cls, *, server_id: str, server_scoped: bool, fingerprint: Fingerprint, packed: str) -> ToolFact:
        return cls(
            server_id=server_id,
            server_scoped=server_scoped,
            full=fingerprint.full,
            schemes=fingerprint.schemes,
            errors=fingerprint.errors,
            fields=fingerprint.fields,
            packed=packed,
        )


def _tools(given: list[tuple[str, str | None]]) -> dict[str, str | None]:
    return {name: None if full is None else shared(full) for name, full in given}


@fact("catalogue", "server_id", "digest")
@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue(BaseFact):
    """A set of definitions: name to full digest, null where the name stood twice with two definitions.

    Args:
        digest: digest of the set, whatever its order.
        server_scoped: whether digests of this catalogue cover the server's id.
        tools: tool name to full digest; ``None`` where the name stood twice with different definitions.
        ambiguous: full digests of those definitions, sorted, of each such name.
        nameless: full digests of the definitions without a name, sorted: they bind nothing.
    """

    server_id: Identifier
    digest: DigestText
    server_scoped: bool
    tools: Annotated[Mapping[str, str | None], pairs(DigestText | None)._replace(read=_tools)]
    ambiguous: Annotated[
        Mapping[str, tuple[str, ...]],
        Wire(
            list[tuple[str, list[DigestText]]],
            lambda named: sorted([name, list(fulls)] for name, fulls in named.items()),
            dict,
        ),
    ] = field(default_factory=dict)
    nameless: tuple[DigestText, ...] = ()

    def definitions_of(self, tool_name: str) -> tuple[str, ...]:
        """Return the sorted full digests of the definitions under a name, none where it is not listed."""
        full = self.tools.get(tool_name)
        return self.ambiguous.get(tool_name, ()) if full is None else (full,)

    def lists(self, tool_name: str, full: str) -> bool:
        """Return True if a definition is listed under a name, or without one (``""``)."""
        fulls = self.definitions_of(tool_name) if tool_name else self.nameless
        index = bisect_left(fulls, full)
        return index < len(fulls) and fulls[index] == full

    def definitions(self) -> Iterator[tuple[str, str]]:
        for name in self.tools:
            for full in self.definitions_of(name):
                yield name, full

    def shown(self) -> Iterator[tuple[str, str]]:
        """Yield name and full digest of all definitions, also of those that bind nothing (``""``)."""
        yield from self.definitions()
        yield from (("", full) for full in self.nameless)


@fact("item", "server_id", "subject", "full")
@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFact(BaseFact):
    """A prompt, a resource template or instructions seen on a server; null where it is beyond the limits.

    No call is bound to these: only the registry keeps them, to find what changed.
    """

    server_id: Identifier
    subject: _ItemSubject
    full: DigestText
    packed: Base64 | None


@fact("item_list", "server_id", "subject", "digest")
@dataclass(frozen=True, slots=True, kw_only=True)
class ItemList(BaseFact):
    """A set of prompts or of resource templates: names or URI templates, and full digests. Or the instructions.

    Args:
        digest: digest of the set, whatever its order.
        items: name and full digest of each, sorted; a name listed twice with different definitions stands twice.
        is_cut: whether there were more of them than are kept.
    """

    server_id: Identifier
    subject: _ItemSubject
    digest: DigestText
    items: Annotated[tuple[tuple[str, str], ...], rows(tuple[str, DigestText])]
    is_cut: bool

    def by_name(self) -> dict[str, tuple[str, ...]]:
        named: dict[str, list[str]] = {}
        for name, full in self.items:
            named.setdefault(name, []).append(full)
        return {name: tuple(fulls) for name, fulls in named.items()}


@fact("former_tool", "server_id", "tool_name")
@dataclass(frozen=True, slots=True, kw_only=True)
class FormerTool(BaseFact):
    """The last definition of a name that no list which is kept names any more.

    Args:
        server_scoped: whether its digests cover the server's id.
        size: length of the definition, packed.
        time_us: event time of the list that was folded away with it, microseconds since the epoch.
    """

    server_id: Identifier
    tool_name: Identifier
    server_scoped: bool
    full: DigestText
    size: Natural
    time_us: Micros

    @property
    def place(self) -> tuple[bool, str]:
        return self.server_scoped, self.full


SharedDigest = Annotated[DigestText, Wire(DigestText, read=shared)]
"""A digest that stands in many facts."""
SharedCompleteness = Annotated[Completeness, Wire(Completeness, read=shared)]
SharedRights = Annotated[BareHex | None, Wire(BareHex | None, read=shared)]


def _some_rows(given: list[Any]) -> list[Any]:
    if not given:
        raise ValueError("a run has rows")
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sighting(PlacedFact):
    server_id: Identifier
    observer_id: Identifier
    origin: Origin
    time_us: Micros
    catalogue: SharedDigest
    completeness: SharedCompleteness
    signatures: DigestText | None = None
    prompts: DigestText | None = None
    templates: DigestText | None = None
    instructions: DigestText | None = None
    auth_context: SharedRights = None
    hidden: Annotated[tuple[tuple[str, str], ...], rows(tuple[str, DigestText])] = ()
    attributed: bool = False
    rationed: bool = False


@fact("seen_run", "server_id", "observer_id", "origin")
@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRun(_Sighting):
    """At each of these times this observer saw this catalogue on this server; the fields are those of ``seen``.

    Args:
        origin: of the first observation that the run ever had.
        time_us: event time of the first row.
        rows: microseconds since then, offsets counted from that of the origin, and snapshot id of each observation, in
            their order; times and offsets rise.
    """

    rows: Annotated[
        tuple[tuple[int, int, str], ...], rows(tuple[Natural, Natural, Identifier])._replace(read=_some_rows)
    ]


@fact("run_cut", "server_id", "observer_id", "origin")
@dataclass(frozen=True, slots=True, kw_only=True)
class RunCut(BaseFact):
    """Some observations of the run with the same origin were folded away.

    Args:
        gone: their offsets, counted from that of the origin, sorted.
    """

    server_id: Identifier
    observer_id: Identifier
    origin: Origin
    gone: tuple[Natural, ...]


KEY = b"progress"


# Evidence alone does not show it: re-routed calls are joined out of order, and by another partition's owner.
class JoinProgress(TypedDict):
    """The next offsets to read of the call partition and of the re-routed partition of this number."""

    calls: Natural
    rerouted: Natural


def write_progress(progress: JoinProgress) -> bytes:
    return orjson.dumps(progress)


def read_progress(value: bytes | None) -> JoinProgress:
    """Decode a record of the progress topic.

    Raises:
        IntegrityError: ``foreign_fact`` if no join wrote it.
    """
    try:
        content = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        content = None
    match content:
        case {"calls": int(calls), "rerouted": int(rerouted), **others} if min(calls, rerouted) >= 0 and not others:
            return JoinProgress(calls=calls, rerouted=rerouted)
    raise IntegrityError(
        "foreign_fact", "the topic of the join's progress holds a record that is not ours: find who writes to it"
    )


@fact("seen", "server_id", "observer_id", "origin")
@dataclass(frozen=True, slots=True, kw_only=True)
class Seen(_Sighting):
    """From this time on, this observer saw this catalogue on this server.

    Args:
        signatures: digest of the signatures that came with it, ``None`` where none did.
        prompts: digest of the prompts that came with it, ``None`` where the snapshot has none.
        templates: the same of resource templates.
        instructions: the same of the server's instructions.
        auth_context: digest of the name of the rights under which the server was asked. Only the digest is kept:
            what a proxy puts there may be a credential.
        hidden: name (empty if it has none) and full digest of each definition that the client was not shown, sorted.
        attributed: whether a header of its record named the observer; such a list is not ended by a rejection
            that names none.
        rationed: whether its analysis was rationed: what it changed is still to be compared (``registry.list_drift``).
    """

    snapshot_id: Identifier
    signatures: Annotated[DigestText | None, ALWAYS] = None

    def listed(self, subject: Subject) -> str | None:
        """Return the digest of a list stated beside the tools, ``None`` where it states none."""
        digest: str | None = getattr(self, subject.plural)
        return digest


@fact("rejection", "server_id", "origin")
@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection(PlacedFact):
    """A record of the server was refused: what the observer saw before is in force no more.

    Without an observer it concerns those whose lists name none in a header.

    Args:
        time_us: the log's time of it, microseconds since the epoch.
        observer_id: the observer that its header names, if any.
        unlisted: stands for rejections and announcements of observers without a list that were folded away: from
            its time on, no observer without a list is bound to what others saw.
    """

    server_id: Identifier
    origin: Origin
    time_us: Micros
    code: str
    observer_id: Identifier | None = None
    unlisted: bool = False

    def concerns(self, seen: Seen) -> bool:
        """Return True if this may end the force of an observation, by its observer."""
        if self.observer_id is None:
            return not (seen.attributed or self.unlisted)
        return self.observer_id == seen.observer_id

    def ends(self, seen: Seen) -> bool:
        """Return True if this concerns an observation and came after it."""
        return self.concerns(seen) and self.is_after(seen)

    def is_after(self, seen: Seen) -> bool:
        """Return True if this comes after an observation in the log; across partitions the times decide."""
        if seen.origin[:2] == self.origin[:2]:
            return seen.origin.offset < self.origin.offset
        return seen.time_us <= self.time_us


@fact("announcement", "server_id", "observer_id", "origin")
@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement(PlacedFact):
    """The server told this observer that its tools changed: what it saw before is in force no more.

    Args:
        overdue: whether a finding has reported that no list followed.
    """

    server_id: Identifier
    observer_id: Identifier
    origin: Origin
    time_us: Micros
    overdue: Annotated[bool, ALWAYS] = False


@fact("horizon", "server_id", "observer_id")
@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon(BaseFact):
    """Of what this observer saw before this time, the oldest was folded away."""

    server_id: Identifier
    observer_id: Identifier
    time_us: Micros


@fact("allowance", "server_id", "of")
@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance(BaseFact):
    """What the analysis of a server's lists may still cost at a time of the log, and what was analysed last.

    Args:
        time_ms: the latest timestamp of its records so far, milliseconds since the epoch.
        units: units of work left at that time; below zero what the next second refills is spent in advance.
        analysed: the changes analysed last, oldest first: what identifies each, and how many definitions it has.
    """

    server_id: Identifier
    of: Literal["analysis"] = "analysis"
    time_ms: Natural
    units: int
    analysed: Annotated[tuple[tuple[str, int], ...], rows(tuple[str, Natural]), ALWAYS] = ()

    def knows(self, change: str) -> bool:
        """Return True if a change was analysed before, and is still remembered."""
        return any(known == change for known, _ in self.analysed)


@fact("progress", "topic", "partition")
@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(BaseFact):
    """The registry has applied everything before this position of one input partition."""

    topic: str
    partition: Natural
    position: Natural


Fact = (
    ToolFact
    | Catalogue
    | ItemFact
    | ItemList
    | Seen
    | SeenRun
    | RunCut
    | Rejection
    | Announcement
    | Horizon
    | Allowance
    | FormerTool
    | Progress
    | AnyControlFact
)

FACT_CLASSES = dict(sorted(FACTS.items()))
"""Every class of facts by its kind."""


def encode_key(key: FactKey) -> bytes:
    return compact_copy(orjson.dumps(key))


def encode_value(record: BaseFact) -> bytes:
    """Return the binding topic's value bytes of a fact: equal facts give equal bytes."""
    return compact_copy(orjson.dumps(write_record(record), option=orjson.OPT_SORT_KEYS))


def decode_key(key: bytes | None) -> FactKey:
    """Decode a fact key.

    Raises:
        IntegrityError: if another writer has written to the binding topic.
    """
    try:
        parts = orjson.loads(key or b"")
    except ValueError:
        raise foreign_fact() from None
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        raise foreign_fact()
    kind = FACTS.get(parts[0])
    if kind is None:
        raise foreign_fact()
    if len(parts) != kind.key_parts:
        raise unknown_fact()
    return tuple(parts)


def foreign_fact() -> IntegrityError:
    return IntegrityError(
        "foreign_fact",
        f"the binding topic holds a record that assay-stream {__version__} does not know: if a later release wrote it, "
        "whose evidence names it (assayproducerversion, assaygit), run that one; otherwise find who writes to it",
    )


def unknown_fact() -> IntegrityError:
    return IntegrityError(
        "unknown_fact",
        "the binding topic holds a fact this version cannot read: run the version that wrote it, "
        "or rebuild the topic from the snapshots",
    )


def decode_fact(key: FactKey, value: bytes) -> Fact:
    """Decode a record of the binding topic.

    Raises:
        IntegrityError: if the record is not a fact that this version knows.
    """
    try:
        found: Fact = read_fact(key, orjson.loads(value))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        raise unknown_fact() from None
    return found
