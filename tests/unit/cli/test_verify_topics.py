"""Evidence in Kafka held against the logs in Kafka, over topics in memory."""

import orjson
import pytest

from assay_stream.canonical.digest import canonicalize
from assay_stream.cli.verify import judging_topics
from assay_stream.config import load_settings
from assay_stream.kafka import ranges
from assay_stream.model.record import Record, Role
from assay_stream.verify.evidence import EvidenceSelection
from assay_stream.verify.verification import Coverage, Expect, Judgement, RecordStatus
from tests.support.events import TEN_O_CLOCK_MS, TOOL, Story
from tests.support.log_ranges import LogsInMemory, stand_in, topics_of

SETTINGS = load_settings()


def a_run() -> list[Record]:
    return topics_of(Story().lists(TOOL).calls().calls().calls(), SETTINGS)


def judged(
    monkeypatch: pytest.MonkeyPatch, logs: LogsInMemory, selection: EvidenceSelection | None = None
) -> list[Judgement]:
    stand_in(monkeypatch, ranges, logs)
    with judging_topics(SETTINGS, selection or EvidenceSelection(), Coverage(Expect.NONE)) as (_, found):
        return list(found)


def test_all_that_was_written_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record once, and only the topics that it takes are opened."""
    logs = LogsInMemory(a_run())
    judgements = judged(monkeypatch, logs)
    assert [judgement.status for judgement in judgements] == [RecordStatus.HOLDS] * 3
    assert logs.opened == [(Role.SNAPSHOTS, Role.CONTROL, Role.CALLS, Role.EVIDENCE)]


def test_a_selection_narrows_what_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """By partition, by offsets of the calls, and by time."""
    logs = LogsInMemory(a_run())
    for selection, count in (
        (EvidenceSelection(partition=1), 0),
        (EvidenceSelection(partition=0), 3),
        (EvidenceSelection(from_offset=1, to_offset=2), 1),
        (EvidenceSelection(since_us=(TEN_O_CLOCK_MS + 2_000) * 1_000), 2),
    ):
        judgements = judged(monkeypatch, logs, selection)
        assert [judgement.status for judgement in judgements] == [RecordStatus.HOLDS] * count


def test_what_was_altered_repeated_or_is_of_no_call_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    records = a_run()
    evidence = [record for record in records if record.role is Role.EVIDENCE]
    content = orjson.loads(evidence[0].value or b"")
    content["data"]["decision"] = "deny"
    elsewhere = orjson.loads(evidence[1].value or b"")
    elsewhere["data"]["origin"]["partition"] = 7
    others = [
        evidence[0]._replace(value=canonicalize(content)),
        evidence[1]._replace(value=canonicalize(elsewhere)),
        evidence[2],
        evidence[2]._replace(origin=evidence[2].origin._replace(offset=3)),
    ]
    inputs = [record for record in records if record.role is not Role.EVIDENCE]
    judgements = judged(monkeypatch, LogsInMemory([*inputs, *others]))
    statuses = sorted(judgement.status.value for judgement in judgements)
    assert statuses == ["holds", "wrong", "wrong", "wrong"]


def test_what_retention_deleted_is_gone_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that begins behind the snapshot that evidence rests on."""
    records = a_run()
    snapshot = next(record for record in records if record.role is Role.SNAPSHOTS)
    later = Story().lists(TOOL).records[0]
    later = later._replace(origin=snapshot.origin._replace(offset=1), key=b"another")
    logs = LogsInMemory([*records, later], {snapshot.origin[:2]: 1})
    judgements = judged(monkeypatch, logs)
    assert {judgement.status for judgement in judgements} == {RecordStatus.GONE}
    assert {origin for judgement in judgements for origin in judgement.missing} == {snapshot.origin}
