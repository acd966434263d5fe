"""Check evidence against its checkpoints, and the ends of all partitions against each other: ``verify_logs``.

1. Checkpoints are read in order; each must be signed, and continue the one before.
2. Within a range each sealed offset must hold the record of its leaf, and no other offset a record.
3. A record where another was sealed is *reordered* if it was sealed at another offset of its range,
   else *altered*. A record that comes after a later offset is *reordered* too.
4. What stands where a record was erased on record counts as *erased* if the erasure accounts for it: its leaf hash
   stays, so that the tree is complete. If not, the record is *missing*, with the reason.
5. What lies before the start of the log is *expired*: nothing is said about it.
6. What lies behind the last range is not sealed yet.

1. A head that a checkpoint of another partition names must be in the chain of its own: the same root at that size.
2. So must a head that is expected: one that was noted somewhere safe.
3. A chain that does not reach a head was cut, or an old copy was put in its place. A partition without any chain
   lost it.
4. How many partitions there are may grow, and never shrink.

The end of a broken chain is unknown: its head is not checked, since the break is reported already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from assay_stream.bindings.erasures import Account, Erasures
from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError
from assay_stream.model.checkpoint import Checkpoint, Head, Sealed, TreeLeaf, decode, follows, leaf_of
from assay_stream.model.record import Record, erased_by
from assay_stream.schemes.tlog import Keys

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
        code: for a checkpoint or a head, what is wrong with it; for a missing record, why its erasure does not count.
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
        erased: sealed records that an erasure accounts for, by its id.
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
    erased: Counter[str] = field(default_factory=Counter)
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


Refuse = Callable[[Record, bytes], str | None]
"""Returns why no erasure accounts for what stands in place of a record with this leaf hash, ``None`` if one does."""


def check(
    report: Report,
    checkpoints: Iterable[tuple[int, bytes | None]],
    records: Iterable[Record],
    keys: Keys,
    *,
    log_start: int = 0,
    claims_before: int | None = None,
    refuse: Refuse = lambda *_: "erasure_unknown",
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
        try:
            found = decode(raw, keys)
            why = follows(found, last)
            if why is None and (found.checkpoint.topic, found.checkpoint.partition) != (report.topic, report.partition):
                why = "checkpoint_of_another_log"
        except InputError as error:
            why = error.code
        if why is not None:
            # What follows rests on this one: nothing can be said about it.
            report.tell(Fault("checkpoint", number, why))
            report.chain_broken = True
            break
        last = found
        report.take(found.checkpoint, with_claims=claims_before is None or number < claims_before)
        _check_range(report, found.leaves, reader, log_start, refuse)
    for _ in reader.up_to(None):
        report.unsealed += 1


class _Ordered:
    """Gives records in ranges of offsets; one that comes after a later offset is reported, and passed over."""

    def __init__(self, records: Iterable[Record], report: Report) -> None:
        self._records = self._rising(records, report)
        self._waiting: Record | None = None

    def up_to(self, last: int | None) -> Iterator[Record]:
        """Yield the next records, up to an offset or to the end."""
        while (record := self._waiting or next(self._records, None)) is not None:
            self._waiting = None
            if last is not None and record.origin.offset > last:
                self._waiting = record
                return
            yield record

    def _rising(self, records: Iterable[Record], report: Report) -> Iterator[Record]:
        latest = -1
        for record in records:
            if record.origin.offset > latest:
                latest = record.origin.offset
                yield record
            else:
                kind = "inserted" if record.origin.offset == latest else "reordered"
                report.tell(Fault(kind, record.origin.offset))


def _check_range(
    report: Report, leaves: tuple[TreeLeaf, ...], reader: _Ordered, log_start: int, refuse: Refuse
) -> None:
    wanted = dict(leaves)
    faults: dict[int, str] = {}
    codes: dict[int, str] = {}
    wrong: list[Record] = []
    for record in reader.up_to(leaves[-1][0]):
        offset = record.origin.offset
        leaf = wanted.pop(offset, None)
        if leaf is None:
            faults[offset] = "inserted"
        elif leaf == leaf_of(record):
            report.verified += 1
        elif (erasure := erased_by(record)) is not None:
            code = refuse(record, leaf)
            if code is None:
                report.erased[erasure] += 1
            else:
                faults[offset], codes[offset] = "missing", code
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
        report.tell(Fault(faults[offset], offset, codes.get(offset, "")))


HEADS_SCHEMA = "assay.evidence.heads.v1"


class Expected(NamedTuple):
    """Earlier knowledge about a partition.

    Args:
        tree_size: records that were sealed then, 0 where only the partition is known.
        root: root of their tree, ``None`` where only the size is known.
        topic: the evidence topic, ``None`` for any.
        source: its source, for messages.
    """

    partition: int
    tree_size: int
    root: Digest | None = None
    topic: str | None = None
    source: str = "--expect"


def check_heads(
    reports: list[Report],
    expected: Iterable[Expected],
    *,
    only: Collection[int] = (),
    partition_count: int | None = None,
) -> None:
    """Compare heads; faults go into the reports, and missing reports are added.

    Args:
        only: the partitions that were looked at; all where there are none.
        partition_count: how many partitions there are now, ``None`` if unknown.
    """
    by_place = {(report.topic, report.partition): report for report in reports}
    topics = sorted({report.topic for report in reports})

    def report_of(topic: str, number: int) -> Report:
        if (topic, number) not in by_place:
            by_place[topic, number] = Report(topic=topic, partition=number)
            reports.append(by_place[topic, number])
        return by_place[topic, number]

    for report in list(reports):
        for head, sequence in report.claims.items():
            if not only or head.partition in only:
                source = f"checkpoint {sequence} of partition {report.partition}"
                _check(report_of(report.topic, head.partition), Expected(*head, report.topic, source), "sibling")
    for known in expected:
        if not only or known.partition in only:
            topic = known.topic if known.topic is not None else topics[0] if len(topics) == 1 else ""
            _check(report_of(topic, known.partition), known, "expected")
    if partition_count is not None and not only:
        for report in list(reports):
            if report.partitions > partition_count:
                detail = f"checkpoints know of {report.partitions} partitions, there are {partition_count}"
                report.tell(Fault("head", _behind(report), "partitions_missing", detail))


def check_sealed_offset(report: Report, sealed_offset: int) -> None:
    """Check the end of a chain against the offset that the sealer committed with its last checkpoint."""
    if not report.chain_broken and sealed_offset > _behind(report):
        detail = f"the sealer has committed offset {sealed_offset}"
        report.tell(Fault("head", _behind(report), "sealed_offset_ahead", detail))


def _check(report: Report, known: Expected, by: str) -> None:
    if report.chain_broken or known.tree_size == 0:
        return
    told = f"{known.source} knows of {known.tree_size} sealed records, there are {report.tree_size}"
    if not report.checkpoints:
        report.tell(Fault("head", 0, "partition_missing", told))
    elif known.tree_size > report.tree_size:
        report.tell(Fault("head", _behind(report), "tail_cut", told))
    elif known.root is not None and report.roots.get(known.tree_size) != known.root:
        detail = f"{known.source} knows another tree of {known.tree_size} records"
        report.tell(Fault("head", _behind(report), f"{by}_head_differs", detail))


def _behind(report: Report) -> int:
    return 0 if report.sealed_to is None else report.sealed_to + 1


def heads_as_json(reports: Iterable[Report]) -> dict[str, Any]:
    """Return the heads of some chains, to be stored where no broker administrator can alter them."""
    return {
        "schema": HEADS_SCHEMA,
        "heads": [
            {
                "topic": report.topic,
                "partition": report.partition,
                "tree_size": report.tree_size,
                "root": str(report.roots[report.tree_size]),
            }
            for report in reports
            if report.tree_size
        ],
    }


def expected_in(raw: bytes, source: str) -> list[Expected]:
    """Parse stored heads.

    Args:
        raw: as ``heads_as_json`` has it.

    Raises:
        InputError: ``bad_head``, naming ``source``.
    """
    try:
        content = decode_json(raw)
        if content["schema"] != HEADS_SCHEMA:
            raise _bad_head(source)
        found = [
            Expected(head["partition"], head["tree_size"], Digest.parse(head["root"]), head["topic"], source)
            for head in content["heads"]
        ]
    except (KeyError, TypeError, AttributeError, InputError):
        raise _bad_head(source) from None
    numbers = [number for head in found for number in head[:2]]
    if not all(type(number) is int for number in numbers) or not all(isinstance(h.topic, str) for h in found):
        raise _bad_head(source)
    return found


def expected_of(text: str) -> Expected:
    """Parse a head given on the command line.

    Args:
        text: ``PARTITION:SIZE`` or ``PARTITION:SIZE:ROOT``.

    Raises:
        InputError: ``bad_head``.
    """
    number, _, rest = text.partition(":")
    size, _, root = rest.partition(":")
    if not (number.isascii() and number.isdecimal() and size.isascii() and size.isdecimal()):
        raise InputError("bad_head", f"there is no file {text}, and it is not PARTITION:SIZE[:ROOT] either")
    try:
        return Expected(int(number), int(size), Digest.parse(root) if root else None)
    except InputError:
        raise _bad_head(text) from None


def is_known(head: Head, checkpoint_head: Head | None) -> bool:
    """Tell whether the last head of a partition is one that its siblings may name this one before.

    Args:
        head: what a sibling names.
        checkpoint_head: the partition's last, ``None`` where it has none.
    """
    if checkpoint_head is None or checkpoint_head.tree_size < head.tree_size:
        return False
    return checkpoint_head.tree_size > head.tree_size or checkpoint_head.root == head.root


def _bad_head(source: str) -> InputError:
    return InputError(
        "bad_head", f"{source} is not a head: give a file of `seal verify --write-head`, or PARTITION:SIZE[:ROOT]"
    )


class LogName(NamedTuple):
    topic: str
    partition: int


class Logs(Protocol):
    """Logs of one kind, wherever they are; each can be read several times."""

    def names(self) -> list[LogName]:
        pass

    def records(self, name: LogName) -> Iterator[Record]:
        """Yield the records of a log in order; none for an unknown log."""

    def start(self, name: LogName) -> int:
        """Return the current start offset of a log."""


class SealOutcome(StrEnum):
    HOLDS = "holds"
    PARTLY_SEALED = "partly_sealed"
    BROKEN = "broken"
    NOTHING_VERIFIED = "nothing_verified"


def verify_logs(
    evidence: Logs,
    checkpoints: Logs,
    keys: Keys,
    *,
    partitions: Collection[int] = (),
    expected: Iterable[Expected] = (),
    partition_count: int | None = None,
    claims_before: Mapping[LogName, int] | None = None,
    sealed_offsets: Mapping[int, int] | None = None,
    account: Account | None = None,
) -> list[Report]:
    """Return a report on each log of evidence.

    Args:
        checkpoints: the checkpoints over it: each of their logs is the chain of the partition with its number.
        partition_count: partition count of the evidence topic, ``None`` if unknown.
        claims_before: for chains still being written, the offset before which their claims about other partitions
            count.
        account: of what was erased.
        sealed_offsets: by partition, the sealer's committed offset, before which everything is sealed.
    """
    reports = []
    account = account or Account(Erasures)
    topics: dict[int, set[str]] = {}
    for name in evidence.names():
        topics.setdefault(name.partition, set()).add(name.topic)
    for chain in _chosen(checkpoints, partitions):
        topic = _sealed_topic(checkpoints.records(chain), topics.get(chain.partition, set()), keys)
        report = Report(topic=topic, partition=chain.partition)
        name = LogName(topic, chain.partition)
        values = ((record.origin.offset, record.value) for record in checkpoints.records(chain))
        check(
            report,
            values,
            evidence.records(name),
            keys,
            log_start=evidence.start(name),
            claims_before=None if claims_before is None else claims_before.get(chain),
            refuse=account.refuse,
        )
        reports.append(report)
    covered = {(report.topic, report.partition) for report in reports}
    for name in _chosen(evidence, partitions):
        if name not in covered:
            report = Report(topic=name.topic, partition=name.partition)
            check(report, (), evidence.records(name), keys)
            reports.append(report)
    check_heads(reports, expected, only=partitions, partition_count=partition_count)
    for report in reports:
        check_sealed_offset(report, (sealed_offsets or {}).get(report.partition, 0))
    return sorted(reports, key=lambda report: (report.topic, report.partition))


def outcome_of(reports: Collection[Report], *, bad_lines: int = 0) -> SealOutcome:
    if bad_lines or any(report.faults_count for report in reports):
        return SealOutcome.BROKEN
    if not any(report.verified or report.erased for report in reports):
        return SealOutcome.NOTHING_VERIFIED
    if any(report.unsealed and not report.checkpoints for report in reports):
        return SealOutcome.PARTLY_SEALED
    return SealOutcome.HOLDS


def _chosen(logs: Logs, partitions: Collection[int]) -> list[LogName]:
    return [name for name in logs.names() if not partitions or name.partition in partitions]


def _sealed_topic(chain: Iterable[Record], topics: Collection[str], keys: Keys) -> str:
    """Return the evidence topic of a chain, from its first signed checkpoint; else the only one there is."""
    for record in chain:
        try:
            return decode(record.value, keys).checkpoint.topic
        except InputError:
            continue
    return next(iter(topics)) if len(topics) == 1 else ""
