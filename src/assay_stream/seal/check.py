"""Check evidence against its checkpoints: what was altered, removed, inserted or exchanged, and at which offset.

1. Checkpoints are read in order; each must be signed, and continue the one before.
2. Within a range each sealed offset must hold the record of its leaf, and no other offset a record.
3. A record where another was sealed is *reordered* if it was sealed at another offset of its range,
   else *altered*. A record that comes after a later offset is *reordered* too.
4. What lies before the start of the log is *expired*: nothing is said about it.
5. What lies behind the last range is not sealed yet.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError
from assay_stream.model.checkpoint import Checkpoint, Head
from assay_stream.model.record import Record
from assay_stream.schemes.ed25519 import Keys
from assay_stream.seal.checkpoint import Sealed, TreeLeaf, decode, follows, leaf_of

FAULTS_TOLD_MAX = 100
"""Faults that are listed; the rest are counted."""
_EXCHANGED_MAX = 64
"""Records of one range whose place is searched: the search grows with the square."""


class Fault(NamedTuple):
    """One fault.

    Args:
        kind: ``altered``, ``missing``, ``inserted``, ``reordered``, ``checkpoint`` or ``head``.
        offset: the offset in the evidence partition; for a checkpoint that in its own topic or file; for a head
            the first offset behind what is sealed.
        code: for a checkpoint or a head, what is wrong with it.
        detail: for a head, its source.
    """

    kind: str
    offset: int
    code: str = ""
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class Report:
    """Findings in one partition.

    Args:
        checkpoints: number of valid checkpoints.
        sealed_to: offset of the last sealed record, ``None`` if there is none.
        verified: records that are as they were sealed.
        expired: sealed records that lie before the start of the log.
        unsealed: records behind the last range.
        faults: the first faults, in the order in which they were found.
        tree_size: records that are sealed.
        partitions: how many partitions the last checkpoint says there are; 0 without a checkpoint.
        roots: the root at each tree size that a checkpoint signs.
        claims: heads of other partitions, with the number of the first checkpoint that names each.
        chain_broken: whether a checkpoint does not hold, so that the end of the chain is not known.
    """

    topic: str
    partition: int
    checkpoints: int = 0
    sealed_to: int | None = None
    verified: int = 0
    expired: int = 0
    unsealed: int = 0
    faults: list[Fault] = field(default_factory=list)
    faults_count: int = 0
    tree_size: int = 0
    partitions: int = 0
    roots: dict[int, Digest] = field(default_factory=dict)
    claims: dict[Head, int] = field(default_factory=dict)
    chain_broken: bool = False

    def take(self, checkpoint: Checkpoint, *, with_claims: bool = True) -> None:
        """Note a checkpoint that holds.

        Args:
            with_claims: whether what it says of other partitions counts.
        """
        self.checkpoints += 1
        self.sealed_to = checkpoint.last_offset
        self.tree_size = checkpoint.tree_size
        self.roots[checkpoint.tree_size] = checkpoint.root
        self.partitions = checkpoint.partitions
        if with_claims:
            for head in checkpoint.siblings:
                self.claims.setdefault(head, checkpoint.sequence)

    def tell(self, fault: Fault) -> None:
        self.faults_count += 1
        if len(self.faults) < FAULTS_TOLD_MAX:
            self.faults.append(fault)


def check(
    report: Report,
    checkpoints: Iterable[tuple[int, bytes | None]],
    records: Iterable[Record],
    keys: Keys,
    *,
    log_start: int = 0,
    claims_before: int | None = None,
) -> None:
    """Check the records of one partition against its checkpoints, and add the findings to a report.

    Args:
        checkpoints: place and value of each record of the checkpoint topic, in order.
        log_start: offset at which the log begins now.
        claims_before: what checkpoints say of other partitions counts before this place; ``None`` for everywhere.
    """
    reader = _Ordered(records, report)
    last: Sealed | None = None
    for number, raw in checkpoints:
        found = _continued(report, number, raw, last, keys)
        if found is None:
            # What follows rests on this one: nothing can be said about it.
            report.chain_broken = True
            for _ in reader.up_to(None):
                report.unsealed += 1
            return
        last = found
        report.take(found.checkpoint, with_claims=claims_before is None or number < claims_before)
        _check_range(report, found.leaves, reader, log_start)
    for _ in reader.up_to(None):
        report.unsealed += 1


def _continued(report: Report, number: int, raw: bytes | None, last: Sealed | None, keys: Keys) -> Sealed | None:
    try:
        found = decode(raw, keys)
    except InputError as error:
        report.tell(Fault("checkpoint", number, error.code))
        return None
    why = follows(found, last)
    if why is None and (found.checkpoint.topic, found.checkpoint.partition) != (report.topic, report.partition):
        why = "checkpoint_of_another_log"
    if why is not None:
        report.tell(Fault("checkpoint", number, why))
        return None
    return found


class _Ordered:
    """Gives records in ranges of offsets; one that comes after a later offset is told, and passed over."""

    def __init__(self, records: Iterable[Record], report: Report) -> None:
        self._records = iter(records)
        self._report = report
        self._waiting: Record | None = None
        self._latest = -1

    def up_to(self, last: int | None) -> Iterator[Record]:
        """Yield the next records, up to an offset or to the end."""
        while (record := self._next()) is not None:
            if last is not None and record.origin.offset > last:
                self._waiting = record
                return
            yield record

    def _next(self) -> Record | None:
        if self._waiting is not None:
            record, self._waiting = self._waiting, None
            return record
        for record in self._records:
            if record.origin.offset > self._latest:
                self._latest = record.origin.offset
                return record
            kind = "inserted" if record.origin.offset == self._latest else "reordered"
            self._report.tell(Fault(kind, record.origin.offset))
        return None


def _check_range(report: Report, leaves: tuple[TreeLeaf, ...], reader: _Ordered, log_start: int) -> None:
    wanted = dict(leaves)
    faults: dict[int, str] = {}
    wrong: list[Record] = []
    for record in reader.up_to(leaves[-1][0]):
        offset = record.origin.offset
        leaf = wanted.pop(offset, None)
        if leaf is None:
            faults[offset] = "inserted"
        elif leaf == leaf_of(record):
            report.verified += 1
        else:
            faults[offset] = "altered"
            wrong.append(record)
    for offset in wanted:
        if offset < log_start:
            report.expired += 1
        else:
            faults[offset] = "missing"
    if len(wrong) <= _EXCHANGED_MAX:
        sought = {leaf: offset for offset, leaf in leaves if offset in faults}
        for record in wrong:
            if any(leaf_of(record, offset=offset) == leaf for leaf, offset in sought.items()):
                faults[record.origin.offset] = "reordered"
    for offset in sorted(faults):
        report.tell(Fault(faults[offset], offset))
