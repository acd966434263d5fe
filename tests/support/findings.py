"""Builders of findings, resolutions and rules for tests of the alerts."""

import json
from dataclasses import replace
from typing import Any

from assay_stream.alerts.rules import AlertRules, Pacing
from assay_stream.canonical.digest import jcs_digest
from assay_stream.model.finding import Finding, NameClaim, Resolution, SuppressionRule
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output

SECOND_US = 1_000_000
START_US = 1_772_323_200 * SECOND_US
A = "sha256:" + "a" * 64
B = "sha256:" + "b" * 64
PACING = Pacing(update_interval_us=60 * SECOND_US, settle_us=10 * SECOND_US, repeat_interval_us=600 * SECOND_US)
RULES = AlertRules(version="1", pacing=PACING)


def at(second: float) -> int:
    return START_US + int(second * SECOND_US)


def place(offset: int, *, partition: int = 0, topic: str = "mcp.tools.list") -> Origin:
    return Origin(topic=topic, partition=partition, offset=offset)


def a_finding(offset: int = 0, second: float | None = None, **changes: Any) -> Finding:
    """A changed tool, found in a record of some offset, as many seconds after the start unless said otherwise."""
    return replace(
        Finding(
            kind=Kind.TOOL_CHANGED,
            server_id="server",
            tool_name="tool",
            observer_id="alice",
            time_us=at(offset if second is None else second),
            origin=place(offset),
            snapshot_id="snapshot-1",
            before=A,
            after=B,
            changed_fields=("description",),
        ),
        **changes,
    )


def an_end(offset: int, second: float | None = None, **changes: Any) -> Resolution:
    return replace(
        Resolution(
            server_id="server",
            uids=(a_finding().uid(),),
            reason="no_longer_offered",
            observer_id="alice",
            time_us=at(offset if second is None else second),
            origin=place(offset),
        ),
        **changes,
    )


def a_rule(**changes: Any) -> SuppressionRule:
    return replace(
        SuppressionRule(
            id="rule-1",
            server_id="server",
            tool=None,
            kind=None,
            field=None,
            until_us=None,
            author="ann",
            reason="noise",
        ),
        **changes,
    )


def body(alert: Output) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(alert.value or b"")
    return parsed


def told(alerts: list[Output]) -> list[tuple[str, str, int]]:
    return [(body(alert)["activity_name"], body(alert)["status"], body(alert)["count"]) for alert in alerts]


def a_claim(server_id: str, tool_name: str, second: float = 0, *, definition: str = "", **given: Any) -> NameClaim:
    """A claim to a name; the definition differs with the name, and with what is said of it."""
    fields: dict[str, Any] = {"is_offered": True, "approved": False, "added": False, "sketch": ()} | given
    offset = int.from_bytes(jcs_digest([server_id, tool_name, second, definition, given]).hex[:8].encode(), "big")
    return NameClaim(
        server_id=server_id,
        tool_name=tool_name,
        full=str(jcs_digest([tool_name, definition])),
        time_us=at(second),
        origin=Origin(topic="mcp.tools.list", partition=0, offset=offset % 2**31),
        **fields,
    )
