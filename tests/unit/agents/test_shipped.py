"""The detections that ship."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import orjson
import pytest

from assay_stream.agents import Origin
from assay_stream.agents.shipped import (
    denied_burst_agent,
    first_use_spree_agent,
    open_alert_called_agent,
    silent_observer,
    silent_observer_agent,
    toxic_flow_agent,
    unlisted_server,
    unlisted_server_agent,
)
from assay_stream.agents.shipped.toxic_flow import labels_of, toxic_flow
from assay_stream.alerts.life_cycle import counted
from assay_stream.model.alert import Activity, AlertStatus, alert_record
from assay_stream.model.record import Output, Role
from tests.support.agents import evidence, found, start_us
from tests.support.findings import a_finding

DAY_S = 24 * 3_600


def test_a_burst_of_denied_calls_is_found_once() -> None:
    """Five within a minute, and not again before five more."""
    calls = [evidence(n, n, decision="deny") for n in range(9)]
    [finding] = found(denied_burst_agent, calls)
    assert finding.origin.offset == 4


@pytest.mark.parametrize("order", list(permutations(range(5))))
def test_a_burst_is_found_in_whatever_order_its_calls_are_read(order: tuple[int, ...]) -> None:
    """Calls of one actor go to several servers, and each partition has a pace of its own."""
    [finding] = found(denied_burst_agent, [evidence(n, n * 14, decision="deny") for n in order])
    assert finding.detection is not None
    assert [origin.offset for origin in finding.detection.references] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "calls",
    [
        [evidence(n, n * 15, decision="deny") for n in range(9)],
        [evidence(n, n, decision="allow") for n in range(9)],
        [evidence(n, n, decision="deny", actor={"kind": "agent", "agent_id": f"a{n}"}) for n in range(9)],
    ],
)
def test_slow_allowed_or_scattered_calls_are_no_burst(calls: list[Output]) -> None:
    """At most four within any minute, no denial, or one each."""
    assert found(denied_burst_agent, calls) == []


def test_a_spree_of_first_uses_is_found_after_a_day_of_learning() -> None:
    """The first day's tools are the agent's work; five new ones in ten minutes later are not."""
    learned = [evidence(n, n, tool=f"old-{n}") for n in range(9)]
    spree = [evidence(10 + n, DAY_S + 100 * n, tool=f"new-{n}") for n in range(5)]
    [finding] = found(first_use_spree_agent, [*learned, *spree])
    assert finding.origin.offset == 14
    again = [evidence(20 + n, DAY_S + 500 + n, tool=f"new-{n}") for n in range(5)]
    assert len(found(first_use_spree_agent, [*learned, *spree, *again])) == 1


def alert(
    second: float, activity: Activity = Activity.CREATE, status: AlertStatus = AlertStatus.NEW, **given: Any
) -> Output:
    finding = a_finding(server_id="mail", tool_name="send", time_us=start_us(second))
    state = replace(counted(None, finding, 4), **given)
    return alert_record(
        state, activity=activity, status=status, time_us=start_us(second), suppressed_by=None, version="1"
    )


def test_a_call_under_an_open_high_alert_is_found_once_for_each_alert() -> None:
    """The alert's finding is named; further calls say nothing new."""
    [finding] = found(open_alert_called_agent, [alert(0), evidence(0, 1), evidence(1, 2)])
    assert (finding.tool_name, finding.time_us) == ("send", start_us(1))
    assert finding.detection is not None
    assert finding.detection.references == (Origin("mcp.tools.list", 0, 0),)


@pytest.mark.parametrize(
    "outputs",
    [
        [evidence(0, 0), alert(1)],
        [alert(1), evidence(0, 0)],
        [alert(0, severity_id=3), evidence(0, 1)],
        [alert(0), alert(1, Activity.CLOSE, AlertStatus.RESOLVED, count=2), evidence(0, 902)],
        [alert(0), alert(1, Activity.UPDATE, AlertStatus.SUPPRESSED, count=2), evidence(0, 2)],
        [alert(0), evidence(0, 1, tool="other")],
        [alert(0), evidence(0, 1, decision="deny")],
    ],
)
def test_other_calls_are_not_found(outputs: list[Output]) -> None:
    """Before the alert, whichever is read first, a lesser one, over, suppressed, of another tool, or denied."""
    assert found(open_alert_called_agent, outputs) == []


@pytest.mark.parametrize("act", [{"mcp_acknowledged_by": "ann"}, {"mcp_resolved_by": "closed"}])
def test_a_person_who_has_looked_at_the_alert_is_enough(act: dict[str, str]) -> None:
    """Acknowledged, or closed by hand, at once."""
    reviewed = orjson.loads(alert(1, Activity.UPDATE, AlertStatus.IN_PROGRESS, count=2).value or b"")
    reviewed["unmapped"] |= act
    outputs = [alert(0), alert(1)._replace(value=orjson.dumps(reviewed)), evidence(0, 2)]
    assert found(open_alert_called_agent, outputs) == []


def test_alerts_that_are_read_long_before_the_calls_count_for_their_time() -> None:
    """In a backlog all of them come first: open for ten seconds, suppressed since, and open again the next day."""
    suppressed = alert(10, Activity.UPDATE, AlertStatus.SUPPRESSED, count=2)
    alerts = [alert(0), suppressed, alert(DAY_S, count=3)]
    calls = [evidence(n, second) for n, second in enumerate((5, 50, 2 * DAY_S))]
    assert [finding.time_us for finding in found(open_alert_called_agent, [*alerts, *calls])] == [
        start_us(5),
        start_us(2 * DAY_S),
    ]


def test_an_alert_that_comes_back_is_found_again() -> None:
    """It was closed, so somebody may have looked; it is new."""
    closed, again = alert(2, Activity.CLOSE, AlertStatus.RESOLVED), alert(2_000, count=2)
    assert len(found(open_alert_called_agent, [alert(0), evidence(0, 1), closed, again, evidence(1, 2_001)])) == 2


@pytest.mark.parametrize("closed_first", [True, False])
def test_an_end_that_is_written_late_decides_nothing_before_it_is_written(closed_first: bool) -> None:
    """Ten minutes after the end a worker writes it; a replay may know it earlier."""
    outputs = [evidence(0, 300), alert(1, Activity.CLOSE, AlertStatus.RESOLVED, count=2)]
    assert len(found(open_alert_called_agent, [alert(0), *(outputs[::-1] if closed_first else outputs)])) == 1


def definition(digest: str, name: str, **annotations: bool) -> Output:
    value = {"full_digest": digest, "definition": {"name": name, "annotations": annotations}}
    return Output(Role.DEFINITIONS, digest.encode(), orjson.dumps(value))


DEFINITIONS = [
    definition("sha256:1", "fetch_page"),
    definition("sha256:2", "read_file"),
    definition("sha256:3", "send"),
]


def step(offset: int, digest: int, trace_id: str = "t1", **data: Any) -> Output:
    binding = {"scope": "exact", "full_digest": f"sha256:{digest}"}
    return evidence(offset, offset, tool=f"tool-{digest}", binding=binding, trace_id=trace_id, **data)


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 1, 3)])
def test_a_toxic_flow_is_found_where_it_leaves(order: tuple[int, ...]) -> None:
    """Whichever came first, the content or the data: the model remembers both."""
    calls = [step(offset, digest) for offset, digest in enumerate(order)]
    [finding] = found(toxic_flow_agent, [*DEFINITIONS, *calls])
    assert (finding.tool_name, finding.origin.offset) == ("tool-3", 2)
    assert finding.detection is not None
    assert sorted(origin.offset for origin in finding.detection.references) == [0, 1]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_toxic_flow_is_found_in_whatever_order_its_calls_are_read(order: tuple[int, ...]) -> None:
    """It is one alert, about the tool that sent; whoever sends first is harmless."""
    calls = [step(0, 1), step(1, 2), step(2, 3, server_id="outside")]
    [finding] = found(toxic_flow_agent, [*DEFINITIONS, *(calls[n] for n in order)])
    assert (finding.server_id, finding.tool_name) == ("outside", "tool-3")
    assert finding.detection is not None
    assert [origin.offset for origin in finding.detection.references] == [0, 1]
    harmless = [step(0, 1), step(1, 3), step(2, 2)]
    assert found(toxic_flow_agent, [*DEFINITIONS, *(harmless[n] for n in order)]) == []


@pytest.mark.parametrize(
    "calls",
    [
        [step(0, 1), step(1, 3), step(2, 2)],
        [step(0, 1), step(1, 2), step(2, 3, trace_id="t2")],
        [step(0, 1), step(1, 2, decision="deny"), step(2, 3)],
        [step(0, 1), step(1, 2)],
    ],
)
def test_parts_of_a_toxic_flow_are_harmless(calls: list[Output]) -> None:
    """Sent before the data was read, in another trace, denied, or not at all."""
    assert found(toxic_flow_agent, [*DEFINITIONS, *calls]) == []


def test_labels_of_the_operator_take_the_place_of_guesses() -> None:
    """A server of one's own that looks dangerous, and one that does not."""
    calls = [step(0, 1), step(1, 2), step(2, 3)]
    assert found(toxic_flow({"mail/tool-1": []}), [*DEFINITIONS, *calls]) == []
    given = {"mail/tool-1": ["untrusted"], "mail/tool-2": ["private"], "mail/*": ["sends"]}
    assert len(found(toxic_flow(given), calls)) == 1


@pytest.mark.parametrize(
    ("name", "annotations", "labels"),
    [
        ("fetchPage", {}, ["untrusted"]),
        ("read_file", {}, ["private"]),
        ("send_email", {}, ["sends"]),
        ("get_time", {}, []),
        ("lookup", {"readOnlyHint": True, "openWorldHint": True}, ["untrusted"]),
        ("share_link", {"readOnlyHint": True}, []),
        ("search", {"openWorldHint": False}, []),
    ],
)
def test_a_definition_suggests_what_a_tool_can_do(name: str, annotations: dict[str, bool], labels: list[str]) -> None:
    """By words in its name, and by hints."""
    assert labels_of({"name": name, "annotations": annotations}) == labels


def unlisted(offset: int, second: float, **data: Any) -> Output:
    return evidence(offset, second, unbound_reason="definition_not_observed", **data)


def test_a_server_is_found_while_calls_go_on_without_a_list() -> None:
    """After ten minutes, and again twice a day, so that its alert stays open."""
    calls = [unlisted(n, n * 300) for n in range(400)]
    assert [finding.time_us for finding in found(unlisted_server_agent, calls)] == [
        start_us(second) for second in (600, 600 + 12 * 3_600, 600 + 24 * 3_600)
    ]


@pytest.mark.parametrize(
    "calls",
    [
        [unlisted(n, n) for n in range(500)],
        [unlisted(0, 0), *(evidence(n, n * 600) for n in range(1, 9))],
        [evidence(n, n * 600, unbound_reason="tool_not_listed") for n in range(9)],
        [unlisted(0, 0), unlisted(1, 13 * 3_600)],
    ],
)
def test_a_server_that_is_listed_in_time_is_not_found(calls: list[Output]) -> None:
    """Soon, after its first call, with another tool than the one called, or but for one call a day."""
    assert found(unlisted_server_agent, calls) == []


def test_made_up_servers_lead_to_few_findings_that_say_so() -> None:
    """100,000 names cost no more state and no more alerts than a few hundred, and are not passed over in silence."""
    calls = [unlisted(n, n * 0.01, server_id=f"server-{n}") for n in range(100_000)]
    again = [unlisted(100_000 + n, 2_000 + n * 0.01, server_id=f"server-{n}") for n in range(2_000)]
    findings = found(unlisted_server_agent, [*calls, *again])
    about = {finding.server_id for finding in findings}
    assert len(about) == len(findings) - unlisted_server.GROUPS + 1
    assert unlisted_server.GROUPS < len(findings) <= unlisted_server.GROUPS * (unlisted_server.SERVERS_MAX + 1)
    assert "*" in about


def in_order(calls: list[Output]) -> list[Output]:
    return sorted(calls, key=lambda call: orjson.loads(call.value or b"")["time"])


def days(observer_id: str, *, first: int, last: int, every_h: int = 6) -> list[Output]:
    seconds = range(first * DAY_S, last * DAY_S, every_h * 3_600)
    return [evidence(second, second, observer_id=observer_id) for second in seconds]


def test_an_observer_that_falls_silent_is_found_while_others_go_on() -> None:
    """Two days after its last call, and again twice a day, so that its alert stays open; one alert."""
    calls = days("gone", first=0, last=10) + days("here", first=0, last=13)
    findings = found(silent_observer_agent, in_order(calls))
    assert [finding.detection and finding.detection.key for finding in findings] == [("gone",)] * 3
    assert findings[0].time_us == start_us(10 * DAY_S - 6 * 3_600 + silent_observer.SILENT_S)
    assert len({finding.uid() for finding in findings}) == 1


@pytest.mark.parametrize(
    "calls",
    [
        days("gone", first=0, last=7) + days("here", first=0, last=12),
        days("gone", first=0, last=10) + days("here", first=0, last=10),
        days("gone", first=0, last=3) + days("gone", first=6, last=11) + days("here", first=0, last=19),
        days("gone", first=0, last=10) + days("gone", first=11, last=13) + days("here", first=0, last=14),
        days("gone", first=0, last=10) + days("here", first=50, last=51),
    ],
)
def test_an_observer_that_rests_is_not_silent(calls: list[Output]) -> None:
    """Known for a week only, silent with all others, no longer than on a weekend, back in time, or retired."""
    assert found(silent_observer_agent, in_order(calls)) == []


def test_a_clock_that_is_a_day_ahead_makes_nobody_silent() -> None:
    """Times further ahead than that are refused."""
    calls = days("steady", first=0, last=12, every_h=1)
    ahead = [evidence(10**7 + n, 11 * DAY_S + n * 3_600 + DAY_S, observer_id="ahead") for n in range(24)]
    assert found(silent_observer_agent, in_order(calls + ahead)) == []


def test_made_up_observers_do_not_hide_one_that_falls_silent() -> None:
    """An observer for each call: those known for long stay, the others push each other out."""
    flood = [evidence(10**8 + n, n * 120, observer_id="x" * 900 + str(n)) for n in range(10_000)]
    calls = days("gone", first=0, last=10) + days("here", first=0, last=13) + flood
    findings = found(silent_observer_agent, in_order(calls))
    assert {finding.detection and finding.detection.key for finding in findings} == {("gone",)}


def test_more_observers_than_are_remembered_is_said() -> None:
    """Where all of them are known for long, a further one cannot be watched."""
    crowd = [call for n in range(silent_observer.OBSERVERS_MAX) for call in days(f"o{n}", first=0, last=10, every_h=24)]
    findings = found(silent_observer_agent, in_order([*crowd, *days("late", first=9, last=10)]))
    assert {finding.detection and finding.detection.key for finding in findings} == {
        ("more observers than are remembered",)
    }
