"""What was in force on a server at a time, every change of it with its evidence, and one call from end to end.

Read from the bindings of the binding topic or of the snapshot log (``replay.history``). The binding topic keeps a
bounded history; if it does not reach back to the time in question, the report states that and claims nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from assay_stream.alerts.view import AlertView, view_of
from assay_stream.bindings.checks import pin_evaluation_of, pinned_key
from assay_stream.bindings.server import ServerBindings
from assay_stream.errors import InputError
from assay_stream.limits import STORE_PAGE_ROWS_MAX
from assay_stream.model.cloudevents import event_time_us, read_whole_call
from assay_stream.model.facts import Rejection, Seen
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import INVENTORY
from assay_stream.model.observation import CallEvent, CallProfile
from assay_stream.model.record import Origin, Record
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import EvidenceFilter, EvidenceRecord, EvidenceRow, Page, Paging
from assay_stream.report.pins import OperatorDecision, Row, decision_row, knows_tool, pins_in_force, present, server_of
from assay_stream.text.escaping import counted
from assay_stream.text.times import time_text, time_us_of
from assay_stream.verify.evidence import intact_content, origin_in


def asof_rows(server: ServerBindings, server_id: str, time_us: int, *, tool_name: str | None = None) -> list[Row]:
    """Return one row for each thing in force at a time.

    Raises:
        InputError: ``tool_not_known``; ``nothing_known_then`` if nothing was observed or set by that time, and no
            history was compacted.
    """
    check_tool(server, tool_name)
    observers = sorted(server.observers.items())
    rows: list[Row] = [
        {"what": "forgotten", "observer_id": observer_id, "until": time_text(timeline.horizon_us or 0)}
        for observer_id, timeline in observers
        if timeline.is_folded_at(time_us)
    ]
    for observer_id, timeline in observers:
        seen = timeline.as_of(time_us)
        if seen is None or timeline.is_folded_at(time_us):
            continue
        state = "in_force"
        if not server.in_force(seen, time_us):
            state = "ended_by_rejection"
        elif server.endings.announced(observer_id, seen, time_us) is not None:
            state = "ended_by_announcement"
        row = {"what": "catalogue", "state": state, "observer_id": observer_id, "value": seen.catalogue}
        row |= {"completeness": seen.completeness, "snapshot_id": seen.snapshot_id}
        rows.append(row | _placed(seen.time_us, seen.origin))
        if state == "in_force":
            rows.extend(_tools(server, seen, time_us, tool_name))
    rows.extend(_announcements(server, time_us))
    rows.extend(_rejections(server, time_us))
    rows.extend(_pins(server, time_us, tool_name))
    rows.extend(_policies(server, time_us, tool_name))
    rows.extend(_keys(server, time_us, tool_name))
    if not rows:
        raise InputError("nothing_known_then", "nothing was observed or set on this server by that time")
    return [{"server_id": server_id, **row} for row in rows]


def check_tool(server: ServerBindings, tool_name: str | None) -> None:
    """Check that a list or a decision ever named the tool.

    Raises:
        InputError: ``tool_not_known``.
    """
    if tool_name is not None and not knows_tool(server, tool_name):
        raise InputError("tool_not_known", "no list and no decision names this tool on the server: check --tool")


def _rejections(server: ServerBindings, time_us: int) -> Iterator[Row]:
    """Yield the latest rejection without an observer, and the latest of each observer."""
    latest = {bad.observer_id: bad for bad in server.rejections if bad.time_us <= time_us}
    for observer_id, bad in sorted(latest.items(), key=lambda item: item[0] or ""):
        row = {"what": "rejection", "code": bad.code, "observer_id": observer_id, "since": time_text(bad.time_us)}
        yield present(row) | {"origin": bad.origin.as_json()}


def _announcements(server: ServerBindings, time_us: int) -> Iterator[Row]:
    """Yield the changes announced to observers that have seen no list since."""
    for observer_id in sorted(filter(None, server.endings.announcements)):
        timeline = server.observers.get(observer_id)
        seen = None if timeline is None else timeline.as_of(time_us)
        end = server.endings.announced(observer_id, seen, time_us)
        if end is not None:
            yield {
                "what": "announcement",
                "observer_id": observer_id,
                "snapshot_id": None if seen is None else seen.snapshot_id,
                **_placed(end.time_us, end.origin),
            }


def _tools(server: ServerBindings, seen: Seen, time_us: int, tool_name: str | None) -> Iterator[Row]:
    catalogue = server.catalogue_of(seen)
    for name, full in sorted(catalogue.tools.items()):
        if tool_name not in (None, name):
            continue
        found = None if full is None else server.fingerprint_of(catalogue, full)
        evaluation = pin_evaluation_of(server, seen, found, name, time_us)
        signature = evaluation.signature
        is_hidden = all((name, each) in seen.hidden for each in catalogue.definitions_of(name))
        yield {
            "what": "tool",
            "state": "hidden" if is_hidden else "ambiguous" if full is None else "offered",
            "tool_name": name,
            "observer_id": seen.observer_id,
            "value": None if found is None else found.definition_digest(),
            "full_digest": full,
            "pin": evaluation.pin.status.value,
            "action": None if evaluation.pin.action is None else evaluation.pin.action.value,
            "signature": None if signature is None else signature.error_code or "valid",
            "snapshot_id": seen.snapshot_id,
            **_placed(seen.time_us, seen.origin),
        }


def _pins(server: ServerBindings, time_us: int, tool_name: str | None) -> Iterator[Row]:
    for name, history in sorted(server.controls.pins.items()):
        if tool_name in (None, name):
            for scheme, value, state, last in pins_in_force([act for act in history if act.time_us <= time_us]):
                row = {"what": "pin", "state": state.value, "tool_name": name, "scheme": scheme, "value": value}
                yield row | _decided(last)


def _policies(server: ServerBindings, time_us: int, tool_name: str | None) -> Iterator[Row]:
    for policy in server.controls.policies_as_of(time_us):
        if policy.tool_name is None or tool_name in (None, policy.tool_name):
            yield {
                "what": "policy",
                "tool_name": policy.tool_name or "*",
                "value": f"{policy.enforcement}, unknown {policy.unknown}",
                "enforcement": policy.enforcement,
                "unknown": policy.unknown,
            } | _decided(policy)


def _keys(server: ServerBindings, time_us: int, tool_name: str | None) -> Iterator[Row]:
    controls = server.controls
    for domain in sorted(controls.discoveries):
        documents = [found for found in controls.discoveries_as_of(domain, time_us) if found.status == "observed"]
        if documents:
            last = documents[-1]
            yield {
                "what": "key",
                "state": "observed",
                "domain": domain,
                "value": last.fingerprint,
                "revoked": list(last.revoked),
                **_placed(last.time_us, last.origin),
            }
    for (domain, name), use in sorted(controls.first_uses.items()):
        if use.time_us <= time_us and tool_name in (None, name):
            pinned = pinned_key(controls, domain, name, time_us)
            yield {
                "what": "key",
                "state": "pinned" if pinned == use.fingerprint else "superseded",
                "domain": domain,
                "tool_name": name,
                "value": use.fingerprint,
                **_placed(use.time_us, use.origin),
            }
    for decision in controls.key_acts_as_of(time_us):
        if tool_name is None or decision.tool_name in (None, tool_name):
            yield {
                "what": "key",
                "state": "accepted" if decision.act == "accept" else "revoked",
                "domain": decision.domain or "*",
                "tool_name": decision.tool_name or "*",
                "value": decision.fingerprint,
            } | _decided(decision)


def _decided(fact: OperatorDecision) -> Row:
    return decision_row(fact) | {"origin": fact.origin.as_json()}


def _placed(time_us: int, origin: Origin) -> Row:
    return {"since": time_text(time_us), "origin": origin.as_json()}


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
            yield entry.time_us, {"what": "finding", **finding_row(entry)}
    for content in store.changes(server_id):
        yield from decided(content, tool_name=tool_name)
    for view in map(view_of, store.alert_records(server_id)):
        if tool_name in (None, view.fact("mcp_tool_name") or None):
            yield view.time_ms * 1_000, {"what": "alert", **alert_row(view)}


def observed(server: ServerBindings, *, tool_name: str | None = None) -> Iterator[Dated]:
    """Yield snapshots that differ from their observer's previous one (in one tool, or any), and refused ones."""
    for timeline in server.observers.values():
        before: Seen | None = None
        for seen in timeline:
            now = server.catalogue_of(seen).tools
            was: Mapping[str, str | None] = {} if before is None else server.catalogue_of(before).tools
            changed = sorted(name for name in now.keys() | was.keys() if now.get(name, "") != was.get(name, ""))
            count = counted(len(changed), *(("tool",) if before is None else ("tool differs", "tools differ")))
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
    row: Row = {"kind": finding.kind.value}
    row |= {name: getattr(finding, name) for name in ("tool_name", "observer_id", "snapshot_id")}
    row |= {"detail": ", ".join(finding.changed_fields) or finding.reason}
    row |= {"before": finding.before, "after": finding.after, "value": finding.after}
    return present(row | {"uid": finding.uid(), "origin": finding.origin.as_json()})


def decided(content: dict[str, Any], *, tool_name: str | None = None) -> Iterator[Dated]:
    data = content["data"]
    about = data.get("tool_name")
    if about is not None and tool_name not in (None, about):
        return
    row = {"what": "decision", "kind": data.get("change"), "tool_name": about}
    row |= {name: data.get(name) for name in ("author", "reason", "scheme")}
    row |= {"value": data.get("value") or data.get("key_fingerprint") or data.get("rule_id")}
    row |= {name: data.get(name) for name in ("enforcement", "unknown", "replaces")}
    row |= {"detail": data.get("enforcement") or data.get("scheme") or data.get("domain")}
    row |= {"id": content.get("id"), "origin": data.get("origin")}
    yield time_us_of(content["time"]), present(row)


def alert_row(view: AlertView) -> Row:
    row = {
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


TRACED_MAX = STORE_PAGE_ROWS_MAX
"""Calls of one trace that are shown."""

_PLAIN = re.compile(r"[A-Za-z0-9._:-]+")
"""Text that has one form in JSON, in practice; anything else is searched for the slow way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """The calls to trace: by tool call id, trace id, or both."""

    tool_call_id: str | None = None
    trace_id: str | None = None

    def may_be_in(self, value: bytes | None) -> bool:
        """Return False if the record cannot be a traced call or its evidence."""
        return value is not None and all(
            text is None or _PLAIN.fullmatch(text) is None or text.encode() in value
            for text in (self.tool_call_id, self.trace_id)
        )

    def is_in(self, data: object) -> bool:
        """Return True for the data of a traced call or its evidence."""
        return isinstance(data, dict) and all(
            wanted is None or data.get(name) == wanted
            for name, wanted in (("tool_call_id", self.tool_call_id), ("trace_id", self.trace_id))
        )

    def call_in(self, record: Record, call_profile: CallProfile = "assay") -> CallEvent | None:
        """Return the call in a record of the calls topic, ``None`` if it is refused or not traced."""
        if not self.may_be_in(record.value):
            return None
        try:
            event = read_whole_call(record, call_profile=call_profile)
        except InputError:
            return None
        return event if self.is_in(event.data) else None


def traced(store: Store, sought: Sought) -> list[EvidenceRecord]:
    """Return the evidence of the traced calls, by event time: the latest ``TRACED_MAX``."""
    # An id of another kind, or any digest, can have the same text: who calls may choose it.
    wanted = EvidenceFilter(digest=sought.trace_id if sought.tool_call_id is None else sought.tool_call_id)
    found: list[EvidenceRecord] = []
    page: Page[EvidenceRow] | None = None
    while len(found) < TRACED_MAX and (page is None or page.following is not None):
        page = store.evidence(wanted, Paging(limit=TRACED_MAX, after=None if page is None else page.following))
        wholes = filter(None, (store.evidence_of(row.reference) for row in page.rows))
        found += [whole for whole in wholes if sought.is_in(orjson.loads(whole.value)["data"])]
    return found[:TRACED_MAX][::-1]


def trace_rows(store: Store, evidence: Sequence[EvidenceRecord]) -> list[Row]:
    bindings = store.bindings(*{whole.row.server_id for whole in evidence}) if evidence else None
    rows = []
    for number, whole in enumerate(evidence, start=1):
        server = None if bindings is None else bindings.find(whole.row.server_id)
        rows += [{"call": number, **row} for row in _rows(store, server, whole)]
    return rows


def pending_rows(calls: Iterable[tuple[Origin, CallEvent]]) -> list[Row]:
    """Return rows for calls without evidence so far."""
    rows: list[Row] = []
    for number, (origin, event) in enumerate(calls, start=1):
        call = _call_row(origin, time_text(event_time_us(event)), {**event.data, "tool": event.data["tool_name"]})
        rows += [{"call": number, **row} for row in (call, {"step": "evidence", "state": "none_yet"})]
    return rows


def _rows(store: Store, server: ServerBindings | None, whole: EvidenceRecord) -> Iterator[Row]:
    content = orjson.loads(whole.value)
    data = content["data"]
    call, snapshot = origin_in(data, "origin"), origin_in(data.get("binding"), "origin")
    yield _call_row(call, time_text(whole.row.time_us), data)
    if snapshot is not None:
        yield _snapshot_row(server, snapshot)
    yield _evidence_row(whole, content)
    findings = [
        entry
        for entry in store.findings(data["server_id"])
        if isinstance(entry, Finding)
        and entry.kind not in INVENTORY
        and entry.origin in (call, snapshot)
        and (entry.tool_name is None or is_about(entry, data["server_id"], tool_name=data["tool"]))
    ]
    for finding in findings:
        yield {"step": "finding", "time": time_text(finding.time_us), **finding_row(finding)}
    uids = {finding.uid() for finding in findings}
    for view in map(view_of, store.alert_records(data["server_id"])) if uids else ():
        if view.uid in uids:
            yield {"step": "alert", "time": time_text(view.time_ms * 1_000), **alert_row(view)}


def _call_row(origin: Origin | None, time: str, data: Mapping[str, Any]) -> Row:
    return {
        "step": "call",
        "origin": None if origin is None else origin.as_json(),
        "state": "observed",
        "time": time,
        "server_id": data["server_id"],
        "tool_name": data["tool"],
        "observer_id": data["observer_id"],
        "tool_call_id": data["tool_call_id"],
        "trace_id": data.get("trace_id"),
        "value": data.get("decision"),
        "detail": ", ".join([str(data.get("reason_code")), *_course(data)]),
    }


def _course(data: Mapping[str, Any]) -> Iterable[str]:
    """Yield what is unusual in the course of a call."""
    if "rounds" in data:
        yield f"{data['rounds']} rounds"
    if data.get("unmatched_retry"):
        yield "retry of no known call"
    for name, count in (data.get("inputs") or {}).items():
        if type(count) is int:
            yield f"{count} {name}"
    if data.get("task"):
        yield f"task {data['task'].get('status')}"


def _snapshot_row(server: ServerBindings | None, origin: Origin) -> Row:
    row: Row = {"step": "snapshot", "origin": origin.as_json()}
    timelines = () if server is None else server.observers.values()
    seen = next((seen for timeline in timelines for seen in timeline if seen.origin == origin), None)
    if server is None or seen is None:
        return row | {"state": "gone"}
    tools = sum(1 for _ in server.catalogue_of(seen).definitions())
    return row | {
        "state": "observed",
        "time": time_text(seen.time_us),
        "observer_id": seen.observer_id,
        "snapshot_id": seen.snapshot_id,
        "detail": f"{seen.completeness}, {counted(tools, 'tool')}",
    }


def _evidence_row(whole: EvidenceRecord, content: Mapping[str, Any]) -> Row:
    data = content["data"]
    binding, pin = data["binding"], data.get("pin")
    return {
        "step": "evidence",
        "state": "written" if intact_content(whole.value) is not None else "content_hash_mismatch",
        "time": content["time"],
        "tool_name": data["tool"],
        "scope": binding["scope"],
        "value": data.get("tool_definition_digest") or data.get("unbound_reason"),
        "detail": f"scope {binding['scope']}",
        "pin": pin.get("status") if isinstance(pin, dict) else None,
        "id": content["id"],
        "where": str(whole.row.origin),
    }
