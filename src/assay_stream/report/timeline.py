"""Every change on a server with its evidence: lists that differ, findings, decisions, alerts, by event time."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import orjson

from assay_stream.alerts.formats.view import AlertView, read_alert, view_of
from assay_stream.bindings.server import ServerBindings
from assay_stream.errors import AssayStreamError, InputError
from assay_stream.model.cloudevents import time_us_of
from assay_stream.model.facts import Rejection, Seen
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import decode_entry
from assay_stream.model.record import Role
from assay_stream.report.rows import Row, present, time_text
from assay_stream.text.counting import counted

Dated = tuple[int, Row]
"""Event time in microseconds, and the row of what happened then."""

_ORDER = {"decision": 0, "snapshot": 1, "announcement": 2, "rejection": 3, "finding": 4, "alert": 5}


class Written(Protocol):
    """A record that a stage wrote, read from its topic or replayed."""

    @property
    def role(self) -> Role:
        """What its topic carries."""

    @property
    def value(self) -> bytes | None:
        """Its value."""


def timeline_rows(
    server_id: str, dated: Iterable[Dated], *, since_us: int | None = None, until_us: int | None = None
) -> list[Row]:
    """Return the rows of a server within some time, oldest first; at one time each after its cause.

    Args:
        since_us: earliest event time, inclusive, ``None`` for no bound.
        until_us: latest event time, inclusive, ``None`` for no bound.
    """
    selected = [
        (time_us, row)
        for time_us, row in dated
        if (since_us is None or time_us >= since_us) and (until_us is None or time_us <= until_us)
    ]
    caused_us: dict[tuple[str, int], int] = {}
    for time_us, row in selected:
        if row["what"] == "finding":
            cause = (row["uid"], time_us // 1_000)
            caused_us[cause] = max(time_us, caused_us.get(cause, 0))

    def place(entry: Dated) -> tuple[int, int, bytes]:
        time_us, row = entry
        if row["what"] == "alert":
            # Alerts are dated in milliseconds, which would put one before the finding that caused it.
            time_us = max(time_us, caused_us.get((row["uid"], time_us // 1_000), 0))
        return time_us, _ORDER.get(row["what"], len(_ORDER)), orjson.dumps(row, option=orjson.OPT_SORT_KEYS)

    return [{"time": time_text(time_us), "server_id": server_id, **row} for time_us, row in sorted(selected, key=place)]


def changes(
    server: ServerBindings, server_id: str, written: Iterable[Written], *, tool_name: str | None = None
) -> Iterator[Dated]:
    """Yield everything that changed on a server.

    Args:
        written: findings, changes and alerts, of other servers too; any other role is skipped.
    """
    yield from observed(server, tool_name=tool_name)
    read = {Role.FINDINGS: found, Role.CHANGES: decided, Role.ALERTS: alerted}
    for one in written:
        if one.role in read:
            yield from read[one.role](one.value, server_id, tool_name=tool_name)


def observed(server: ServerBindings, *, tool_name: str | None = None) -> Iterator[Dated]:
    """Yield the snapshots that differ, in one tool or in any, from their observer's last one, and the refused ones."""
    for timeline in server.observers.values():
        before: Seen | None = None
        for seen in timeline:
            changed = _changed_tools(server, before, seen)
            count = (
                counted(len(changed), "tool")
                if before is None
                else counted(len(changed), "tool differs", "tools differ")
            )
            shown_otherwise = {name for name, _ in {*seen.hidden} ^ {*(before.hidden if before else ())}}
            concerned = {*changed, *shown_otherwise}
            if concerned if tool_name is None else tool_name in concerned:
                row = {
                    "what": "snapshot",
                    "kind": "first_look" if before is None else "list_changed",
                    "observer_id": seen.observer_id,
                    "snapshot_id": seen.snapshot_id,
                    "tool_name": tool_name,
                    "tools": changed if tool_name is None else [tool_name],
                    "detail": count if tool_name is None else None,
                    "value": seen.catalogue,
                    "origin": seen.origin.as_json(),
                }
                hidden = sorted({name for name, _ in seen.hidden if tool_name in (None, name)})
                yield seen.time_us, row | ({"hidden": hidden} if hidden else {})
            before = seen
    for end in server.endings:
        row = {"what": "announcement", "observer_id": end.observer_id, "origin": end.origin.as_json()}
        if isinstance(end, Rejection):
            row |= {"what": "rejection", "kind": end.code}
        yield end.time_us, present(row)


def found(value: bytes | None, server_id: str, *, tool_name: str | None = None) -> Iterator[Dated]:
    """Yield the row of a record of the finding topic, if it is about this server and tool."""
    finding = finding_about(value, server_id, tool_name=tool_name)
    if finding is not None:
        yield finding.time_us, finding_row(finding)


def finding_about(value: bytes | None, server_id: str, *, tool_name: str | None = None) -> Finding | None:
    """Return the finding in a record of the finding topic, if it is one about this server and tool."""
    try:
        entry = decode_entry(value)
    except AssayStreamError:
        return None
    if not isinstance(entry, Finding) or entry.server_id != server_id:
        return None
    return entry if tool_name in (None, entry.tool_name, entry.renamed_to) else None


def finding_row(finding: Finding) -> Row:
    row = {
        "what": "finding",
        "kind": finding.kind.value,
        "tool_name": finding.tool_name,
        "observer_id": finding.observer_id,
        "snapshot_id": finding.snapshot_id,
        "detail": ", ".join(finding.changed_fields) or finding.reason,
        "before": finding.before,
        "after": finding.after,
        "value": finding.after,
        "uid": finding.uid(),
        "origin": finding.origin.as_json(),
    }
    return present(row)


def decided(value: bytes | None, server_id: str, *, tool_name: str | None = None) -> Iterator[Dated]:
    content = _object(value)
    data = content.get("data")
    time = content.get("time")
    if not isinstance(data, dict) or data.get("server_id") != server_id or not isinstance(time, str):
        return
    about = data.get("tool_name")
    if about is not None and tool_name not in (None, about):
        return
    try:
        time_us = time_us_of(time)
    except (InputError, TypeError):
        return
    row = {
        "what": "decision",
        "kind": data.get("change"),
        "tool_name": about,
        "author": data.get("author"),
        "reason": data.get("reason"),
        "scheme": data.get("scheme"),
        "value": data.get("value") or data.get("key_fingerprint") or data.get("rule_id"),
        "enforcement": data.get("enforcement"),
        "unknown": data.get("unknown"),
        "replaces": data.get("replaces"),
        "detail": data.get("enforcement") or data.get("scheme") or data.get("domain"),
        "id": content.get("id"),
        "origin": data.get("origin"),
    }
    yield time_us, present(row)


def alerted(value: bytes | None, server_id: str, *, tool_name: str | None = None) -> Iterator[Dated]:
    view = alert_about(value, server_id, tool_name=tool_name)
    if view is not None:
        yield view.time_ms * 1_000, alert_row(view)


def alert_about(value: bytes | None, server_id: str, *, tool_name: str | None = None) -> AlertView | None:
    """Return the alert in a record, if it is one about this server and tool."""
    try:
        view = view_of(read_alert(value))
    except InputError:
        return None
    about = view.fact("mcp_tool_name") or None
    if view.fact("mcp_server_id") != server_id or tool_name not in (None, about):
        return None
    return view


def alert_row(view: AlertView) -> Row:
    row = {
        "what": "alert",
        "kind": view.kind,
        "tool_name": view.fact("mcp_tool_name") or None,
        "observer_id": view.fact("mcp_observer_id") or None,
        "detail": f"{view.activity}, {view.status}, {view.severity}, count {view.count}",
        "value": view.fact("mcp_digest_after") or None,
        "uid": view.uid,
        "suppressed_by": view.fact("mcp_suppressed_by") or None,
        "resolved_by": view.fact("mcp_resolved_by") or None,
    }
    return present(row)


def _changed_tools(server: ServerBindings, before: Seen | None, seen: Seen) -> list[str]:
    now = server.catalogue_of(seen).tools
    was: Mapping[str, str | None] = {} if before is None else server.catalogue_of(before).tools
    return sorted(name for name in now.keys() | was.keys() if now.get(name, "") != was.get(name, ""))


def _object(value: bytes | None) -> dict[str, Any]:
    try:
        content = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}
