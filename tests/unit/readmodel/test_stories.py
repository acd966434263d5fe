"""What a store knows of one alert."""

from __future__ import annotations

import orjson
import pytest

from assay_stream.alerts.story import CallSummary
from assay_stream.alerts.view import AlertSelection
from assay_stream.errors import InputError
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel.queries import Store, calls_of, life_of, load, story
from assay_stream.readmodel.rows import AlertFilter
from tests.support.alerts import alert_of
from tests.support.errors import raises_code
from tests.support.readmodel import history
from tests.support.stories import NEW, OLD, changed_alert, changed_finding, digest_of, evidence

UID = changed_finding().uid()
START_MS = 1_772_323_200_000


def a_store(*values: tuple[Role, bytes, bytes]) -> Store:
    return load(Record(role, Origin(role.value, 0, n), key, value) for n, (role, key, value) in enumerate(values))


def alerts(*given: dict[str, object]) -> list[tuple[Role, bytes, bytes]]:
    return [(Role.ALERTS, b"", orjson.dumps(alert)) for alert in given]


def calls(*values: bytes) -> list[tuple[Role, bytes, bytes]]:
    return [(Role.EVIDENCE, b"server", value) for value in values]


def test_a_life_has_every_record_that_the_store_has() -> None:
    """In the order of the log: the first ones apart, and as many as were counted."""
    store = load(history())
    for row in store.alerts(AlertFilter(state=None)).rows:
        alert = store.alert(row.uid)
        life = life_of(alert)
        assert len(life.first) + len(life.latest) == len(alert.records)
        assert life.count == alert.count
        assert life.last.uid == row.uid


def test_a_story_has_definitions_findings_and_other_alerts_about_the_same() -> None:
    other = alert_of("another", after=digest_of(NEW))
    elsewhere = alert_of("else", server_id="else", after=digest_of(NEW))
    known = [
        (Role.DEFINITIONS, digest_of(each).encode(), orjson.dumps({"definition": each, "full_digest": digest_of(each)}))
        for each in (OLD, NEW)
    ]
    found = (Role.FINDINGS, b"server", changed_finding().encode())
    store = a_store(*alerts(changed_alert(), other, elsewhere), *known, found)
    told = story(store, store.alert(UID))
    assert (told.has_before, told.has_after) == (True, True)
    assert told.sightings is not None
    assert {name: seen.count for name, seen in told.sightings.by_observer.items()} == {"proxy-1": 1}
    assert told.see_also == (other["finding_info"]["uid"][:12],)
    assert story(store, store.alert(UID), is_short=True).sightings is None


def test_who_saw_it_is_not_known_where_no_finding_is() -> None:
    store = a_store(*alerts(changed_alert()))
    told = story(store, store.alert(UID))
    assert (told.sightings, told.calls, told.diff, told.see_also) == (None, None, None, ())


def test_all_calls_count_where_the_digest_is_of_several_definitions() -> None:
    alert = changed_alert(kind=Kind.DEFINITION_AMBIGUOUS, before=None)
    values = (evidence(1, tool="read_note", full_digest=None), evidence(2, tool="read_note"))
    store = a_store(*alerts(alert), *calls(*values))
    found = calls_of(store, store.alert(alert["finding_info"]["uid"]), since_ms=0)
    assert found is not None
    assert (found.full_digest, found.used, found.other, found.unbound) == (None, 2, 0, 0)


def test_calls_are_told_apart_by_their_definition() -> None:
    """This one, another one, none; other tools, other servers and earlier calls do not count."""
    mine = digest_of(NEW)
    values = (
        evidence(1, tool="read_note", full_digest=mine),
        evidence(2, tool="read_note", full_digest="sha256:" + "a" * 64),
        evidence(3, tool="read_note", full_digest=None),
        evidence(4, tool="else", full_digest=mine),
        evidence(5, tool="read_note", server_id="else", full_digest=mine),
        evidence(0, tool="read_note", full_digest=mine),
    )
    store = a_store(*alerts(changed_alert()), *calls(*values))
    found = calls_of(store, store.alert(UID))
    assert found is not None
    assert (found.used, found.other, found.unbound) == (1, 1, 1)
    assert found.latest == (CallSummary(START_MS + 1_000, "evidence-0", "call-0", "proxy-1", "allow"),)


def test_without_a_definition_every_call_counts() -> None:
    store = a_store(*alerts(changed_alert(after=None)), *calls(evidence(1, tool="read_note", full_digest=None)))
    [row] = store.alerts(AlertFilter(state=None, selection=AlertSelection())).rows
    found = calls_of(store, store.alert(row.uid))
    assert found is not None
    assert (found.used, found.unbound) == (1, 0)


def test_the_latest_calls_are_named() -> None:
    seconds = [*range(50, 100), *range(1, 50)]
    values = [evidence(s, tool="read_note", full_digest=digest_of(NEW), number=s) for s in seconds]
    store = a_store(*alerts(changed_alert()), *calls(*values))
    found = calls_of(store, store.alert(UID))
    assert found is not None
    assert found.used == 99
    assert [call.evidence_id for call in found.latest] == [f"evidence-{n}" for n in range(99, 79, -1)]


def test_an_unknown_beginning_names_the_latest() -> None:
    with raises_code("unknown_uid", match=f"unknown_uid.*starts with ffffff; the latest are {UID[:12]} "):
        a_store(*alerts(changed_alert())).alert("ffffff")
    with pytest.raises(InputError, match="there is no alert at all"):
        a_store().alert("abcdef")
