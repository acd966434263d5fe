"""Evidence and calls put together by origin, in bounded memory, whatever order either comes in.

Both come in the order of their logs as a rule, so that one waits for the other only briefly
(``verify.waiting``).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson

from assay_stream.model.record import Origin, Record, Role
from assay_stream.replay.evidence_record import Recorded
from assay_stream.verify.waiting import Offsets, Waiting

WAITING_MAX = 50_000
"""Values of one side that wait in memory: about 100 MB of evidence."""

Value = TypeVar("Value")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True)
class Side(Generic[Value]):
    """What is put together: how it is named, and how it is kept outside of memory."""

    origin: Callable[[Value], Origin | None]
    pack: Callable[[Value], bytes]
    unpack: Callable[[bytes], Value]
    size_bytes: Callable[[Value], int]


class Pairing(Generic[Other]):
    """Gives each record of evidence what stands for the call that it names: the call, or other evidence of it.

    Args:
        others: what evidence is paired with.
        waiting_max: how many values of either side wait in memory.
    """

    def __init__(self, others: Side[Other], *, waiting_max: int = WAITING_MAX) -> None:
        self._side = others
        self._evidence: Waiting[Recorded] = Waiting(_pack_evidence, _unpack_evidence, waiting_max, _size_bytes)
        self._others: Waiting[Other] = Waiting(others.pack, others.unpack, waiting_max, others.size_bytes)
        self._paired = Offsets()
        self.waits_for_other = 0
        """How many records of evidence wait."""
        self.waits_for_evidence = 0
        """How many others wait for their evidence."""

    def evidence(self, given: Recorded) -> tuple[Recorded, Other] | None:
        """Take a record of evidence in, and return it with its other where that is there already.

        Args:
            given: the record.
        """
        if given.call is None:
            raise AssertionError("evidence that names no call has no pair")
        other = self._others.pop(given.call)
        if other is None:
            self._evidence.put(given.call, given)
            self.waits_for_other += 1
            return None
        self.waits_for_evidence -= 1
        self._paired.add(given.call)
        return given, other

    def other(self, value: Other, *, keep: bool = True) -> tuple[Recorded, Other] | None:
        """Take what stands for a call in, and return it with its evidence where that is there already.

        Args:
            value: the call, or other evidence of it.
            keep: whether to let it wait where it is not.
        """
        origin = self._side.origin(value)
        given = None if origin is None else self._evidence.pop(origin)
        if given is None or origin is None:
            if keep and origin is not None:
                self._others.put(origin, value)
                self.waits_for_evidence += 1
            return None
        self.waits_for_other -= 1
        self._paired.add(origin)
        return given, value

    def evidence_left(self) -> Iterator[tuple[Recorded, bool]]:
        """Yield the evidence that found nothing, and whether another record has had that call."""
        for given in self._evidence.rest():
            yield given, given.call in self._paired

    def others_left(self) -> Iterator[Other]:
        """Yield what stands for calls that no evidence has named."""
        for value in self._others.rest():
            if self._side.origin(value) not in self._paired:
                yield value


def paired(
    evidence: Iterable[Recorded], others: Iterable[Other], pairing: Pairing[Other], *, keep: bool = False
) -> Iterator[tuple[Recorded, Other]]:
    """Yield pairs, reading from the side that fewer values wait of.

    Args:
        evidence: records that name a call.
        others: what they are paired with.
        pairing: keeps what waits.
        keep: whether others that no evidence names are kept to the end (``others_left``) or passed over.
    """
    waiting_evidence, waiting_others = iter(evidence), iter(others)
    more_evidence = more_others = True
    while more_evidence or (more_others and (keep or pairing.waits_for_other)):
        pair = None
        if more_evidence and (not more_others or pairing.waits_for_other <= pairing.waits_for_evidence):
            given = next(waiting_evidence, None)
            more_evidence = given is not None
            pair = None if given is None else pairing.evidence(given)
        else:
            value = next(waiting_others, None)
            more_others = value is not None
            pair = None if value is None else pairing.other(value, keep=keep or more_evidence)
        if pair is not None:
            yield pair


def _pack_evidence(given: Recorded) -> bytes:
    record = None if given.record is None else _fields(given.record)
    return orjson.dumps([given.where, _text(given.value), record])


def _unpack_evidence(packed: bytes) -> Recorded:
    where, value, record = orjson.loads(packed)
    return Recorded(where, base64.b64decode(value), None if record is None else _record(record))


def _pack_call(record: Record) -> bytes:
    return orjson.dumps(_fields(record))


def _unpack_call(packed: bytes) -> Record:
    return _record(orjson.loads(packed))


def _fields(record: Record) -> list[Any]:
    headers = [[name, _text(value)] for name, value in record.headers]
    return [
        record.role.value,
        list(record.origin),
        _text(record.key),
        _text(record.value),
        headers,
        record.timestamp_ms,
    ]


def _record(fields: list[Any]) -> Record:
    role, origin, key, value, headers, timestamp_ms = fields
    return Record(
        role=Role(role),
        origin=Origin(*origin),
        key=None if key is None else base64.b64decode(key),
        value=None if value is None else base64.b64decode(value),
        headers=tuple((name, base64.b64decode(text)) for name, text in headers),
        timestamp_ms=timestamp_ms,
    )


def _size_bytes(value: Record | Recorded) -> int:
    return len(value.value or b"")


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


CALLS: Side[Record] = Side(lambda record: record.origin, _pack_call, _unpack_call, _size_bytes)
"""Calls, as they stand in their topic."""

EVIDENCE: Side[Recorded] = Side(lambda evidence: evidence.call, _pack_evidence, _unpack_evidence, _size_bytes)
"""Other evidence of the same calls."""
