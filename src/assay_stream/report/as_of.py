"""What was in force on a server at a time: catalogues, pins, policy and keys, with their observers and records.

Read from the bindings of the binding topic or of the snapshot log (``replay.history``). The binding topic keeps a
bounded history; if it does not reach back to the time in question, the report states that and claims nothing.
"""

from collections.abc import Iterator

from assay_stream.bindings.pin_evaluation import pin_evaluation_of
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.signatures import pinned_key
from assay_stream.errors import InputError
from assay_stream.model.facts import Seen
from assay_stream.model.record import Origin
from assay_stream.report.pins import OperatorDecision, Row, decision_row, knows_tool, pins_in_force, present
from assay_stream.text.times import time_text


def forgotten(server: ServerBindings, time_us: int) -> list[Row]:
    """Return a row for each observer whose history at an event time (microseconds) was compacted."""
    return [
        {"what": "forgotten", "observer_id": observer_id, "until": time_text(timeline.horizon_us or 0)}
        for observer_id, timeline in sorted(server.observers.items())
        if timeline.is_folded_at(time_us)
    ]


def asof_rows(server: ServerBindings, server_id: str, time_us: int, *, tool_name: str | None = None) -> list[Row]:
    """Return one row for each thing in force at a time.

    Raises:
        InputError: ``tool_not_known``; ``nothing_known_then`` if nothing was observed or set by that time, and no
            history was compacted.
    """
    check_tool(server, tool_name)
    rows = forgotten(server, time_us)
    for observer_id, timeline in sorted(server.observers.items()):
        seen = timeline.as_of(time_us)
        if seen is None or timeline.is_folded_at(time_us):
            continue
        row = _observation(server, seen, observer_id, time_us)
        rows.append(row)
        if row["state"] == "in_force":
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


def _observation(server: ServerBindings, seen: Seen, observer_id: str, time_us: int) -> Row:
    state = "in_force"
    if not server.in_force(seen, time_us):
        state = "ended_by_rejection"
    elif server.endings.announced(observer_id, seen, time_us) is not None:
        state = "ended_by_announcement"
    return {
        "what": "catalogue",
        "state": state,
        "observer_id": observer_id,
        "value": seen.catalogue,
        "completeness": seen.completeness,
        "snapshot_id": seen.snapshot_id,
        **_placed(seen.time_us, seen.origin),
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
