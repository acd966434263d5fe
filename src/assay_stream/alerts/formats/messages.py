"""Alerts as messages for people: Slack, Microsoft Teams, PagerDuty. One line says what changed and why it matters.

Names and reasons come from servers. No target may interpret them as markup, a mention or a link:

1. Invisible characters are escaped (``visible``), and ``://`` and ``www.`` are broken up.
2. Slack gets ``plain_text``; in the fallback text ``& < >`` are escaped and parsing is off.
3. Teams gets text runs, which do not support Markdown (Adaptive Cards, "TextRun"), and a card without entities,
   without which there are no mentions.
4. PagerDuty gets no ``links``. That it shows summaries and details as plain text has not been tested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from assay_stream.alerts.formats.view import AlertView, view_of
from assay_stream.detect import LEVELS, RULES
from assay_stream.drift.severity import Level
from assay_stream.model.alert import Activity, AlertStatus
from assay_stream.model.kinds import Kind
from assay_stream.text.escaping import counted, visible
from assay_stream.text.times import time_ms_text

_SLACK_UNITS_MAX = 3_000
"""A text object (docs.slack.dev, "Text object"). Units of UTF-16, as in all limits here: never fewer than
characters, and three bytes of UTF-8 at most."""

_TEAMS_UNITS_MAX = 4_000
"""A message to Teams has 28 KB in all (Microsoft, reference of the Teams connector, "Message size limit"): two texts
of 12 KB at most, and the card around them."""

_FACT_UNITS_MAX = 400
"""A fact, so that a long name leaves room for the uid and the other facts."""

_SUMMARY_UNITS_MAX = 1_024
_DEDUP_KEY_CHARACTERS_MAX = 255
"""``payload.summary`` and ``dedup_key`` (PagerDuty, Events API v2, "Send an Alert Event")."""

_PAGERDUTY_SEVERITIES = {1: "info", 2: "info", 3: "warning", 4: "error", 5: "critical", 6: "critical"}
_SAID: dict[int, str] = {Activity.CREATE: "New", Activity.UPDATE: "Updated", Activity.CLOSE: "Closed"}
_OVER = (AlertStatus.SUPPRESSED, AlertStatus.RESOLVED)
_ACTIVE = re.compile(r"(?i)(?<=:)(?=//)|(?<=\bwww)(?=\.)|(?<=\{)(?=\{)")
"""Where a space disarms an address, or a function in the text of a card (``{{DATE(...)}}``)."""

_RULES = {rule.id: rule for rule in RULES}
_FACTS = {
    "Server": "mcp_server_id",
    "Tool": "mcp_tool_name",
    "Indicators": "mcp_indicators",
    "Changes": "mcp_change_codes",
    "ATLAS": "mcp_attacks",
}


def one_line(view: AlertView, units_max: int) -> str:
    """Return what happened, to what, and why it matters, on one line; excess text ends in an ellipsis."""
    told = _SAID.get(view.activity_id, view.activity)
    state = view.status if view.status_id in _OVER else told
    found = [(rule, int(LEVELS.get(rule, 0))) for rule in view.fact("mcp_indicators").split(",") if rule]
    found.sort(key=lambda each: -each[1])
    what, why = view.message, view.explanation
    if found and view.kind not in (Kind.SERVER_CHANGED, Kind.ALERTS_FOLDED):
        subject = [view.server_id, view.tool_name or view.fact("mcp_item_name")]
        what = f"{view.title}: {'/'.join(filter(None, subject))}: {claim_of(found)}"
        why = _RULES[found[0][0]].reason if found[0][0] in _RULES else why
    return _cut(_inert(f"[{view.severity}] {state}: {what}. {why}".rstrip()), units_max)


def claim_of(found: Sequence[tuple[str, int]]) -> str:
    """Return what the most severe indicator says of a text, and how many more deserve a look.

    Args:
        found: rules, each with the level that it raises to, the most severe first.
    """
    worst = found[0][0]
    others = {rule for rule, level in found if level >= Level.MEDIUM} - {worst}
    claim = _RULES[worst].claim if worst in _RULES else f"it matches {worst}"
    return f"{claim}, and {counted(len(others), 'more indicator')}" if others else claim


def to_slack(alert: dict[str, Any]) -> str:
    view = view_of(alert)
    line = one_line(view, _SLACK_UNITS_MAX)
    detail = one_of_each(view)
    payload = {
        "text": line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
        "mrkdwn": False,
        "parse": "none",
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [
            {"type": "section", "text": {"type": "plain_text", "emoji": False, "text": text}} for text in (line, detail)
        ],
    }
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def to_teams(alert: dict[str, Any]) -> str:
    """Return the alert as an adaptive card, as the webhook of a Teams workflow expects it."""
    view = view_of(alert)
    runs = [
        {"type": "TextRun", "text": one_line(view, _TEAMS_UNITS_MAX), "weight": "Bolder"},
        {"type": "TextRun", "text": one_of_each(view)},
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "RichTextBlock", "inlines": [run]} for run in runs],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return json.dumps({"type": "message", "attachments": [attachment]}, ensure_ascii=False, separators=(",", ":"))


def to_pagerduty(alert: dict[str, Any], *, routing_key: str) -> str:
    """Return the alert as an event of PagerDuty's Events API v2.

    One incident for each alert, by its uid: it is resolved where the alert closes or is suppressed, acknowledged
    while the alert is acknowledged, and triggered otherwise.

    Args:
        routing_key: the integration's key: a secret.
    """
    view = view_of(alert)
    too_long = len(view.uid) > _DEDUP_KEY_CHARACTERS_MAX
    action = "acknowledge" if view.fact("mcp_acknowledged_by") else "trigger"
    if view.activity_id == Activity.CLOSE or view.status_id in _OVER:
        action = "resolve"
    event = {
        "routing_key": routing_key,
        "event_action": action,
        "dedup_key": sha256(view.uid.encode()).hexdigest() if too_long else view.uid,
        "client": "assay-stream",
        "payload": {
            "summary": one_line(view, _SUMMARY_UNITS_MAX),
            "source": _fact(view, "mcp_server_id") or "assay-stream",
            "severity": _PAGERDUTY_SEVERITIES.get(view.severity_id, "warning"),
            "timestamp": time_ms_text(view.time_ms),
            "class": view.kind,
            "custom_details": {name: _fact(view, fact) for name, fact in _FACTS.items() if view.fact(fact)}
            | {"uid": view.uid, "count": view.count},
        },
    }
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def one_of_each(view: AlertView) -> str:
    """Return the facts most useful for triage, and the uid, on one line."""
    facts = [f"{name}: {_fact(view, fact)}" for name, fact in _FACTS.items() if view.fact(fact)]
    return " · ".join([*facts, f"uid: {view.uid}"])


def _fact(view: AlertView, name: str) -> str:
    return _cut(_inert(view.fact(name)), _FACT_UNITS_MAX)


def _cut(text: str, units_max: int) -> str:
    raw = text.encode("utf-16-le")
    # Half a character at the cut is left out.
    return text if len(raw) <= 2 * units_max else raw[: 2 * (units_max - 1)].decode("utf-16-le", "ignore") + "…"


def _inert(text: str) -> str:
    return _ACTIVE.sub(" ", visible(text))
