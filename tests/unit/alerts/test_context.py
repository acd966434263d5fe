"""What the finding topic and the evidence say around one alert."""

from __future__ import annotations

from typing import Any

import orjson

from assay_stream.alerts.story import End, Sighting, Sightings
from assay_stream.model.alert_state import UNNAMED_OBSERVER
from assay_stream.model.finding import uid_of
from assay_stream.model.finding_topic import Suppression, Tick
from assay_stream.model.kinds import Kind
from tests.support.findings import a_claim, a_finding, a_rule, an_end, at


def sightings() -> Sightings:
    finding = a_finding()
    return Sightings(finding.uid(), finding.server_id, finding.tool_name)


def test_each_observer_is_counted_by_itself() -> None:
    seen = sightings()
    for entry in (
        a_finding(1, 10),
        a_finding(2, 5),
        a_finding(3, 7, observer_id="bob"),
        a_finding(4, 8, tool_name="else"),
        a_finding(5, 9, after="sha256:" + "c" * 64),
        a_finding(6, 9, server_id="else"),
        Tick(time_us=at(11)),
    ):
        seen.add(entry)
    assert seen.by_observer == {"alice": Sighting(2, at(5), at(10)), "bob": Sighting(1, at(7), at(7))}
    assert seen.last == a_finding(3, 7, observer_id="bob")


def test_observers_are_bounded() -> None:
    seen = sightings()
    for number in range(1_100):
        seen.add(a_finding(number, observer_id=f"proxy-{number}"))
    assert len(seen.by_observer) == 1_001
    assert seen.by_observer[""].count == 100


def test_what_put_an_end_to_it_is_kept() -> None:
    seen = sightings()
    seen.add(an_end(1, 20))
    seen.add(an_end(2, 21, uids=("f" * 64,)))
    assert list(seen.ends) == [End(at(20), "no_longer_offered", "alice")]


def test_of_a_shadowed_tool_the_newcomers_claims_are_told() -> None:
    came = a_claim("b", "read-file", 1)
    seen = Sightings(uid_of(Kind.TOOL_SHADOWED, "b", "read-file", came.full, "confusable_name"), "b", "read-file")
    for claim in (
        a_claim("a", "read-file", 0),
        came,
        a_claim("b", "read-file", 2, definition="other"),
        a_claim("b", "read-file", 3, approved=True),
        a_claim("b", "read-file", 4, is_offered=False),
    ):
        seen.add(claim)
    assert seen.by_observer == {UNNAMED_OBSERVER: Sighting(1, at(1), at(1))}
    assert list(seen.ends) == [End(at(3), "decided", None), End(at(4), "no_longer_offered", None)]


def test_rules_in_force_are_known() -> None:
    """Those of the server before those for every server; one that was taken back is gone."""
    seen = sightings()
    own, everywhere = a_rule(), a_rule(server_id="*", reason="all")
    for rule in (everywhere, own, a_rule(server_id="else", id="rule-2")):
        seen.add(Suppression(rule=rule, is_set=True, time_us=at(0)))
    assert seen.rule("rule-1") == own
    assert seen.rule("rule-2") is None
    seen.add(Suppression(rule=own, is_set=False, time_us=at(1)))
    assert seen.rule("rule-1") == everywhere


B = "sha256:" + "b" * 64


def evidence(second: int = 1, *, full_digest: str | None = B, number: int = 0, **data: Any) -> bytes:
    binding = {"scope": "none"} if full_digest is None else {"scope": "exact", "full_digest": full_digest}
    return orjson.dumps(
        {
            "type": "assay.tool.decision",
            "assaycontenthash": "sha256:" + "e" * 64,
            "id": f"evidence-{number}",
            "time": f"2026-03-01T00:{second // 60:02}:{second % 60:02}.000000Z",
            "data": {
                "server_id": "server",
                "tool": "tool",
                "tool_call_id": f"call-{number}",
                "observer_id": "proxy-1",
                "decision": "allow",
                "binding": binding,
                "pin": {"status": "unpinned"},
            }
            | data,
        }
    )
