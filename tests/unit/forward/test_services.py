"""Splunk HEC, Slack, Teams and PagerDuty: what each takes, and what its answers say about an alert."""

from __future__ import annotations

import asyncio

import pytest

from assay_stream.alerts.formats import view_of
from assay_stream.alerts.formats.jsonl import to_hec
from assay_stream.forward import splunk_hec
from assay_stream.forward.pagerduty import PagerDuty as PagerDutyReceiver, to_pagerduty
from assay_stream.forward.posting import HttpAnswer, MessageService
from assay_stream.forward.receivers import DELIVERED, AttemptResult, DeliveryOutcome, Entry
from assay_stream.forward.slack import Slack as SlackReceiver, to_slack
from assay_stream.forward.splunk_hec import SplunkHec
from assay_stream.forward.teams import Teams as TeamsReceiver, to_teams
from assay_stream.limits import ForwardLimits
from assay_stream.plugins import Receiver
from tests.support.alerts import alert_of
from tests.support.deployment import free_port
from tests.support.services import Answer, PagerDuty, Service, Slack, Splunk, Teams

ALERT = alert_of()
VIEW = view_of(ALERT)


def hec(server: Service, token: str = Splunk.token) -> SplunkHec:
    return collector(server.base, token)


def collector(url: str, token: str) -> SplunkHec:
    fields = {"type": "splunk_hec", "name": "x", "url": url, "timeout_s": 5.0}
    return SplunkHec(Entry(fields, "r.toml", secrets={"token_file": token}))


def posting(url: str, kind: type[MessageService] = SlackReceiver) -> MessageService:
    fields = {"type": "slack", "name": "x", "url": url, "timeout_s": 5.0}
    return kind(Entry(fields, "r.toml", secrets={"url_file": url, "routing_key_file": "k"}))


async def sent(receiver: Receiver, body: str) -> AttemptResult:
    try:
        return await receiver.send(VIEW, body)
    finally:
        await receiver.close()


def waits(code: str, retry_after_ms: int = 0) -> AttemptResult:
    return AttemptResult(outcome=DeliveryOutcome.UNAVAILABLE, code=code, retry_after_ms=retry_after_ms)


def refused(code: str) -> AttemptResult:
    return AttemptResult(outcome=DeliveryOutcome.REFUSED, code=code)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ForwardLimits(acknowledgement_polls_max=3, acknowledgement_pause_s=0.001)
    monkeypatch.setattr(splunk_hec, "FORWARD_LIMITS", limits)


async def test_an_event_counts_as_delivered_once_it_is_indexed() -> None:
    """With acknowledgement on, the channel is asked until it says so."""
    with Splunk(free_port(), asks=3) as server:
        assert await sent(hec(server), to_hec(ALERT)) == DELIVERED
    assert server.requests == 4
    assert server.taken[0]["event"]["tool_name"] == "tool"


async def test_an_event_that_is_not_indexed_in_time_is_asked_for_again() -> None:
    """It waits as for a receiver that is down, and a slow indexer is not sent it twice."""
    with Splunk(free_port(), asks=5) as server:
        receiver = hec(server)
        assert await receiver.send(VIEW, to_hec(ALERT)) == waits("not_acknowledged")
        assert await sent(receiver, to_hec(ALERT)) == DELIVERED
    assert len(server.taken) == 1


async def test_an_event_that_is_never_indexed_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some waits: Splunk forgets what it was sent when it restarts."""
    limits = ForwardLimits(acknowledgement_polls_max=1, acknowledgement_pause_s=0.001, acknowledgement_waits_max=2)
    monkeypatch.setattr(splunk_hec, "FORWARD_LIMITS", limits)
    taken = []
    with Splunk(free_port(), asks=99) as server:
        receiver = hec(server)
        for _ in range(4):
            assert await receiver.send(VIEW, to_hec(ALERT)) == waits("not_acknowledged")
            taken.append(len(server.taken))
        await receiver.close()
    assert taken == [1, 1, 2, 2]


async def test_slow_acknowledgements_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer in time, all of them for ever: a process with a receiver that seems to hang would be restarted."""
    limits = ForwardLimits(acknowledgement_pause_s=0.0, acknowledgement_wait_s=0.2)
    monkeypatch.setattr(splunk_hec, "FORWARD_LIMITS", limits)
    answered = HttpAnswer(result=DELIVERED, status=200, body=b'{"ackId":1}')
    asked: list[str] = []

    async def post(url: str, content: bytes) -> HttpAnswer:
        asked.append(url)
        await asyncio.sleep(0.05)
        return answered

    receiver = collector("https://h", "t")
    monkeypatch.setattr(receiver._poster, "post", post)
    assert await sent(receiver, "{}") == waits("not_acknowledged")
    assert len(asked) <= 6


async def test_without_acknowledgement_success_is_enough() -> None:
    with Splunk(free_port(), acknowledging=False) as server:
        assert await sent(hec(server), to_hec(ALERT)) == DELIVERED
    assert server.requests == 1


async def test_a_wrong_token_or_index_makes_alerts_wait() -> None:
    """Neither says anything about the alert: the dead letters stay empty until somebody mends it."""
    with Splunk(free_port()) as server:
        assert await sent(hec(server, "other"), to_hec(ALERT)) == waits("http_403")
        assert await sent(hec(server), to_hec(ALERT, index="nowhere")) == waits("hec_7")


async def test_an_event_that_splunk_cannot_read_is_refused() -> None:
    """That no second attempt will change."""
    with Splunk(free_port()) as server:
        assert await sent(hec(server), "{}") == refused("http_400")


async def test_slack_and_teams_take_their_messages() -> None:
    with Slack(free_port()) as slack, Teams(free_port()) as teams:
        assert await sent(posting(slack.url), to_slack(ALERT)) == DELIVERED
        assert await sent(posting(teams.url, TeamsReceiver), to_teams(ALERT)) == DELIVERED
    assert "server/tool" in slack.taken[0]["text"]
    assert "server/tool" in teams.taken[0]["body"][0]["inlines"][0]["text"]


async def test_what_slack_cannot_read_is_refused_and_a_lost_channel_waits() -> None:
    """``invalid_payload`` is about the alert, ``no_service`` is not."""
    with Slack(free_port()) as slack:
        assert await sent(posting(slack.url), "{}") == refused("http_400")
        assert await sent(posting(slack.base + "/gone"), to_slack(ALERT)) == waits("http_404")
        slack.user_gone = True
        assert await sent(posting(slack.url), to_slack(ALERT)) == waits("webhook_refused")


async def test_a_workflow_that_is_off_makes_alerts_wait() -> None:
    """It answers 400, to every card: no alert is lost to it."""
    with Teams(free_port()) as teams:
        teams.is_on = False
        assert await sent(posting(teams.url, TeamsReceiver), to_teams(ALERT)) == waits("workflow_refused")


async def test_a_card_that_no_workflow_took_is_not_delivered() -> None:
    """A connector of the kind before workflows says 200 and means 429."""
    answer: Answer = (200, {}, b"Microsoft Teams endpoint returned HTTP error 429")
    with Teams(free_port(), answer) as teams:
        assert await sent(posting(teams.url, TeamsReceiver), to_teams(ALERT)) == waits("not_posted")


async def test_a_redirection_is_not_followed() -> None:
    """A service that sends us elsewhere gets nothing sent elsewhere."""
    with Slack(free_port()) as other:
        answer = (307, {"Location": other.url}, b"")
        with Slack(free_port(), answer) as slack:
            assert await sent(posting(slack.url), to_slack(ALERT)) == waits("http_307")
        assert other.requests == 0


async def test_an_incident_is_opened_acknowledged_and_resolved() -> None:
    """By the alert's uid, however often a record is sent."""
    acknowledged = ALERT | {"activity_id": 2, "unmapped": ALERT["unmapped"] | {"mcp_acknowledged_by": "ann"}}
    closed = acknowledged | {"activity_id": 3, "status_id": 4}
    states = []
    with PagerDuty(free_port()) as server:
        for alert in (ALERT, ALERT, acknowledged, closed):
            body = to_pagerduty(alert, routing_key=server.routing_key)
            assert await sent(posting(server.url, PagerDutyReceiver), body) == DELIVERED
            states.append(server.incidents[VIEW.uid])
    assert states == ["triggered", "triggered", "acknowledged", "resolved"]


async def test_a_wrong_routing_key_waits_and_a_bad_event_is_refused() -> None:
    with PagerDuty(free_port()) as server:
        receiver = posting(server.url, PagerDutyReceiver)
        assert await sent(receiver, to_pagerduty(ALERT, routing_key="other")) == waits("routing_key_refused")
        receiver = posting(server.url, PagerDutyReceiver)
        assert await sent(receiver, to_pagerduty(ALERT, routing_key="0" * 32)) == waits("routing_key_refused")
        bad = to_pagerduty(ALERT, routing_key=server.routing_key).replace('"severity":"error"', '"severity":"bad"')
        assert await sent(posting(server.url, PagerDutyReceiver), bad) == refused("http_400")


async def test_an_answer_without_end_or_sense_is_bounded() -> None:
    """What is not JSON, or too deep, says nothing more than its status."""
    for body in (b"[" * 200_000, b"x" * 1_000_000, b'{"ackId": "1"}'):
        with Splunk(free_port(), (200, {}, body)) as server:
            assert await sent(hec(server), to_hec(ALERT)) == DELIVERED
