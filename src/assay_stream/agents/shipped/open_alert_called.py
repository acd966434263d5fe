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
"""An alert counts as open for so long after its end: that it has ended is written ten minutes later, so a call before
that must be judged as one that comes after."""

agent = Agent(
    "open_alert_called",
    title="A tool was called while its alert was open",
    severity="high",
    forget_after_s=30 * 24 * 3_600,
)


def tool_of(event: Event[Alert]) -> tuple[str, str] | None:
    """Return the tool that an alert is about, if it is about one."""
    tool_name = event.value["unmapped"].get("mcp_tool_name")
    return None if tool_name is None else (event.server_id, tool_name)


@agent.alerts(key=tool_of)
def on_alert(event: Event[Alert], memory: Memory) -> None:
    """Remember which alerts about the tool are open. Whoever suppresses, acknowledges or closes one has looked."""
    alert, uid = event.value, event.value["finding_info"]["uid"]
    alerts: dict[str, Any] = memory.state.setdefault("alerts", {})
    known = alerts.get(uid)
    flat: dict[str, object] = dict(alert["unmapped"])
    is_closed_by_hand = flat.get("mcp_resolved_by") == "closed"
    if alert["status_id"] == SUPPRESSED or is_closed_by_hand or "mcp_acknowledged_by" in flat:
        alerts.pop(uid, None)
    elif alert["activity_id"] == CLOSED:
        if known is not None:
            known["until_us"] = event.time_us + SETTLED_S * 1_000_000
    elif alert["severity_id"] >= HIGH and (known is None or "until_us" in known):
        alerts[uid] = {"origin": event.origin}


@agent.evidence(key=lambda event: (event.server_id, event.value["data"]["tool"]))
def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
    """Find the first call under each open alert."""
    if event.value["data"]["decision"] == "deny":
        return
    alerts = memory.state.get("alerts", {})
    for uid in [uid for uid, known in alerts.items() if known.get("until_us", event.time_us) < event.time_us]:
        del alerts[uid]
    news = [known for known in alerts.values() if "called" not in known]
    for known in news:
        known["called"] = True
    if news:
        references = tuple(Origin(*known["origin"]) for known in news)
        yield Detection(tool_name=event.value["data"]["tool"], references=references[:64])
