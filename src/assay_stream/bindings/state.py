"""The state that facts add up to: what was in force where and when.

One class serves the registry, for the servers of its partition, and the join, for all of them. State changes only by
``apply`` and ``forget``; both are idempotent and do not depend on the order of facts of different keys. So the records
about a server, the last one of each key, are kept unread until the server is first needed: most of what a process
reads when it starts is not needed for its first calls.

The registry packs repeated lists (``registry.retention``): a run, then tombstones of the single facts it stands for.

1. Every observation of its observer with an offset between the first and the last of a run is a row of it, or is gone.
   So a single fact or its tombstone with such an offset changes nothing, whether it comes before or after its run.
2. A run is only ever written again with more rows at its end, or with those that are left of it.
3. A cut names rows of a run that were folded away since the run was written.

The records of one transaction may come in any order, and compaction may leave any of them out that a later one with the
same key replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from zlib import compress, decompress

from assay_stream.bindings.server import AnswerBound, ServerBindings
from assay_stream.bindings.sightings import SHARED_FIELDS, Row, Sightings, shared_part
from assay_stream.bindings.timeline import Timeline
from assay_stream.errors import IntegrityError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.control import Checked, ControlFact, Signatures
from assay_stream.model.facts import (
    Allowance,
    Announcement,
    Catalogue,
    Fact,
    FormerTool,
    Horizon,
    ItemFact,
    ItemList,
    Progress,
    Rejection,
    RunCut,
    Seen,
    SeenRun,
    ToolFact,
    decode_fact,
    decode_key,
    foreign_fact,
)
from assay_stream.model.fields import Subject
from assay_stream.model.record import Origin, Record, home_of
from assay_stream.model.state_table import KEY, read_level
from assay_stream.model.wire import FactKey, origin_of_key
from assay_stream.schemes.fingerprint import ContentCache


def rows_of(run: SeenRun) -> list[Row]:
    time_us, offset = run.time_us, run.origin.offset
    return [(time_us + later_us, offset + further, snapshot_id) for later_us, further, snapshot_id in run.rows]


def run_fact(key: Origin, entries: Sequence[Seen]) -> SeenRun:
    """Return the fact that stands for observations.

    Args:
        key: origin of the first observation that the run ever had.
        entries: ordered by both time and offset, equal in everything else.
    """
    first = entries[0]
    return SeenRun(
        origin=key,
        time_us=first.time_us,
        rows=tuple((e.time_us - first.time_us, e.origin.offset - key.offset, e.snapshot_id) for e in entries),
        **{name: getattr(first, name) for name in SHARED_FIELDS},
    )


def apply_list(server: ServerBindings, fact: Seen | SeenRun | RunCut) -> None:
    timeline = server.timeline(fact.observer_id)
    match fact:
        case SeenRun():
            _apply_run(server, timeline, fact)
        case RunCut():
            before = timeline.cuts.get(fact.origin, ())
            timeline.put_cut(fact.origin, fact.gone)
            _remove_observations(server, fact.observer_id, fact.origin, {*fact.gone} - {*before})
        case _ if not timeline.is_cut(fact.origin):
            server.add_observation(fact)


def forget_list(kind: str, server: ServerBindings, observer_id: str, origin: Origin) -> None:
    """Forget a fact of one of the three kinds; a single one absorbed by a run is already forgotten."""
    timeline = server.observers.get(observer_id)
    if timeline is None:
        return
    if kind == SeenRun.fact_kind:
        offsets = timeline.table.offsets
        _remove_observations(
            server, observer_id, origin, {offsets[each] - origin.offset for each in timeline.in_run(origin)}
        )
    elif kind == RunCut.fact_kind:
        # Its run is written again, or taken back, with it.
        timeline.put_cut(origin, ())
    elif (number := timeline.row_at(origin)) is not None and timeline.table.run_of(number) is None:
        server.remove_observation(observer_id, origin)


def _apply_run(server: ServerBindings, timeline: Timeline, fact: SeenRun) -> None:
    """Let the observations of a run be its rows, without those that its cut names."""
    key, gone, shared = fact.origin, timeline.cuts.get(fact.origin, ()), shared_part(fact)
    rows = [row for row in rows_of(fact) if row[1] - key.offset not in gone]
    here = timeline.in_run(key) if timeline.table.has(shared) else ()
    left = {timeline.table.offsets[number] - key.offset for number in here} - {row[1] - key.offset for row in rows}
    _remove_observations(server, fact.observer_id, key, left)
    server.add_observations(shared, rows)


def _remove_observations(server: ServerBindings, observer_id: str, key: Origin, further: set[int]) -> None:
    """Remove observations by offset, relative to that of a run's key."""
    for each in sorted(further):
        server.remove_observation(observer_id, key._replace(offset=key.offset + each))


_DIGEST_BYTES = 16
_SHARED = ("tool", "catalogue")


class SharedFacts:
    """Definitions, without their text, and catalogues as they were last read.

    Apart from its server, a fact follows from its record's key and value: a digest of both identifies it. The cache
    saves reading and memory, and changes no result.
    """

    __slots__ = ("_known",)

    def __init__(self, bytes_max: int = DEFAULT_LIMITS.shared_facts_bytes_max) -> None:
        self._known = ContentCache[ToolFact | Catalogue](bytes_max, bytes_max)

    def read(self, key: FactKey, value: bytes) -> Fact:
        """Return the fact that a record holds; a definition comes without its text.

        Raises:
            IntegrityError: as ``decode_fact``.
        """
        if key[0] not in _SHARED:
            return decode_fact(key, value)
        content = blake2b(repr((key[0], *key[2:])).encode(), digest_size=_DIGEST_BYTES)
        content.update(value)
        known = self._known.get(content.digest())
        if known is not None:
            return replace(known, server_id=str(key[1]))
        fact = decode_fact(key, value)
        if isinstance(fact, ToolFact):
            fact = replace(fact, packed="")
        if isinstance(fact, ToolFact | Catalogue):
            self._known.put(content.digest(), fact, len(value))
        return fact


_FASTEST = 1
"""Compression level."""


class Bindings:
    """All servers, and how far the registry has come in each of its input partitions.

    Args:
        keep_definitions: whether definitions are kept beside their fingerprints.
        home_partitions: number of partitions of the binding topic; ``None`` if unknown. Records from another partition
            than a server's own are left out, as a join does not see them.
    """

    __slots__ = (
        "_answers",
        "_holders",
        "_home_partitions",
        "_keep_definitions",
        "_servers",
        "_shared_facts",
        "_table",
        "_unread",
        "_values",
        "progress",
    )

    def __init__(self, *, keep_definitions: bool = False, home_partitions: int | None = None) -> None:
        self._home_partitions = home_partitions
        self._keep_definitions = keep_definitions
        self._servers: dict[str, ServerBindings] = {}
        self._unread: dict[str, dict[tuple[int, bytes], bytes]] = {}
        """Records about servers not read yet: by partition and key, the value, compressed for a run."""
        bytes_max = DEFAULT_LIMITS.shared_facts_bytes_max
        self._values = ContentCache[bytes](bytes_max, bytes_max)
        self.progress: dict[tuple[str, int], int] = {}
        self._answers, self._table = AnswerBound(), Sightings()
        self._shared_facts = SharedFacts()
        self._holders: dict[str, dict[FactKey, int]] = {}
        """For each server, the partitions whose registry holds a definition, catalogue or set of signatures: a server
        in two partitions has two registries, and what one drops the other may still name. Partitions are bits."""

    def __len__(self) -> int:
        return len(self._servers) + len(self._unread)

    @property
    def observers_at_most(self) -> int:
        """Upper bound of the number of observers of all servers: an unread server counts one per fact."""
        return self._table.observers + sum(map(len, self._unread.values()))

    @property
    def servers(self) -> dict[str, ServerBindings]:
        """All servers, each of them read.

        Raises:
            IntegrityError: as ``find``.
        """
        for server_id in list(self._unread):
            self._read(server_id)
        return self._servers

    def find(self, server_id: str) -> ServerBindings | None:
        """Return what is known of a server, ``None`` for nothing.

        Raises:
            IntegrityError: if the binding topic holds a fact about it that this version does not write.
        """
        found = self._servers.get(server_id)
        if found is None and server_id in self._unread:
            return self._read(server_id)
        return found

    def server(self, server_id: str) -> ServerBindings:
        found = self.find(server_id)
        if found is None:
            found = self._servers[server_id] = self._new_server()
        return found

    def take(self, record: Record) -> None:
        """Apply one record of the binding topic, a fact or a tombstone, or keep it until its server is needed.

        Raises:
            ConfigurationError: ``format_too_new`` for the mark of a later format level.
            IntegrityError: if its key is none that this version writes; ``find`` may report a bad value later.
        """
        if record.key == KEY:
            read_level(record)
            return
        key, partition = decode_key(record.key), record.origin.partition
        if key[0] in OF_REGISTRIES and not self._keep_definitions:
            return
        server_id = str(key[1])
        is_progress, count = key[0] == Progress.fact_kind, self._home_partitions
        if count is not None and not is_progress and home_of(server_id, count) != partition:
            return
        if is_progress or server_id in self._servers:
            self._apply_record(key, record.value, partition)
            return
        unread = self._unread.setdefault(server_id, {})
        place = (partition, record.key or b"")
        # The latest record of a key comes last, as compaction would leave it.
        unread.pop(place, None)
        if record.value is not None:
            value = record.value
            # No two lists are equal, so sharing their values would only keep them.
            if key[0] not in OF_LISTS and (known := self._values.get(value)) is not None:
                value = known
            elif key[0] not in OF_LISTS:
                self._values.put(value, value, len(value))
            unread[place] = compress(value, _FASTEST) if key[0] == SeenRun.fact_kind else value
            if len(unread) > DEFAULT_LIMITS.unread_facts_max:
                self._read(server_id)
        elif not unread:
            del self._unread[server_id]

    def _read(self, server_id: str) -> ServerBindings:
        found = self._servers[server_id] = self._new_server()
        try:
            for (partition, raw_key), value in self._unread[server_id].items():
                key = decode_key(raw_key)
                self._apply_record(key, decompress(value) if key[0] == SeenRun.fact_kind else value, partition)
        except IntegrityError:
            # A server read in part must never be used.
            self.drop(server_id)
            raise
        del self._unread[server_id]
        return found

    def _new_server(self) -> ServerBindings:
        return ServerBindings(self._answers, self._table)

    def _apply_record(self, key: FactKey, value: bytes | None, partition: int) -> None:
        if value is not None:
            read = decode_fact if self._keep_definitions else self._shared_facts.read
            self.apply(read(key, value), partition=partition)
            return
        try:
            self.forget(key, partition=partition)
        except (ValueError, IndexError):
            raise foreign_fact() from None

    def apply(self, fact: Fact, *, partition: int = 0) -> None:
        if isinstance(fact, ToolFact | Catalogue | Signatures):
            key, holders = fact.key(), self._holders.setdefault(fact.server_id, {})
            holders[key] = holders.get(key, 0) | 1 << partition
        if isinstance(fact, Progress):
            self.progress[fact.topic, fact.partition] = fact.position
            return
        if fact.fact_kind in OF_REGISTRIES and not self._keep_definitions:
            return
        server = self.server(fact.server_id)
        server.answers.clear()
        _apply(server, fact, keep_definitions=self._keep_definitions)

    def forget(self, key: FactKey, *, partition: int = 0) -> None:
        server_id = str(key[1])
        of_server = self._holders.get(server_id, {})
        holders = of_server.get(key)
        if holders is not None:
            holders &= ~(1 << partition)
            if holders:
                of_server[key] = holders
                return
            del of_server[key]
        server = self.find(server_id)
        if server is None:
            return
        server.answers.clear()
        _forget(server, key)
        if not self._keep_definitions and server.is_empty:
            self.drop(server_id)

    def drop(self, server_id: str) -> None:
        """Drop a server, and what is left of its facts."""
        self._servers.pop(server_id).clear()
        self._holders.pop(server_id, None)


OF_LISTS = {fact.fact_kind for fact in (Seen, SeenRun, RunCut)}
OF_REGISTRIES = {fact.fact_kind for fact in (ItemFact, ItemList, Allowance, FormerTool)}
"""Kinds of facts that no answer for a call rests on."""


def _apply(server: ServerBindings, fact: Fact, *, keep_definitions: bool) -> None:
    match fact:
        case ToolFact():
            place = (fact.server_scoped, fact.full)
            server.tools[place] = fact.fingerprint
            server.keep_definition(place, fact.packed if keep_definitions else None)
        case Catalogue():
            server.list_catalogue(fact)
        case Seen() | SeenRun() | RunCut():
            apply_list(server, fact)
            server.endings.without_list.discard(fact.observer_id)
        case Rejection() | Announcement():
            server.add_ending(fact)
        case Horizon():
            server.truncate_history(fact.observer_id, fact.time_us)
        case ItemFact():
            server.keep_item((fact.subject, fact.full), fact.packed)
        case ItemList():
            server.list_items(fact)
        case Allowance():
            server.allowance = fact
        case FormerTool():
            server.formers[fact.tool_name] = fact
        case ControlFact() | Signatures() | Checked():
            server.controls.apply(fact)


def _forget(server: ServerBindings, key: FactKey) -> None:
    kind, _, *place = key
    match kind:
        case "seen" | "seen_run" | "run_cut":
            forget_list(kind, server, str(place[0]), origin_of_key(place[1:]))
        case "rejection" | "announcement":
            server.remove_ending(origin_of_key(place[-3:]))
        case "catalogue":
            server.drop_catalogue(str(place[0]))
        case "tool":
            tool = bool(place[0]), str(place[1])
            server.tools.pop(tool, None)
            server.keep_definition(tool, None)
        case "item":
            item = Subject(str(place[0])), str(place[1])
            server.keep_item(item, None)
            server.items.pop(item, None)
        case "item_list":
            server.drop_item_list((Subject(str(place[0])), str(place[1])))
        case "former_tool":
            server.formers.pop(str(place[0]), None)
        case "allowance":
            server.allowance = None
        case "horizon":
            server.forget_horizon(str(place[0]))
        case _:
            server.controls.forget(key)
