"""Evidence held against its checkpoints: every way of tampering with a small range, or with many logs, is found."""

from __future__ import annotations

from contextlib import closing
from itertools import combinations
from pathlib import Path

import pytest

from assay_stream.files.seal_files import FileLogs
from assay_stream.model.record import Origin, Record, Role
from assay_stream.schemes.tlog import keys_of
from assay_stream.seal.check import (
    FAULTS_TOLD_MAX,
    Expected,
    Fault,
    LogName,
    Report,
    SealOutcome,
    outcome_of,
    verify_logs,
)
from tests.support.counting import counted_calls
from tests.support.seals import (
    KEY,
    KEYS,
    OTHER_KEY,
    TOPIC,
    Fleet,
    MemoryLogs,
    a_record,
    checked,
    checkpoint_records,
    checkpoints_of,
    lines_of,
    some_records,
)

FIRST, SECOND = some_records(2, 3, 5, 6), some_records(8, 9, 10)
RECORDS = FIRST + SECOND
SEALS = checkpoints_of(FIRST, SECOND)


def _at(record: Record, offset: int) -> Record:
    return record._replace(origin=record.origin._replace(offset=offset))


def test_every_altered_byte_is_found_at_its_offset() -> None:
    """One bit of each byte of key, value and header of each record, each position in turn."""
    for index, record in enumerate(RECORDS):
        for name, raw in (("key", record.key), ("value", record.value), ("header", record.headers[0][1])):
            assert raw is not None
            for at in range(len(raw)):
                other = raw[:at] + bytes([raw[at] ^ (1 << at % 8)]) + raw[at + 1 :]
                altered = record._replace(**{"headers": (("h", other),)} if name == "header" else {name: other})
                report = checked(SEALS, [*RECORDS[:index], altered, *RECORDS[index + 1 :]])
                assert report.faults == [Fault("altered", record.origin.offset)]


def test_every_dropped_record_is_found_at_its_offset() -> None:
    for count in (1, 2):
        for dropped in combinations(RECORDS, count):
            report = checked(SEALS, [record for record in RECORDS if record not in dropped])
            assert report.faults == [Fault("missing", record.origin.offset) for record in dropped]


def test_every_inserted_record_is_found_at_its_offset() -> None:
    """Before, between and after sealed ones; in the gaps that transactions leave, and between ranges."""
    for offset in (0, 1, 4, 7):
        records = sorted([*RECORDS, a_record(offset)], key=lambda record: record.origin.offset)
        assert checked(SEALS, records).faults == [Fault("inserted", offset)]


def test_a_second_record_at_an_offset_is_found() -> None:
    assert checked(SEALS, [RECORDS[0], *RECORDS]).faults == [Fault("inserted", 2)]


def test_every_exchange_within_a_range_is_found_at_both_offsets() -> None:
    for one, other in combinations(range(len(FIRST)), 2):
        records = list(RECORDS)
        offsets = FIRST[one].origin.offset, FIRST[other].origin.offset
        records[one], records[other] = _at(FIRST[other], offsets[0]), _at(FIRST[one], offsets[1])
        assert checked(SEALS, records).faults == [Fault("reordered", offset) for offset in offsets]


def test_every_exchange_of_any_two_records_is_found() -> None:
    """Across ranges it can only be said that both were altered."""
    for one, other in combinations(range(len(RECORDS)), 2):
        records = list(RECORDS)
        offsets = RECORDS[one].origin.offset, RECORDS[other].origin.offset
        records[one], records[other] = _at(RECORDS[other], offsets[0]), _at(RECORDS[one], offsets[1])
        assert [fault.offset for fault in checked(SEALS, records).faults] == list(offsets)


def test_every_two_records_out_of_order_are_found() -> None:
    for one, other in combinations(range(len(RECORDS)), 2):
        records = list(RECORDS)
        records[one], records[other] = records[other], records[one]
        report = checked(SEALS, records)
        assert "reordered" in {fault.kind for fault in report.faults}


def test_a_checkpoint_by_another_key_is_a_fault_with_its_code() -> None:
    report = checked(checkpoints_of(FIRST, SECOND, keys=[KEY, OTHER_KEY]), RECORDS)
    assert report.faults == [Fault("checkpoint", 1, "seal_key_unknown")]
    assert (report.checkpoints, report.verified) == (1, 4)


def test_a_rotated_key_holds_where_both_keys_are_given() -> None:
    keys = keys_of([KEY.public_key(), OTHER_KEY.public_key()])
    report = checked(checkpoints_of(FIRST, SECOND, keys=[KEY, OTHER_KEY]), RECORDS, keys=keys)
    assert (report.checkpoints, report.faults) == (2, [])


def test_a_dropped_or_repeated_checkpoint_is_a_fault() -> None:
    assert checked(SEALS[1:], RECORDS).faults == [Fault("checkpoint", 0, "checkpoint_out_of_sequence")]
    assert checked([SEALS[0], *SEALS], RECORDS).faults == [Fault("checkpoint", 1, "checkpoint_out_of_sequence")]


def test_the_checkpoints_of_another_topic_are_a_fault() -> None:
    seals = checkpoints_of(FIRST, topic="other")
    assert checked(seals, FIRST).faults == [Fault("checkpoint", 0, "checkpoint_of_another_log")]


def test_what_retention_deleted_is_told_apart_from_what_is_missing() -> None:
    """Before the start of the log nothing can be said; behind it a gap is a gap."""
    report = checked(SEALS, RECORDS[3:], log_start=6)
    assert (report.expired, report.verified, report.faults) == (3, 4, [])
    assert checked(SEALS, RECORDS[4:], log_start=6).faults == [Fault("missing", 6)]


def test_many_faults_are_counted_and_some_told() -> None:
    many = some_records(*range(FAULTS_TOLD_MAX + 50))
    report = checked(checkpoints_of(many), [])
    assert (len(report.faults), report.faults_count) == (FAULTS_TOLD_MAX, FAULTS_TOLD_MAX + 50)


def test_every_altered_byte_of_a_checkpoint_is_found() -> None:
    for number, value in enumerate(SEALS):
        for at in range(len(value)):
            other = value[:at] + bytes([value[at] ^ (1 << at % 8)]) + value[at + 1 :]
            values = [*SEALS[:number], other, *SEALS[number + 1 :]]
            assert checked(values, RECORDS).faults, (number, at)


def test_every_altered_byte_of_a_header_s_name_and_of_the_time_is_found() -> None:
    for index, record in enumerate(RECORDS):
        renamed = [record._replace(headers=((chr(ord("h") ^ (1 << bit)), b"x"),)) for bit in range(7)]
        dated = [record._replace(timestamp_ms=record.timestamp_ms ^ (1 << bit)) for bit in range(40)]
        bare = [record._replace(headers=()), record._replace(headers=record.headers * 2)]
        for altered in (*renamed, *dated, *bare):
            report = checked(SEALS, [*RECORDS[:index], altered, *RECORDS[index + 1 :]])
            assert report.faults == [Fault("altered", record.origin.offset)]


def test_every_exchanged_or_inserted_checkpoint_is_found() -> None:
    seals = checkpoints_of(FIRST, SECOND, some_records(12), some_records(13, 15))
    records = [*RECORDS, *some_records(12, 13, 15)]
    assert checked(seals, records).faults == []
    for one, other in combinations(range(len(seals)), 2):
        exchanged = list(seals)
        exchanged[one], exchanged[other] = exchanged[other], exchanged[one]
        assert checked(exchanged, records).faults
    foreign = checkpoints_of(FIRST, some_records(8, 9))[1]
    for value in (*seals, foreign):
        for at in range(len(seals) + 1):
            inserted = [*seals[:at], value, *seals[at:]]
            assert checked(inserted, records).faults, at


def test_every_dropped_checkpoint_but_the_last_is_found() -> None:
    """Who drops the last one makes its range unsealed, and that is told."""
    seals = checkpoints_of(FIRST, SECOND, some_records(12))
    records = [*RECORDS, *some_records(12)]
    for dropped in range(len(seals) - 1):
        assert checked([value for number, value in enumerate(seals) if number != dropped], records).faults
    assert checked(seals[:-1], records).unsealed == 1


LOG = some_records(1, 2, 5)
CHAIN = "assay.evidence.checkpoint"


def verified(evidence: dict[LogName, list[Record]], values: dict[LogName, list[bytes]]) -> list[Report]:
    chains = {name: checkpoint_records(raw, topic=name.topic) for name, raw in values.items()}
    return verify_logs(MemoryLogs(evidence), MemoryLogs(chains), KEYS)


def test_each_log_has_one_report() -> None:
    gone = LogName(CHAIN, 0)
    [missing, unsealed] = verified({LogName(TOPIC, 1): LOG}, {gone: checkpoints_of(LOG)})
    assert (missing.partition, missing.faults) == (0, [Fault("missing", offset) for offset in (1, 2, 5)])
    assert (unsealed.partition, unsealed.unsealed, unsealed.faults) == (1, 3, [])


def test_a_chain_that_cannot_be_read_is_told_of_the_log_beside_it() -> None:
    foreign = checkpoints_of(LOG, keys=[OTHER_KEY])
    [report] = verified({LogName(TOPIC, 0): LOG}, {LogName(CHAIN, 0): foreign})
    assert (report.topic, report.faults) == (TOPIC, [Fault("checkpoint", 0, "seal_key_unknown")])
    assert report.unsealed == 3


def test_a_file_of_many_logs_costs_no_more_than_as_many_lines(tmp_path: Path) -> None:
    """Anybody can write a line for each partition there could be: reading the file for each log took hours."""

    def calls(count: int) -> int:
        places = [Origin(TOPIC, number, 0) for number in range(count)]
        (tmp_path / "evidence").write_bytes(lines_of([LOG[0]._replace(origin=place) for place in places]))
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
    values = [b"{", *checkpoints_of(LOG)]
    [report] = verified({LogName(TOPIC, 0): LOG}, {LogName(CHAIN, 0): values})
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
