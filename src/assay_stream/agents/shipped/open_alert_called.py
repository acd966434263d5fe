"""A tool called while a high alert about it is open and nobody has reviewed it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from assay_stream.agents import Agent, Alert, Detection, Event, Evidence, Memory, Origin

HIGH = 4
CLOSED = 3
"""OCSF ``activity_id``."""
SUPPRESSED = 3
"""OCSF ``status_id``."""
SETTLED_S = 15 * 60
"""An alert counts as open for this long after its end: the end is written ten minutes later, so a call before
that must be judged as one that comes after."""
REMEMBERED_S = 24 * 3_600
"""How long after its end an alert is remembered, for calls that are read late."""
REMEMBERED_MAX = 64

agent = Agent(
    "open_alert_called",
    title="A tool was called while its alert was open",
    severity="high",
    forget_after_s=30 * 24 * 3_600,
)


def tool_of(event: Event[Alert]) -> tuple[str, str] | None:
    tool_name = event.value["unmapped"].get("mcp_tool_name")
    return None if tool_name is None else (event.server_id, tool_name)


@agent.alerts(key=tool_of)
def on_alert(event: Event[Alert], memory: Memory) -> None:
    """Remember when alerts about the tool were open. Suppressing, acknowledging or closing one counts as a review."""
    alert, uid = event.value, event.value["finding_info"]["uid"]
    alerts: list[dict[str, Any]] = memory.state.setdefault("alerts", [])
    known = next((each for each in reversed(alerts) if each["uid"] == uid), None)
    flat: dict[str, object] = dict(alert["unmapped"])
    is_closed_by_hand = flat.get("mcp_resolved_by") == "closed"
    if alert["status_id"] == SUPPRESSED or is_closed_by_hand or "mcp_acknowledged_by" in flat:
        if known is not None:
            known["until_us"] = min(event.time_us, known.get("until_us", event.time_us))
    elif alert["activity_id"] == CLOSED:
        if known is not None:
            known.setdefault("until_us", event.time_us + SETTLED_S * 1_000_000)
    elif alert["severity_id"] >= HIGH and (known is None or "until_us" in known):
        alerts.append({"uid": uid, "origin": event.origin, "from_us": event.time_us})
        del alerts[:-REMEMBERED_MAX]


@agent.evidence(key=lambda event: (event.server_id, event.value["data"]["tool"]))
def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
    """Detect the first call under each open alert. Alerts may be far ahead of calls, so their times decide."""
    alerts: list[dict[str, Any]] = memory.state.get("alerts", [])
    if event.value["data"]["decision"] == "deny" or not alerts:
        return
    now_us = event.time_us
    alerts[:] = [each for each in alerts if now_us < each.get("until_us", now_us) + REMEMBERED_S * 1_000_000]
    opened = [each for each in alerts if each["from_us"] <= now_us <= each.get("until_us", now_us)]
    news = [each for each in opened if "called" not in each]
    for each in news:
        each["called"] = True
    if news:
        references = tuple(Origin(*each["origin"]) for each in news)
        yield Detection(tool_name=event.value["data"]["tool"], references=references[:64])
