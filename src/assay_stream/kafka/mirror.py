"""What MirrorMaker 2 copied of a deployment's topics, put back at the offsets that the records had.

MirrorMaker keeps order, keys, values, headers and times, but not offsets. These are found as follows:

1. Calls, lists and control records come from producers that leave no gaps. MirrorMaker notes pairs of offsets, and
   loses some under load: between two pairs all offsets are certain if equally many records as offsets are between them.
2. Checkpoints name the offset and the leaf of each sealed record of evidence. Nothing names the offsets of checkpoints
   and of evidence that is not sealed: they are numbered on.
3. Evidence names its call and the list that it rests on. Where other records are found there, 1 does not hold.

Partitions are replicated independently, so each ends at another moment. This is the cut (``docs/adr/0040``):

4. Facts, findings, alerts and all state are left out: workers make them again from lists and control records.
5. A call is done if evidence names it. The join goes on behind the last call of its partition that is done; those
   before it that are not are copied to the topic of re-routed calls, from which each is joined under its own place.
6. A checkpoint is kept if everything that it seals is there, and every head that it names is that of one kept.
7. What evidence names keeps its offset for good: a log whose end was not replicated ends behind it.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

import orjson

from assay_stream.config import Settings
from assay_stream.errors import InputError, IntegrityError
from assay_stream.files.spool import Log, LogSpool
from assay_stream.join import Routing, reroute
from assay_stream.kafka.connection import read
from assay_stream.kafka.exact import Span
from assay_stream.kafka.ranges import LogRanges, open_reader, places_of
from assay_stream.kafka.topics import topic_names
from assay_stream.model.checkpoint import TreeLeaf, leaf_of, stated
from assay_stream.model.cloudevents import is_binary, read_call, read_whole_call
from assay_stream.model.facts import KEY, JoinProgress, write_progress
from assay_stream.model.record import ERASED_LEAF_HEADER, Origin, Record, Role, erased_by

_INPUTS = (Role.CALLS, Role.SNAPSHOTS, Role.CONTROL)
CHAIN_MAX = 4_096
"""Checkpoints at the end of a partition that can be dropped: at one a minute, those of three days."""
UNPAIRED_MAX = 16_384
"""Records before the first pair of their partition: MirrorMaker notes one with its first record, then every hundred."""

_ID_DIGITS = 16
_OFFSET_MAX = 2**63 - 1

Named = dict[tuple[int, int], str | None]
"""Records that evidence names, by partition and offset: the snapshot id of a list."""
Pairs = dict[tuple[str, int], dict[int, int]]
"""By topic and partition of the source: offset on the mirror to offset at the source."""


class SourceOffsets:
    """The offsets that the records of one partition had, from MirrorMaker's pairs; ``end`` is behind the last."""

    def __init__(self, name: str, pairs: Mapping[int, int]) -> None:
        self._name = name
        self._pairs = pairs
        self._waiting: list[Record] = []
        self._last_paired = False
        self.end: int | None = None

    def take(self, record: Record) -> list[tuple[int, Record]]:
        """Return the records whose offsets are known now, in order; raise ``mirror_unsure`` or ``mirror_repeats``."""
        offset = self._pairs.get(record.origin.offset)
        if self.end is None:
            self._waiting.append(record)
            if offset is None:
                if len(self._waiting) >= UNPAIRED_MAX:
                    raise _refused("unsure", self._name, "MirrorMaker's pairs of its first records are missing")
                return []
            first = offset - len(self._waiting) + 1
            if first < 0:
                raise _repeats(self._name)
            placed, self._waiting = list(enumerate(self._waiting, first)), []
        else:
            if offset is not None and offset < self.end:
                raise _repeats(self._name)
            if offset is not None and offset > self.end and not self._last_paired:
                raise _refused("unsure", self._name, f"of the offsets from {self.end} to {offset}, some had no record")
            placed = [(self.end if offset is None else offset, record)]
        self._last_paired = offset is not None
        self.end = placed[-1][0] + 1
        return placed

    def finish(self) -> None:
        """Raise ``mirror_unsure`` if the records were too few to know their offsets."""
        if self._waiting:
            raise _refused("unsure", self._name, "MirrorMaker noted no pair of it")


class SealedOffsets:
    """The offsets of the evidence of one partition, in order, from the leaves of its checkpoints.

    ``sealed`` counts leaves up to the last that was found, expired ones included; ``end`` is behind the last record.
    """

    def __init__(self, name: str, leaves: Iterator[TreeLeaf]) -> None:
        self._name = name
        self._leaves = leaves
        self.sealed = 0
        self.end = 0

    def take(self, record: Record) -> int:
        """Return the offset of the next record, or raise ``mirror_differs``."""
        skipped = 0
        for offset, leaf in self._leaves:
            skipped += 1
            if _is_sealed_as(record, offset, leaf):
                self.sealed += skipped
                self.end = offset + 1
                return offset
            # Evidence that expired before it was replicated can be missing from the beginning only.
            if self.end:
                raise _differs(self._name, offset, "is not what was sealed there")
        if skipped:
            raise _differs(self._name, record.origin.offset, "(of the mirror) is not what was sealed first")
        self.end += 1
        return self.end - 1


class NamedCalls:
    """Which calls of one partition evidence names, 16 bytes each: their offsets, and how their ids begin."""

    def __init__(self) -> None:
        self._offsets, self._ids = array("q"), array("Q")

    def add(self, offset: int, id_begins: int) -> None:
        self._offsets.append(offset)
        self._ids.append(id_begins)

    def sort(self, name: str) -> None:
        """Prepare for look-ups; raise ``mirror_repeats`` if a call was added twice."""
        order = sorted(range(len(self._offsets)), key=self._offsets.__getitem__)
        self._offsets = array("q", (self._offsets[at] for at in order))
        self._ids = array("Q", (self._ids[at] for at in order))
        if any(map(int.__eq__, self._offsets, self._offsets[1:])):
            raise _repeats(name)

    @property
    def end(self) -> int:
        return self._offsets[-1] + 1 if self._offsets else 0

    def __len__(self) -> int:
        return len(self._offsets)

    def id_at(self, offset: int) -> int | None:
        at = bisect_left(self._offsets, offset)
        return self._ids[at] if at < len(self._offsets) and self._offsets[at] == offset else None


class Sealing(NamedTuple):
    """What a checkpoint states: how many records of its partition are sealed, and of others, by partition."""

    tree_size: int
    siblings: Mapping[int, int]


def dropped_checkpoints(chains: Mapping[int, Sequence[Sealing]], sealed: Mapping[int, int]) -> dict[int, int]:
    """Return how many of the last checkpoints of each partition seal or name what is not there.

    Args:
        sealed: number of sealed records of each partition that are there, or expired.
    """
    kept = {number: sum(made.tree_size <= sealed[number] for made in chain) for number, chain in chains.items()}
    while True:
        lasts = {number: chains[number][count - 1] for number, count in kept.items() if count}
        sizes = {number: made.tree_size for number, made in lasts.items()}
        ahead = [
            number
            for number, made in lasts.items()
            if any(size > sizes.get(other, 0) for other, size in made.siblings.items())
        ]
        if not ahead:
            return {number: len(chain) - kept[number] for number, chain in chains.items()}
        for number in ahead:
            kept[number] -= 1


class Mirror:
    """Reads the mirror of a deployment's topics into a spool.

    Args:
        settings: of the deployment, on the cluster of the mirror.
        alias: MirrorMaker's name for the source cluster, with which the names of its topics begin.
        spool: gets what is to be written.

    Attributes:
        spans: where each log to be written begins and ends.
        records: how many were mirrored, by role.
        to_join: calls without evidence, which workers join.
        not_replicated: by role, records that evidence on the mirror names and the mirror lacks.
        checkpoints_dropped: how many seal, or name, evidence that was not replicated.
    """

    def __init__(self, settings: Settings, alias: str, spool: LogSpool) -> None:
        self.spans: dict[Log, Span] = {}
        self.records: Counter[str] = Counter()
        self.to_join = 0
        self.not_replicated: Counter[str] = Counter()
        self.checkpoints_dropped = 0
        self._settings = settings
        self._alias = alias
        self._spool = spool
        self._topics = topic_names(settings)
        self._calls: dict[int, NamedCalls] = defaultdict(NamedCalls)
        self._lists: Named = {}
        self._controls: Named = {}
        self._ends: Counter[tuple[Role, int]] = Counter()

    async def read(self) -> None:
        """Read everything, and finish the spool.

        Raises:
            ConfigurationError: ``topic_missing``.
            IntegrityError: ``mirror_unsure``, ``mirror_repeats`` or ``mirror_differs``.
            InputError: ``bad_checkpoint``; as ``reroute``.
        """
        mirrored = self._settings.model_copy(update={"topic_prefix": f"{self._alias}.{self._settings.topic_prefix}"})
        roles, names = (Role.EVIDENCE, Role.CHECKPOINTS, *_INPUTS), topic_names(mirrored)
        fix = "MirrorMaker makes them: give its name for the lost cluster, and the same topic prefix (docs/failover.md)"
        await places_of(mirrored, [names[role] for role in roles], fix)
        async with LogRanges(mirrored, roles) as logs:
            await self.take(logs, await self._pairs())

    async def take(self, logs: LogRanges, pairs: Pairs) -> None:
        if len({len(logs.partitions(role)) for role in (Role.CALLS, Role.EVIDENCE, Role.CHECKPOINTS)}) > 1:
            raise _refused("differs", self._topics[Role.EVIDENCE], "topics of calls differ in their partitions")
        await self._take_evidence(logs)
        routing = Routing(calls=len(logs.partitions(Role.CALLS)), bindings=len(logs.partitions(Role.SNAPSHOTS)))
        if max(self._calls, default=0) >= routing.calls:
            raise _differs(self._name(Role.CALLS, max(self._calls)), 0, "is named by evidence and not mirrored")
        for number in logs.partitions(Role.CALLS):
            await self._take_calls(logs, number, pairs, routing)
        for role, named in ((Role.SNAPSHOTS, self._lists), (Role.CONTROL, self._controls)):
            for number in logs.partitions(role):
                await self._take_named(logs, role, number, pairs, named)
        self._spool.finish()
        for (role, number), end in self._ends.items():
            log = Log(role, self._topics[role], number)
            first = next(self._spool.read(log), None)
            self.spans[log] = Span(end if first is None else first.origin.offset, end)

    async def _pairs(self) -> Pairs:
        name = f"mm2-offset-syncs.{self._alias}.internal"
        [[place]] = await places_of(self._settings, [name], "Let MirrorMaker keep it on the target (docs/failover.md)")
        wanted = {self._topics[role] for role in _INPUTS}
        pairs: Pairs = defaultdict(dict)
        async with open_reader(self._settings) as consumer:
            first = (await consumer.beginning_offsets([place]))[place]
            end = (await consumer.end_offsets([place]))[place]
            async for batch in read(consumer, place, first, end):
                for message in batch:
                    try:
                        topic, number, source, mirror = pair_of(message.key or b"", message.value or b"")
                    except (struct.error, UnicodeDecodeError):
                        raise _refused("unsure", name, f"the record at offset {message.offset} is no pair") from None
                    if topic in wanted and pairs[topic, number].setdefault(mirror, source) != source:
                        raise _repeats(f"partition {number} of {topic}")
        return pairs

    async def _take_evidence(self, logs: LogRanges) -> None:
        chains: dict[int, deque[Sealing]] = {
            number: deque(maxlen=CHAIN_MAX) for number in logs.partitions(Role.EVIDENCE)
        }
        sealed: dict[int, int] = {}
        with LogSpool() as spool:
            async for record in logs.records(Role.CHECKPOINTS):
                made, _ = stated(record.value)
                siblings = {head.partition: head.tree_size for head in made.siblings}
                chains[record.origin.partition].append(Sealing(made.tree_size, siblings))
                self._ends[Role.CHECKPOINTS, record.origin.partition] += 1
                spool.add(record)
            spool.finish()
            mirrored = [
                Log(Role.CHECKPOINTS, f"{self._alias}.{self._topics[Role.CHECKPOINTS]}", each) for each in chains
            ]
            for number, log in zip(chains, mirrored, strict=True):
                leaves = (leaf for record in spool.read(log) for leaf in stated(record.value)[1])
                offsets = SealedOffsets(self._name(Role.EVIDENCE, number), leaves)
                async for batch in logs.read(Role.EVIDENCE, number):
                    for record in batch:
                        self._note(record)
                        self._add(record, offsets.take(record))
                self._ends[Role.EVIDENCE, number], sealed[number] = offsets.end, offsets.sealed
            dropped = dropped_checkpoints(chains, sealed)
            if CHAIN_MAX in dropped.values():
                raise _differs(self._name(Role.CHECKPOINTS, 0), 0, f"and {CHAIN_MAX} more seal what is not there")
            self._ends.subtract({(Role.CHECKPOINTS, number): count for number, count in dropped.items()})
            for number, log in zip(chains, mirrored, strict=True):
                for offset, record in enumerate(islice(spool.read(log), self._ends[Role.CHECKPOINTS, number])):
                    self._add(record, offset)
        self.checkpoints_dropped = sum(dropped.values())

    def _note(self, evidence: Record) -> None:
        """Note what a record of evidence names; what stands in place of an erased one names nothing."""
        if erased_by(evidence) is not None:
            return
        try:
            content = orjson.loads(evidence.value or b"")
            data, begins = content["data"], int(content["id"][:_ID_DIGITS], 16)
            call, binding = data["origin"], data["binding"]
            if call["topic"] != self._topics[Role.CALLS] or begins < 0:
                raise ValueError
            number, offset = _place_in(call)
            self._calls[number].add(offset, begins)
            if seen := binding.get("origin"):
                self._lists[_place_in(seen)] = binding.get("snapshot_id")
            if found := data.get("signature", {}).get("discovery", {}).get("origin"):
                self._controls[_place_in(found)] = None
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
            name = self._name(Role.EVIDENCE, evidence.origin.partition)
            raise _differs(name, evidence.origin.offset, "(of the mirror) is not evidence of this deployment") from None

    async def _take_calls(self, logs: LogRanges, number: int, pairs: Pairs, routing: Routing) -> None:
        name, named = self._name(Role.CALLS, number), self._calls[number]
        named.sort(name)
        found = 0
        async for call in self._placed(logs, Role.CALLS, number, pairs):
            expected = named.id_at(call.origin.offset)
            if expected is None and erased_by(call) is not None:
                continue  # its evidence is erased, too, or the join refuses it as erased
            if expected is None:
                self.to_join += 1
                if call.origin.offset < named.end:
                    self._copy(call, routing)
            elif expected != id_of(call):
                raise _differs(name, call.origin.offset, "is not the call that evidence names there")
            else:
                found += 1
        self.not_replicated[Role.CALLS.value] += len(named) - found
        self._ends[Role.CALLS, number] = max(self._ends[Role.CALLS, number], named.end)
        self._ends[Role.REROUTED, number] += 0
        progress = write_progress(JoinProgress(calls=named.end, rerouted=0))
        self._append(Role.JOIN_PROGRESS, number, KEY, progress)

    async def _take_named(self, logs: LogRanges, role: Role, number: int, pairs: Pairs, named: Named) -> None:
        left = {offset: snapshot_id for (home, offset), snapshot_id in named.items() if home == number}
        end = max(left, default=-1) + 1
        async for record in self._placed(logs, role, number, pairs):
            expected = left.pop(record.origin.offset, None)
            if expected is not None and expected != _snapshot_id(record):
                raise _differs(
                    self._name(role, number), record.origin.offset, "is not the list that evidence names there"
                )
        self.not_replicated[role.value] += len(left)
        self._ends[role, number] = max(self._ends[role, number], end)

    async def _placed(self, logs: LogRanges, role: Role, number: int, pairs: Pairs) -> AsyncIterator[Record]:
        """Take the records of an input partition in, and yield each at the place it had."""
        offsets = SourceOffsets(self._name(role, number), pairs.get((self._topics[role], number), {}))
        async for batch in logs.read(role, number):
            for mirrored in batch:
                for offset, record in offsets.take(mirrored):
                    yield self._add(record, offset)
        offsets.finish()
        self._ends[role, number] = offsets.end or 0

    def _copy(self, call: Record, routing: Routing) -> None:
        """Have a call joined that the join would not read any more."""
        try:
            server_id = read_call(call).server_id
        except InputError:
            server_id = None  # refused under its own place, in any partition
        output = reroute(call, server_id or "", routing)
        target = call.origin.partition if server_id is None else output.partition or 0
        self._append(Role.REROUTED, target, output.key, output.value, output.headers, call.timestamp_ms)

    def _append(self, role: Role, number: int, *content: Any) -> None:
        origin = Origin(self._topics[role], number, self._ends[role, number])
        self._ends[role, number] += 1
        self._spool.add(Record(role, origin, *content))

    def _add(self, record: Record, offset: int) -> Record:
        origin = Origin(self._topics[record.role], record.origin.partition, offset)
        placed = record._replace(origin=origin, set_aside=False)
        self._spool.add(placed)
        self.records[record.role.value] += 1
        return placed

    def _name(self, role: Role, number: int) -> str:
        return f"partition {number} of {self._topics[role]}"


def pair_of(key: bytes, value: bytes) -> tuple[str, int, int, int]:
    """Return topic, partition, and the offsets at the source and on the mirror, as MirrorMaker's ``OffsetSync`` writes.

    A text comes with its length in two bytes, a partition is four and an offset eight, big endian.
    """
    length = int.from_bytes(key[:2])
    (number,) = struct.unpack_from(">i", key, 2 + length)
    source, mirror = struct.unpack_from(">qq", value)
    return key[2 : 2 + length].decode(), number, source, mirror


def _is_sealed_as(record: Record, offset: int, leaf: bytes) -> bool:
    """Return True if this is the record of a leaf, or the stub of one that was erased after it was sealed."""
    if leaf_of(record, offset=offset) == leaf:
        return True
    return erased_by(record) is not None and dict(record.headers).get(ERASED_LEAF_HEADER) == leaf.hex().encode()


def _place_in(origin: Mapping[str, Any]) -> tuple[int, int]:
    place = origin["partition"], origin["offset"]
    if not all(type(number) is int and 0 <= number < _OFFSET_MAX for number in place):
        raise ValueError("no place in a log")
    return place


def id_of(call: Record) -> int | None:
    """Return how the id of a call's evidence begins, ``None`` if it can have none."""
    try:
        if is_binary(call.headers):
            event = read_whole_call(call)
            identity = [event.source, event.id]
        else:
            content = orjson.loads(call.value or b"")
            identity = [content["source"], content["id"]]
        return int(sha256(orjson.dumps(identity)).hexdigest()[:_ID_DIGITS], 16)
    except (InputError, orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _snapshot_id(snapshot: Record) -> object:
    try:
        content = orjson.loads(snapshot.value or b"")
        return (content if is_binary(snapshot.headers) else content["data"])["snapshot_id"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _refused(kind: str, name: str, why: str) -> IntegrityError:
    return IntegrityError(f"mirror_{kind}", f"{name}: {why}. Nothing was written (docs/failover.md)")


def _repeats(name: str) -> IntegrityError:
    return _refused("repeats", name, "records are on the mirror twice, so MirrorMaker did not copy exactly once")


def _differs(name: str, offset: int, what: str) -> IntegrityError:
    return _refused("differs", name, f"the record at offset {offset} {what}")
