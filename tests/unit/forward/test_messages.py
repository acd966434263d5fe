"""Alerts as messages for people: what they say, and what a server's text cannot make of them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from assay_stream.alerts.formats import view_of
from assay_stream.forward.pagerduty import to_pagerduty
from assay_stream.forward.posting import one_line
from assay_stream.forward.slack import to_slack
from assay_stream.forward.teams import to_teams
from assay_stream.model.kinds import Kind
from tests.support.alerts import alert_of

HOSTILE = (
    "<!channel> <@U012> <https://evil.example|safe> @here *bold* `x` [a](https://evil.example) "
    "www.evil.example <at>Ann</at> {{DATE(2017-02-14,SHORT)}} \u202egnp.\u200b\r\nsecond & line"
)


def to_events(alert: dict[str, Any]) -> str:
    return to_pagerduty(alert, routing_key="key")


def hostile() -> dict[str, Any]:
    alert = alert_of(HOSTILE)
    alert["unmapped"]["mcp_server_id"] = alert["unmapped"]["mcp_indicators"] = HOSTILE
    return alert


def test_one_line_says_what_changed_and_why_it_matters() -> None:
    alert = alert_of(indicators=(("data_sent", 4, "description"),))
    assert one_line(view_of(alert), 500) == (
        "[High] New: The definition of a tool changed: server/tool: the text has data sent to an address. "
        "Attackers have data sent to an address where they can collect it."
    )


def test_a_closed_alert_says_so() -> None:
    alert = alert_of() | {"activity_id": 3, "activity_name": "Close", "status_id": 4, "status": "Resolved"}
    assert one_line(view_of(alert), 500).startswith("[High] Resolved: ")


def test_slack_makes_nothing_of_what_a_server_wrote() -> None:
    """Blocks are plain text; the fallback has no ``<``, parses nothing and links no names."""
    payload = json.loads(to_slack(hostile()))
    assert {block["text"]["type"] for block in payload["blocks"]} == {"plain_text"}
    assert "<" not in payload["text"]
    assert ">" not in payload["text"]
    assert "&lt;!channel&gt;" in payload["text"]
    assert (payload["parse"], payload["link_names"], payload["mrkdwn"]) == ("none", False, False)
    assert (payload["unfurl_links"], payload["unfurl_media"]) == (False, False)


def test_teams_makes_nothing_of_what_a_server_wrote() -> None:
    """Text runs know no Markdown; without entities nobody is mentioned, and there is no function to expand."""
    (attachment,) = json.loads(to_teams(hostile()))["attachments"]
    card = attachment["content"]
    assert {part["type"] for part in card["body"]} == {"RichTextBlock"}
    assert {run["type"] for part in card["body"] for run in part["inlines"]} == {"TextRun"}
    assert "msteams" not in card
    assert "actions" not in card
    assert "{{" not in json.dumps(card["body"], separators=(" , ", " : "))


def test_pagerduty_is_given_no_links() -> None:
    event = json.loads(to_events(hostile()))
    assert not {"links", "images", "client_url"} & event.keys()


@pytest.mark.parametrize("write", [to_slack, to_teams, to_events])
def test_a_servers_text_makes_no_link_and_no_line(write: Callable[[dict[str, Any]], str]) -> None:
    def texts(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [text for name, inner in value.items() if name != "$schema" for text in texts(inner)]
        if isinstance(value, list):
            return [text for inner in value for text in texts(inner)]
        return [value] if isinstance(value, str) else []

    for text in texts(json.loads(write(hostile()))):
        assert "://" not in text
        assert "www.evil" not in text
        assert text.isprintable()


@pytest.mark.parametrize("braces", range(2, 7))
def test_no_run_of_braces_begins_a_function(braces: int) -> None:
    """Breaking up two of three braces leaves two."""
    alert = alert_of()
    alert["message"] = "{" * braces + "DATE(2017-02-14,SHORT)}}"
    for write in (to_slack, to_teams, to_events):
        assert "{{" not in write(alert).replace(":{", "")


def test_the_widest_names_fit_and_hide_no_uid() -> None:
    """Services count bytes or units of UTF-16: what is refused as too long would be an alert that nobody sees."""
    alert = alert_of()
    wide = "\N{GRINNING FACE}" * 9_000
    alert["message"] = wide
    alert["unmapped"] |= {"mcp_server_id": wide, "mcp_tool_name": f"x{wide}"}
    assert len(to_teams(alert).encode()) <= 28 * 1_024
    texts = [block["text"]["text"] for block in json.loads(to_slack(alert))["blocks"]]
    assert max(len(text.encode("utf-16-le")) // 2 for text in texts) <= 3_000
    assert len(to_events(alert).encode()) <= 16 * 1_024
    uid = alert["finding_info"]["uid"]
    assert texts[1].endswith(f"uid: {uid}")
    assert f"uid: {uid}" in to_teams(alert)


@given(name=st.text(max_size=200))
def test_any_name_gives_bounded_sound_messages(name: str) -> None:
    alert = alert_of("x")
    alert["message"] = alert["unmapped"]["mcp_tool_name"] = name.encode("utf-8", "replace").decode() * 50
    assert max(len(block["text"]["text"]) for block in json.loads(to_slack(alert))["blocks"]) <= 3_000
    assert len(to_teams(alert).encode()) <= 28 * 1_024
    assert len(json.loads(to_events(alert))["payload"]["summary"]) <= 1_024


@pytest.mark.parametrize(
    ("changes", "facts", "action"),
    [
        ({}, {}, "trigger"),
        ({"activity_id": 2, "status_id": 2}, {}, "trigger"),
        ({"activity_id": 2, "status_id": 2}, {"mcp_acknowledged_by": "ann"}, "acknowledge"),
        ({"activity_id": 3, "status_id": 4}, {"mcp_acknowledged_by": "ann"}, "resolve"),
        ({"status_id": 3, "status": "Suppressed"}, {}, "resolve"),
    ],
)
def test_an_incident_follows_the_life_of_its_alert(changes: dict[str, Any], facts: dict[str, str], action: str) -> None:
    alert = alert_of() | changes
    alert["unmapped"] |= facts
    event = json.loads(to_events(alert))
    assert (event["event_action"], event["dedup_key"]) == (action, alert["finding_info"]["uid"])


def test_a_uid_that_is_too_long_is_hashed() -> None:
    """PagerDuty takes 255 characters; an alert of another's making may have 256."""
    alert = alert_of()
    alert["finding_info"]["uid"] = "u" * 256
    assert len(json.loads(to_events(alert))["dedup_key"]) == 64


def test_a_prompt_is_named_in_its_claim() -> None:
    alert = alert_of(None, kind=Kind.PROMPT_CHANGED, item_name="plan", indicators=(("data_sent", 4, "description"),))
    assert one_line(view_of(alert), 500).startswith("[High] New: A prompt changed: server/plan: the text has data sent")
