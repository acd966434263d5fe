"""Compare the ends of all partitions with each other, and with what was known of them before.

1. A head that a checkpoint of another partition names must be in the chain of its own: the same root at that size.
2. So must a head that is expected: one that was noted somewhere safe.
3. A chain that does not reach a head was cut, or an old copy was put in its place. A partition without any chain
   lost it.
4. How many partitions there are may grow, and never shrink.

The end of a broken chain is unknown: its head is not checked, since the break is reported already.
"""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError
from assay_stream.model.checkpoint import Head
from assay_stream.seal.check import Fault, Report

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
        InputError: ``bad_head``; as ``decode_json``.
    """
    content = decode_json(raw)
    if not isinstance(content, dict) or content.get("schema") != HEADS_SCHEMA:
        raise _bad_head(source)
    try:
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
        raise _bad_head(text)
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
