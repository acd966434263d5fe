"""Evidence records as they were written: what each is about, and paired by origin with what stands for their calls.

What is read here is somebody's claim; ``verify.verification`` checks it against the logs.

Where two records differ is said as JSON paths, and what each path means as a code (``differences.toml``). Paths name
members of our own records only: an unknown member is named by the object it stands in, since its name may be anything.

Both usually come in the order of their logs, so that one waits for the other only briefly. Once more waits than memory
may hold, the rest of both sides goes to a spool, and is paired from there in the order of origins.
"""

from __future__ import annotations

import pickle
import re
import tomllib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from importlib import resources
from itertools import count
from operator import itemgetter
from typing import Any, Generic, TypeVar

import orjson

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.files.archive import PartitionPlace
from assay_stream.files.lines import record_line_parts
from assay_stream.files.spool import Spool
from assay_stream.limits import HELD_BYTES_MAX
from assay_stream.model.evidence import EVIDENCE_TYPE, Producer
from assay_stream.model.record import Headers, Origin, Output, Record
from assay_stream.schemes import assay_tool as assay
from assay_stream.text.times import time_us_in

_HASH_END = len(b'{"assaycontenthash":"sha256:') + 64
_FRAGMENT_BYTES_MAX = 4_096
_PRODUCERS_KEPT = 1_024
_ORIGIN = re.compile(rb'"origin":\{"offset":([0-9]+),"partition":([0-9]+),"topic":"([\x20-!#-\[\]-\x7e]*)"\},"pin":')
_DIGITS_MAX = 40
_CANONICAL_START = b'{"assaycontenthash":"sha256:'


class Recorded:
    """One record of evidence as it was read.

    Args:
        where: where it was read, for messages.
        record: its record in the evidence log; ``None`` for a line of a file, which has no key and no offset.

    Attributes:
        call: claimed position of its call, ``None`` if absent.
    """

    __slots__ = ("_content", "call", "record", "value", "where")

    def __init__(self, where: str, value: bytes, record: Record | None = None) -> None:
        self.where = where
        self.value = value
        self.record = record
        self._content: Mapping[str, Any] | None = None
        # In evidence as we write it, only the call's origin stands before the pin.
        found = _ORIGIN.findall(value)
        if len(found) == 1 and len(found[0][0]) + len(found[0][1]) <= _DIGITS_MAX:
            offset, number, topic = found[0]
            self.call: Origin | None = Origin(topic=topic.decode(), partition=int(number), offset=int(offset))
        else:
            self.call = origin_in(self.content.get("data"), "origin")

    def __reduce__(self) -> tuple[Any, ...]:
        return Recorded, (self.where, self.value, self.record)

    @property
    def content(self) -> Mapping[str, Any]:
        """Leniently decoded content, ``{}`` if it is not an object."""
        if self._content is None:
            try:
                content = orjson.loads(self.value)
            except orjson.JSONDecodeError:
                content = None
            self._content = content if isinstance(content, dict) else {}
        return self._content

    def text(self, name: str) -> str | None:
        return _text(self.content.get("data"), name)

    @property
    def record_id(self) -> str | None:
        return _text(self.content, "id")

    @property
    def binding(self) -> object:
        data = self.content.get("data")
        return data.get("binding") if isinstance(data, dict) else None


def of_record(record: Record) -> Recorded:
    return Recorded(str(record.origin), record.value or b"", record)


def of_lines(lines: Iterable[bytes], *, name: str) -> Iterator[Recorded]:
    """Yield the evidence of a file: each line the record itself, or a record line of an archive that holds it.

    Raises:
        InputError: ``bad_record_line``.
    """
    for number, line in enumerate(lines):
        raw = line.strip(b" \t\r\n")
        if not raw:
            continue
        record = None
        if not raw.startswith(_CANONICAL_START):
            record = record_line_parts(raw, Origin(topic=name, partition=0, offset=number))
        yield Recorded(f"{name} line {number + 1}", raw) if record is None else of_record(record)


def origin_in(data: object, name: str) -> Origin | None:
    place = data.get(name) if isinstance(data, dict) else None
    if not isinstance(place, dict):
        return None
    topic, number, offset = place.get("topic"), place.get("partition"), place.get("offset")
    if not isinstance(topic, str) or type(number) is not int or type(offset) is not int:
        return None
    return Origin(topic=topic, partition=number, offset=offset)


def strict_content(value: bytes) -> dict[str, Any]:
    """Return the envelope of evidence, decoded strictly.

    Raises:
        InputError: ``not_evidence``, or as ``decode_json``.
    """
    content = decode_json(value)
    if (
        not isinstance(content, dict)
        or content.get("type") != EVIDENCE_TYPE
        or not isinstance(content.get("data"), dict)
    ):
        raise InputError("not_evidence", f"evidence is a JSON object of type {EVIDENCE_TYPE} with data", path="$")
    return content


def is_intact(content: Mapping[str, Any]) -> bool:
    """Return True if an envelope's content hash matches.

    Raises:
        InputError: if it cannot be hashed.
    """
    return content.get("assaycontenthash") == str(assay.content_hash(content))


def intact_content(value: bytes) -> dict[str, Any] | None:
    """Return the evidence envelope, ``None`` if it is invalid or was altered."""
    try:
        content = strict_content(value)
        return content if is_intact(content) else None
    except InputError:
        return None


class Producers:
    """Cache of the producers named in records."""

    def __init__(self) -> None:
        self._by_fragment: dict[bytes, Producer] = {}

    def of(self, evidence: Recorded) -> Producer:
        """Return the claimed producer of a record; missing members are empty."""
        value = evidence.value
        end = value.find(b',"data":', _HASH_END, _HASH_END + _FRAGMENT_BYTES_MAX)
        fragment = value[_HASH_END:end] if end > 0 else b""
        found = self._by_fragment.get(fragment)
        if found is None:
            version, git = (_text(evidence.content, name) or "" for name in ("assayproducerversion", "assaygit"))
            found = Producer(version=version, git=git)
            if fragment and len(self._by_fragment) < _PRODUCERS_KEPT and found.fragment == fragment + b',"data":':
                self._by_fragment[fragment] = found
        return found


def headers_equal(record: Record, expected: Output) -> bool:
    headers: Headers = tuple(map(tuple, record.headers))  # type: ignore[arg-type]
    return (record.key, headers, record.timestamp_ms, record.origin.partition) == (
        expected.key,
        expected.headers,
        expected.timestamp_ms,
        expected.partition,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSelection:
    """Which evidence to verify; everything by default.

    Args:
        since_us: event time of the earliest call, inclusive, microseconds since the epoch.
        until_us: event time of the latest call, inclusive.
    """

    since_us: int | None = None
    until_us: int | None = None
    server_id: str | None = None
    evidence_id: str | None = None
    partition: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None

    def wants(self, evidence: Recorded) -> bool:
        """Return True if a record is selected. A record without the deciding member is: it may have been altered."""
        call, time_us = evidence.call, None
        if self.since_us is not None or self.until_us is not None:
            time_us = time_us_in(evidence.content.get("time"))
        is_in_place = call is None or (
            self.partition in (None, call.partition)
            and (self.from_offset is None or call.offset >= self.from_offset)
            and (self.to_offset is None or call.offset < self.to_offset)
        )
        return (
            (time_us is None or (self.since_us or 0) <= time_us)
            and (time_us is None or self.until_us is None or time_us <= self.until_us)
            and (self.server_id is None or evidence.text("server_id") in (None, self.server_id))
            and (self.evidence_id is None or evidence.content.get("id") == self.evidence_id)
            and is_in_place
        )


def _text(content: object, name: str) -> str | None:
    found = content.get(name) if isinstance(content, dict) else None
    return found if isinstance(found, str) else None


ALTERED, MISSING, UNEXPECTED = "altered_record", "missing_record", "unexpected_record"
SOFTWARE_CHANGED, ERASED = "software_changed", "erased"
ORDER_OF_READING = "order_of_reading"
"""Not a difference: the order in which a worker read its partitions, or the time of its ticks, decided it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between a replay and what was recorded.

    Args:
        what: ``evidence`` or ``alert``.
        record_id: ``id`` of the evidence, or ``uid`` of the alert.
        paths: the members that differ, as JSON paths.
        left_out: the first record of each log that the recorded run did not have.
        records: for an alert, the records that differ.
    """

    what: str
    causes: tuple[str, ...]
    server_id: str | None = None
    tool_name: str | None = None
    call: Origin | None = None
    record_id: str | None = None
    paths: tuple[str, ...] = ()
    left_out: tuple[Origin, ...] = ()
    records: tuple[str, ...] = ()
    kind: str | None = None

    @property
    def counts(self) -> bool:
        """Whether it counts as a difference: effects of the order of reading, and of erasures, are only reported."""
        return self.causes not in ((ORDER_OF_READING,), (ERASED,))

    def as_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "what": self.what,
            "kind": self.kind,
            "causes": list(self.causes),
            "server_id": self.server_id,
            "tool_name": self.tool_name,
            "call": None if self.call is None else self.call.as_json(),
            "id": self.record_id,
            "paths": list(self.paths),
            "left_out": [origin.as_json() for origin in self.left_out],
            "records": list(self.records),
        }
        return {name: value for name, value in fields.items() if value not in (None, [])}


_SPLIT = frozenset({"$.data", "$.data.binding"})
_CODES: dict[str, dict[str, str]] = tomllib.loads(
    resources.files(__package__).joinpath("differences.toml").read_text("utf-8")
)
_ENVELOPE, _DATA, _BINDING = _CODES["envelope"], _CODES["data"], _CODES["binding"]
_FROM_LOGS = frozenset(
    {"unbound_reason_differs", "digest_differs", "pin_differs", "signature_differs", "binding_differs"}
)
_HASH = "$.assaycontenthash"


def differing_paths(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the members in which an envelope differs from another one, sorted.

    The content hash is among them only if nothing else differs: it follows from what it covers.
    """

    def is_ours(parent: str, name: str) -> bool:
        names: dict[str, Mapping[str, Any]] = {"$": _ENVELOPE, "$.data": _DATA, "$.data.binding": _BINDING}
        return name in names[parent] or f"{parent}.{name}" in _SPLIT

    paths = differing(one, other, split=_SPLIT, is_ours=is_ours)
    if len(paths) > 1:
        paths.discard(_HASH)
    return tuple(sorted(paths))


def codes_of(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({_code_of(path) for path in paths}))


def rests_on_logs(paths: Iterable[str]) -> bool:
    """Return True if all differing members depend on snapshots and control records, and none on the call."""
    return all(_code_of(path) in _FROM_LOGS for path in paths)


def differing(
    one: Mapping[str, Any],
    other: Mapping[str, Any],
    path: str = "$",
    *,
    split: Collection[str],
    is_ours: Callable[[str, str], bool],
) -> set[str]:
    """Return the members in which two objects differ, as JSON paths.

    Args:
        split: paths of objects that are compared member by member.
        is_ours: tells by its parent and name whether a member that ``other`` lacks may be named; any other is named by
            the object it stands in.
    """
    found: set[str] = set()
    for name in one.keys() | other.keys():
        member = f"{path}.{name}"
        mine, theirs = one.get(name), other.get(name)
        if name in one and name in other and _same(mine, theirs):
            continue
        if member in split and isinstance(mine, dict) and isinstance(theirs, dict):
            found |= differing(mine, theirs, member, split=split, is_ours=is_ours)
        else:
            found.add(member if name in other or is_ours(path, name) else path)
    return found


def _same(one: Any, other: Any) -> bool:
    """Return True if two JSON values are equal; true is not 1, and integers beyond 2**53 are told apart."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _code_of(path: str) -> str:
    steps = path.split(".")
    if steps[:3] == ["$", "data", "binding"]:
        return _BINDING.get(".".join(steps[3:]), "binding_differs")
    if steps[:2] == ["$", "data"]:
        return _DATA.get(".".join(steps[2:]), "call_differs")
    return _ENVELOPE.get(".".join(steps[1:]), "envelope_differs")


WAITING_MAX = 50_000
"""Values of one side that wait in memory: about 100 MB of evidence."""

Other = TypeVar("Other", bound=Recorded | Record)
_EVIDENCE, _OTHERS = 0, 1


class Offsets:
    """A set of origins that is compact for consecutive offsets."""

    def __init__(self) -> None:
        self._edges: dict[PartitionPlace, list[int]] = {}
        """Of each run, its first offset and the one behind it, sorted: an offset behind an odd number is in a run."""

    def add(self, origin: Origin) -> None:
        edges = self._edges.setdefault(origin[:2], [])
        if edges and edges[-1] == origin.offset:
            # As in a log that is in order.
            edges[-1] += 1
        elif origin not in self:
            # An edge that two runs share is none any more.
            for edge in (origin.offset, origin.offset + 1):
                index = bisect_left(edges, edge)
                if edges[index : index + 1] == [edge]:
                    del edges[index]
                else:
                    edges.insert(index, edge)

    def __contains__(self, origin: object) -> bool:
        return isinstance(origin, Origin) and bisect_right(self._edges.get(origin[:2], ()), origin.offset) % 2 == 1


class _Waiting:
    """Values of one side held in memory by origin, in order of arrival."""

    def __init__(self) -> None:
        self.values: dict[Origin, list[Any]] = {}
        self.count = self.size_bytes = 0

    def put(self, origin: Origin, value: Any) -> None:
        self.values.setdefault(origin, []).append(value)
        self.count += 1
        self.size_bytes += len(value.value or b"")

    def pop(self, origin: Origin) -> Any:
        waiting = self.values.get(origin)
        if waiting is None:
            return None
        value = waiting.pop(0)
        self.count -= 1
        self.size_bytes -= len(value.value or b"")
        if not waiting:
            del self.values[origin]
        return value


@dataclass(slots=True, eq=False)
class Pairing(Generic[Other]):
    """Pairs each record of evidence with its call, or with other evidence of that call.

    Args:
        origin_of: returns the origin of the call for a value of the other side.
        places: partitions whose calls can be paired; ``None`` for all.
    """

    origin_of: Callable[[Other], Origin | None]
    _: KW_ONLY
    waiting_max: int = WAITING_MAX
    places: Collection[PartitionPlace] | None = None
    _waiting: tuple[_Waiting, _Waiting] = field(default_factory=lambda: (_Waiting(), _Waiting()), init=False)
    _paired: Offsets = field(default_factory=Offsets, init=False)
    _spool: Spool[int] | None = field(default=None, init=False)
    _numbers: count[int] = field(default_factory=count, init=False)

    def takes(self, given: Recorded) -> bool:
        return given.call is not None and (self.places is None or given.call[:2] in self.places)

    def is_paired(self, call: Origin | None) -> bool:
        """Return True if evidence of a call has been paired."""
        return call in self._paired

    def pairs(
        self, evidence: Iterable[Recorded], others: Iterable[Other], *, keep: bool = False
    ) -> Iterator[tuple[Recorded | None, Other | None]]:
        """Yield pairs while reading from the side of which less waits, then evidence and others that found none.

        Evidence that the pairing does not take comes at once, alone; a second record of one call in the end.

        Args:
            keep: whether others that no evidence names are wanted, and so read to their end.
        """
        waiting, more = self._waiting, (iter(evidence), iter(others))
        has_evidence = has_others = True
        while has_evidence or (has_others and (keep or self._spool is not None or waiting[_EVIDENCE].count)):
            is_behind = self._spool is not None or waiting[_EVIDENCE].count <= waiting[_OTHERS].count
            side = _EVIDENCE if has_evidence and (is_behind or not has_others) else _OTHERS
            value: Any = next(more[side], None)
            if value is None:
                has_evidence, has_others = has_evidence and side != _EVIDENCE, has_others and side != _OTHERS
            elif side == _EVIDENCE and not self.takes(value):
                yield value, None
            elif (origin := value.call if side == _EVIDENCE else self.origin_of(value)) is not None:
                other = self._other_of(side, origin, value, keep=keep or has_evidence)
                if other is not None:
                    yield (value, other) if side == _EVIDENCE else (other, value)
        yield from self._alone() if self._spool is None else self._rest(self._spool)

    def _other_of(self, side: int, origin: Origin, value: Any, *, keep: bool) -> Any:
        """Return the counterpart of a value, ``None`` if it has to wait for it."""
        other = self._waiting[1 - side].pop(origin)
        if other is not None:
            self._paired.add(origin)
        elif keep or self._spool is not None:
            self._wait(side, origin, value)
        return other

    def _wait(self, side: int, origin: Origin, value: Any) -> None:
        if self._spool is not None:
            self._spool.put(side, (*origin, next(self._numbers), pickle.dumps(value)))
            return
        waiting = self._waiting[side]
        waiting.put(origin, value)
        if waiting.count > self.waiting_max or waiting.size_bytes > HELD_BYTES_MAX:
            self._spool = Spool(itemgetter(slice(4)))
            for number, held in enumerate(self._waiting):
                values, held.values = held.values, {}
                held.count = held.size_bytes = 0
                for place, some in values.items():
                    for one in some:
                        self._wait(number, place, one)

    def _alone(self) -> Iterator[tuple[Recorded | None, Other | None]]:
        evidence, others = self._waiting
        yield from ((given, None) for some in evidence.values.values() for given in some)
        for origin, some in others.values.items():
            if origin not in self._paired:
                yield from ((None, value) for value in some)

    def _rest(self, spool: Spool[int]) -> Iterator[tuple[Recorded | None, Other | None]]:
        """Pair the spooled rest, in the order of origins."""
        spool.finish()
        left, right = spool.rows(_EVIDENCE), spool.rows(_OTHERS)
        one, two = next(left, None), next(right, None)
        while one is not None or two is not None:
            has_one = one is not None and (two is None or one[:3] <= two[:3])
            has_two = two is not None and (one is None or two[:3] <= one[:3])
            given = value = None
            if one is not None and has_one:
                origin = Origin(*one[:3])
                given, one = _read(one), next(left, None)
            if two is not None and has_two:
                origin = Origin(*two[:3])
                value, two = _read(two), next(right, None)
            if has_one and has_two:
                self._paired.add(origin)
            if has_one or origin not in self._paired:
                yield given, value
        spool.close()


def _read(row: tuple[Any, ...]) -> Any:
    return pickle.loads(row[-1])  # noqa: S301 - written by this process
