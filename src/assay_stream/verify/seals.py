"""Every log of a deployment verified against its checkpoints, and the outcome for all of them together."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from assay_stream.bindings.erasures import Account, Erasures
from assay_stream.errors import InputError
from assay_stream.files.seal_files import LogName, Logs
from assay_stream.model.record import Record
from assay_stream.schemes import tlog
from assay_stream.seal.check import Expected, Report, check, check_heads, check_sealed_offset
from assay_stream.seal.checkpoint import decode


class SealOutcome(StrEnum):
    HOLDS = "holds"
    PARTLY_SEALED = "partly_sealed"
    BROKEN = "broken"
    NOTHING_VERIFIED = "nothing_verified"


def verify_logs(
    evidence: Logs,
    checkpoints: Logs,
    keys: tlog.Keys,
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


def _sealed_topic(chain: Iterable[Record], topics: Collection[str], keys: tlog.Keys) -> str:
    """Return the evidence topic of a chain, from its first signed checkpoint; else the only one there is."""
    for record in chain:
        try:
            return decode(record.value, keys).checkpoint.topic
        except InputError:
            continue
    return next(iter(topics)) if len(topics) == 1 else ""
