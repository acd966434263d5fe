"""Every log of a deployment held against its checkpoints, and what is to be said of all of them together."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from assay_stream.core.checkpoint import decode
from assay_stream.core.errors import InputError
from assay_stream.core.seal_check import Report, check
from assay_stream.forensics.seal_files import LogName, Logs
from assay_stream.schemes import dsse


class Outcome(StrEnum):
    """What a verification comes to."""

    HOLDS = "holds"
    BROKEN = "broken"
    NOTHING_VERIFIED = "nothing_verified"


def verify_logs(
    evidence: Logs, checkpoints: Logs, keys: dsse.Keys, *, partitions: Collection[int] = ()
) -> list[Report]:
    """Return what is found in each log of evidence.

    Args:
        evidence: the evidence.
        checkpoints: the checkpoints over it: each log of them is the chain of the partition of its number.
        keys: whose signatures count.
        partitions: only these; all where there are none.
    """
    reports = []
    for chain in _chosen(checkpoints, partitions):
        topic = _sealed_topic(checkpoints, chain, evidence, keys)
        report = Report(topic=topic, partition=chain.partition)
        name = LogName(topic, chain.partition)
        values = ((record.origin.offset, record.value) for record in checkpoints.records(chain))
        check(report, values, evidence.records(name), keys, log_start=evidence.start(name))
        reports.append(report)
    covered = {(report.topic, report.partition) for report in reports}
    for name in _chosen(evidence, partitions):
        if name not in covered:
            report = Report(topic=name.topic, partition=name.partition)
            check(report, (), evidence.records(name), keys)
            reports.append(report)
    return sorted(reports, key=lambda report: (report.topic, report.partition))


def outcome_of(reports: Collection[Report], *, bad_lines: int = 0) -> Outcome:
    """Return what some reports come to.

    Args:
        reports: one for each log.
        bad_lines: lines that could not be read.
    """
    if bad_lines or any(report.faults_count for report in reports):
        return Outcome.BROKEN
    if not any(report.verified for report in reports):
        return Outcome.NOTHING_VERIFIED
    return Outcome.HOLDS


def _chosen(logs: Logs, partitions: Collection[int]) -> list[LogName]:
    return [name for name in logs.names() if not partitions or name.partition in partitions]


def _sealed_topic(checkpoints: Logs, chain: LogName, evidence: Logs, keys: dsse.Keys) -> str:
    """Return the evidence topic that a chain is about: the first checkpoint that is signed says so."""
    for record in checkpoints.records(chain):
        try:
            return decode(record.value, keys).checkpoint.topic
        except InputError:
            continue
    topics = {name.topic for name in evidence.names() if name.partition == chain.partition}
    return topics.pop() if len(topics) == 1 else ""
