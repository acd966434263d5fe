"""Every change on a server with its evidence: lists that differ, findings, decisions, alerts, by event time."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from assay_stream.alerts.formats.view import AlertView, view_of
from assay_stream.bindings.server import ServerBindings
from assay_stream.model.cloudevents import time_us_of
from assay_stream.model.facts import Rejection, Seen
from assay_stream.model.finding import Finding
from assay_stream.readmodel.queries import Store
from assay_stream.report.pins import server_of
from assay_stream.report.rows import Row, present, time_text
from assay_stream.text.counting import counted

Dated = tuple[int, Row]
"""Event time in microseconds, and the row of what happened then."""

_ORDER = {"decision": 0, "snapshot": 1, "announcement": 2, "rejection": 3, "finding": 4, "alert": 5}


def timeline_rows(
    server_id: str, dated: Iterable[Dated], *, since_us: int | None = None, until_us: int | None = None
) -> list[Row]:
    """Return the rows of a server within a time range, oldest first; at equal times, causes before effects.

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


def changes(store: Store, server_id: str, *, tool_name: str | None = None) -> Iterator[Dated]:
    """Yield every change on a server.

    Raises:
        InputError: ``server_not_known``; as ``Store.bindings``.
    """
    yield from observed(server_of(store.bindings(server_id), server_id), tool_name=tool_name)
    for entry in store.findings(server_id):
        if isinstance(entry, Finding) and is_about(entry, server_id, tool_name=tool_name):
            yield entry.time_us, finding_row(entry)
    for content in store.changes(server_id):
        yield from decided(content, tool_name=tool_name)
    for view in map(view_of, store.alert_records(server_id)):
        if tool_name in (None, view.fact("mcp_tool_name") or None):
            yield view.time_ms * 1_000, alert_row(view)


def observed(server: ServerBindings, *, tool_name: str | None = None) -> Iterator[Dated]:
    """Yield snapshots that differ from their observer's previous one (in one tool, or any), and refused ones."""
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


def is_about(finding: Finding, server_id: str, *, tool_name: str | None = None) -> bool:
    return finding.server_id == server_id and tool_name in (None, finding.tool_name, finding.renamed_to)


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


def decided(content: dict[str, Any], *, tool_name: str | None = None) -> Iterator[Dated]:
    data = content["data"]
    about = data.get("tool_name")
    if about is not None and tool_name not in (None, about):
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
    yield time_us_of(content["time"]), present(row)


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
