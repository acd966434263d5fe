"""All logs held against their checkpoints."""

from contextlib import closing
from pathlib import Path

import pytest

from assay_stream.files.seal_files import FileLogs, LogName
from assay_stream.model.record import Origin, Record, Role
from assay_stream.seal.check import Expected, Fault, Report
from assay_stream.verify.seals import SealOutcome, outcome_of, verify_logs
from tests.support.counting import counted_calls
from tests.support.seals import (
    KEYS,
    OTHER_KEY,
    TOPIC,
    Fleet,
    MemoryLogs,
    checkpoint_records,
    checkpoints_of,
    lines_of,
    some_records,
)

RECORDS = some_records(1, 2, 5)
CHAIN = "assay.evidence.checkpoint"


def verified(evidence: dict[LogName, list[Record]], values: dict[LogName, list[bytes]]) -> list[Report]:
    chains = {name: checkpoint_records(raw, topic=name.topic) for name, raw in values.items()}
    return verify_logs(MemoryLogs(evidence), MemoryLogs(chains), KEYS)


def test_each_log_has_one_report() -> None:
    gone = LogName(CHAIN, 0)
    [missing, unsealed] = verified({LogName(TOPIC, 1): RECORDS}, {gone: checkpoints_of(RECORDS)})
    assert (missing.partition, missing.faults) == (0, [Fault("missing", offset) for offset in (1, 2, 5)])
    assert (unsealed.partition, unsealed.unsealed, unsealed.faults) == (1, 3, [])


def test_a_chain_that_cannot_be_read_is_told_of_the_log_beside_it() -> None:
    foreign = checkpoints_of(RECORDS, keys=[OTHER_KEY])
    [report] = verified({LogName(TOPIC, 0): RECORDS}, {LogName(CHAIN, 0): foreign})
    assert (report.topic, report.faults) == (TOPIC, [Fault("checkpoint", 0, "seal_key_unknown")])
    assert report.unsealed == 3


def test_a_file_of_many_logs_costs_no_more_than_as_many_lines(tmp_path: Path) -> None:
    """Anybody can write a line for each partition there could be: reading the file for each log took hours."""

    def calls(count: int) -> int:
        places = [Origin(TOPIC, number, 0) for number in range(count)]
        (tmp_path / "evidence").write_bytes(lines_of([RECORDS[0]._replace(origin=place) for place in places]))
        chains = [checkpoint_records([b"{"], partition=number)[0] for number in range(count)]
        (tmp_path / "checkpoints").write_bytes(lines_of(chains))

        def verify() -> None:
            with (
                closing(FileLogs([tmp_path / "evidence"], Role.EVIDENCE)) as evidence,
                closing(FileLogs([tmp_path / "checkpoints"], Role.CHECKPOINTS)) as checkpoints,
            ):
                reports = verify_logs(evidence, checkpoints, KEYS)
            assert [len(report.faults) for report in reports] == [1] * count

        return counted_calls(verify)

    assert calls(400) < 3 * calls(200)


def test_a_damaged_first_checkpoint_does_not_hide_whose_it_is() -> None:
    """The next one that is signed says it; the chain is broken all the same."""
    values = [b"{", *checkpoints_of(RECORDS)]
    [report] = verified({LogName(TOPIC, 0): RECORDS}, {LogName(CHAIN, 0): values})
    assert (report.topic, report.faults) == (TOPIC, [Fault("checkpoint", 0, "not_json")])


@pytest.mark.parametrize(
    ("reports", "bad_lines", "expected"),
    [
        ([], 0, SealOutcome.NOTHING_VERIFIED),
        ([Report(topic="t", partition=0, expired=3, unsealed=4)], 0, SealOutcome.NOTHING_VERIFIED),
        ([Report(topic="t", partition=0, verified=1, expired=3)], 0, SealOutcome.HOLDS),
        (
            [Report(topic="t", partition=0, verified=1), Report(topic="t", partition=1, unsealed=2)],
            0,
            SealOutcome.PARTLY_SEALED,
        ),
        ([Report(topic="t", partition=0, verified=1)], 1, SealOutcome.BROKEN),
        ([Report(topic="t", partition=0, verified=1), Report(topic="t", partition=1, faults_count=1)], 0, "broken"),
    ],
)
def test_what_reports_come_to(reports: list[Report], bad_lines: int, expected: str) -> None:
    assert outcome_of(reports, bad_lines=bad_lines) == expected


def sealed_fleet() -> Fleet:
    fleet = Fleet(2)
    for partition in (0, 1, 0, 1):
        fleet.grow(partition, 2)
        fleet.seal(partition)
    return fleet


def codes(reports: list[Report]) -> list[tuple[int, str]]:
    return [(report.partition, fault.code) for report in reports for fault in report.faults]


def test_a_topic_with_fewer_partitions_than_checkpoints_know_of_is_found() -> None:
    """Where it is known how many there are: files do not say it."""
    evidence, chains = map(MemoryLogs, sealed_fleet().logs())
    assert codes(verify_logs(evidence, chains, KEYS, partition_count=2)) == []
    found = verify_logs(evidence, chains, KEYS, partition_count=1)
    assert codes(found) == [(0, "partitions_missing"), (1, "partitions_missing")]


def test_a_chain_that_ends_before_the_sealer_s_offset_was_cut() -> None:
    fleet = sealed_fleet()
    fleet.cut(1, checkpoints=1)
    evidence, chains = map(MemoryLogs, fleet.logs())
    assert codes(verify_logs(evidence, chains, KEYS, sealed_offsets={0: 4, 1: 2})) == []
    found = verify_logs(evidence, chains, KEYS, sealed_offsets={0: 4, 1: 4})
    assert codes(found) == [(1, "sealed_offset_ahead")]


def test_claims_of_chains_that_are_being_written_count_up_to_a_place() -> None:
    """What is written while ends are noted may know of more than was read."""
    fleet = sealed_fleet()
    del fleet.chains[0][1:]
    evidence, chains = map(MemoryLogs, fleet.logs())
    assert codes(verify_logs(evidence, chains, KEYS)) == [(0, "tail_cut")]
    settled = {LogName(CHAIN, 0): 1, LogName(CHAIN, 1): 1}
    assert codes(verify_logs(evidence, chains, KEYS, claims_before=settled)) == []


def test_of_partitions_that_were_not_asked_for_nothing_is_said() -> None:
    fleet = sealed_fleet()
    del fleet.chains[0][1:]
    evidence, chains = map(MemoryLogs, fleet.logs())
    expected = [Expected(0, 4), Expected(1, 4)]
    assert codes(verify_logs(evidence, chains, KEYS, partitions=[1], expected=expected)) == []
    assert codes(verify_logs(evidence, chains, KEYS, partitions=[0], expected=expected)) == [(0, "tail_cut")]


def test_a_broken_chain_is_one_fault() -> None:
    fleet = sealed_fleet()
    evidence, chains = fleet.logs()
    chains[LogName(CHAIN, 0)][0] = chains[LogName(CHAIN, 0)][0]._replace(value=b"{")
    found = verify_logs(MemoryLogs(evidence), MemoryLogs(chains), KEYS, expected=[Expected(0, 4)])
    assert codes(found) == [(0, "not_json")]
