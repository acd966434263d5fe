"""All logs held against their checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from assay_stream.core.record import Record
from assay_stream.core.seal_check import Fault, Report
from assay_stream.forensics.seal_files import LogName
from assay_stream.forensics.seal_verification import Outcome, outcome_of, verify_logs
from tests.support.seals import KEYS, OTHER_KEY, TOPIC, checkpoint_records, checkpoints_of, some_records

RECORDS = some_records(1, 2, 5)
CHAIN = "assay.evidence.checkpoint"


class MemoryLogs:
    """Logs in memory."""

    def __init__(self, logs: dict[LogName, list[Record]]) -> None:
        self.logs = logs

    def names(self) -> list[LogName]:
        """Which logs there are."""
        return sorted(self.logs)

    def records(self, name: LogName) -> Iterator[Record]:
        """The records of one."""
        return iter(self.logs.get(name, []))

    def start(self, name: LogName) -> int:
        """None was cut."""
        return 0 if name else 1


def verified(evidence: dict[LogName, list[Record]], values: dict[LogName, list[bytes]]) -> list[Report]:
    """The reports."""
    chains = {name: checkpoint_records(raw, topic=name.topic) for name, raw in values.items()}
    return verify_logs(MemoryLogs(evidence), MemoryLogs(chains), KEYS)


def test_each_log_has_one_report() -> None:
    """Sealed, not sealed, and sealed but gone."""
    gone = LogName(CHAIN, 0)
    [missing, unsealed] = verified({LogName(TOPIC, 1): RECORDS}, {gone: checkpoints_of(RECORDS)})
    assert (missing.partition, missing.faults) == (0, [Fault("missing", offset) for offset in (1, 2, 5)])
    assert (unsealed.partition, unsealed.unsealed, unsealed.faults) == (1, 3, [])


def test_a_chain_that_cannot_be_read_is_told_of_the_log_beside_it() -> None:
    """The evidence of the same partition, where there is one topic of it."""
    foreign = checkpoints_of(RECORDS, keys=[OTHER_KEY])
    [report] = verified({LogName(TOPIC, 0): RECORDS}, {LogName(CHAIN, 0): foreign})
    assert (report.topic, report.faults) == (TOPIC, [Fault("checkpoint", 0, "seal_key_unknown")])
    assert report.unsealed == 3


def test_a_damaged_first_checkpoint_does_not_hide_whose_it_is() -> None:
    """The next one that is signed says it; the chain is broken all the same."""
    values = [b"{", *checkpoints_of(RECORDS)]
    [report] = verified({LogName(TOPIC, 0): RECORDS}, {LogName(CHAIN, 0): values})
    assert (report.topic, report.faults) == (TOPIC, [Fault("checkpoint", 0, "not_json")])


@pytest.mark.parametrize(
    ("reports", "bad_lines", "expected"),
    [
        ([], 0, Outcome.NOTHING_VERIFIED),
        ([Report(topic="t", partition=0, expired=3, unsealed=4)], 0, Outcome.NOTHING_VERIFIED),
        ([Report(topic="t", partition=0, verified=1, expired=3)], 0, Outcome.HOLDS),
        ([Report(topic="t", partition=0, verified=1)], 1, Outcome.BROKEN),
        (
            [Report(topic="t", partition=0, verified=1), Report(topic="t", partition=1, faults_count=1)],
            0,
            "broken",
        ),
    ],
)
def test_what_reports_come_to(reports: list[Report], bad_lines: int, expected: str) -> None:
    """One fault anywhere breaks it; nothing verified is not well."""
    assert outcome_of(reports, bad_lines=bad_lines) == expected
