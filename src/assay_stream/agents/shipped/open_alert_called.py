"""A tool called while a high alert about it is open and nobody has reviewed it."""

from __future__ import annotations

from collections.abc import Iterator

from assay_stream.agents import Agent, Alert, Detection, Event, Evidence, Memory, Origin

HIGH = 4
CREATED, UPDATED = 1, 2
SUPPRESSED = 3

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
    """Remember which alerts about the tool are open. Who decides, closes or suppresses them has looked."""
    alert = event.value
    is_open = alert["activity_id"] in (CREATED, UPDATED) and alert["status_id"] != SUPPRESSED
    opened = memory.state.setdefault("open", {})
    if is_open and alert["severity_id"] >= HIGH:
        opened.setdefault(alert["finding_info"]["uid"], event.origin)
    else:
        opened.pop(alert["finding_info"]["uid"], None)


@agent.evidence(key=lambda event: (event.server_id, event.value["data"]["tool"]))
def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
    """Find the first call under each set of open alerts."""
    opened: dict[str, list[str | int]] = memory.state.get("open", {})
    told = memory.state.get("told", [])
    if event.value["data"]["decision"] == "deny" or not opened.keys() - set(told):
        return
    memory.state["told"] = sorted(opened)
    origins = tuple(Origin(*origin) for origin in opened.values())  # type: ignore[arg-type]
    yield Detection(tool_name=event.value["data"]["tool"], references=origins[:64])
