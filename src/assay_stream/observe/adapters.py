"""From recorded traffic to observations: pure generators, the same file gives the same observations.

Nothing is lost silently: every line gives observations, is known to have nothing to say, or is reported with
its number and how to mend it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from assay_stream.canonical.lenient import member_bytes, read_leniently
from assay_stream.errors import InputError
from assay_stream.model.control import PIN_REMOVE_TYPE, PIN_SET_TYPE
from assay_stream.model.observation import CALL_TYPE, LIST_CHANGED_TYPE, SNAPSHOT_TYPE
from assay_stream.observe.assay_log import from_assay_log
from assay_stream.observe.events import DISCOVERY_TYPE, Kind, Observation, observation_headers, timestamp_ms
from assay_stream.observe.jsonrpc import Direction, trace_of
from assay_stream.observe.mcp_wire import WireObserver
from assay_stream.observe.recorded import OnError, StableIds, numbered, parse_rfc3339, report
from assay_stream.observe.vantage import Vantage

__all__ = ["from_assay_log", "from_mcp_wire", "from_observations"]

_DIRECTIONS: dict[Any, Direction] = {
    "client->server": "client->server",
    "server->client": "server->client",
}
_KINDS: dict[str, Kind] = {
    SNAPSHOT_TYPE: "list",
    LIST_CHANGED_TYPE: "list",
    CALL_TYPE: "call",
    PIN_SET_TYPE: "control",
    PIN_REMOVE_TYPE: "control",
    DISCOVERY_TYPE: "control",
}


def from_mcp_wire(
    lines: Iterable[bytes],
    *,
    server_id: str,
    observer_id: str,
    server_scoped: bool = False,
    auth_context: str | None = None,
    on_error: OnError | None = None,
) -> Iterator[Observation]:
    """Yield the observations of a captured connection.

    Args:
        lines: NDJSON: ``{"dir": "client->server" or "server->client", "ts": RFC 3339, "msg": message}``. A
            message that is no JSON stands there as text.
        server_id: the operator's name for the server.
        observer_id: who captured it.
        server_scoped: whether definitions are bound to this server's name.
        auth_context: a name for the rights under which the server was asked.
        on_error: collects the errors of lines that are left out.

    Raises:
        InputError: the first bad line, where nobody collects errors.
        ConfigurationError: ``bad_identifier``.
    """
    vantage = Vantage(
        server_id=server_id, observer_id=observer_id, server_scoped=server_scoped, auth_context=auth_context
    )
    new_id = StableIds(vantage)
    observer: WireObserver | None = None
    at: datetime | None = None
    for number, raw in numbered(iter(lines)):
        new_id.line(raw)
        try:
            direction, at, message = _wire_line(raw)
        except InputError as error:
            report(error, number, on_error)
            continue
        if observer is None:
            observer = WireObserver(vantage, session_id=new_id(), new_id=new_id)
        yield from observer.feed(direction, message, at)
    if observer is not None and at is not None:
        yield from observer.close(at)


def from_observations(lines: Iterable[bytes], *, on_error: OnError | None = None) -> Iterator[Observation]:
    """Yield recorded observations as they are, byte for byte.

    An event is not judged here. One that no stage will accept is published all the same and ends among the
    rejected records with its reason; only a line that does not say where it belongs is an error.

    Args:
        lines: NDJSON of events, as the tap and ``publish --dry-run`` write them.
        on_error: collects the errors of lines that are left out.

    Raises:
        InputError: the first bad line, where nobody collects errors.
    """
    for number, raw in numbered(iter(lines)):
        try:
            yield _recorded(raw)
        except InputError as error:
            report(error, number, on_error)


def _wire_line(raw: bytes) -> tuple[Direction, datetime, bytes]:
    line = _object(raw, '{"dir": ..., "ts": ..., "msg": ...}')
    direction = _DIRECTIONS.get(line["dir"]) if isinstance(line.get("dir"), str) else None
    if direction is None:
        raise InputError("unknown_value", 'the direction must be "client->server" or "server->client"', path="$.dir")
    at = parse_rfc3339(line.get("ts"), path="$.ts")
    # The message's own bytes, not what a parser made of them: it is hashed as it passed.
    message = member_bytes(raw, "msg")
    if message is None:
        raise InputError("missing_field", "the message is missing: add it", path="$.msg")
    if isinstance(line["msg"], str):
        message = line["msg"].encode("utf-8", "replace")
    return direction, at, message


def _recorded(raw: bytes) -> Observation:
    event = _object(raw, "one event")
    kind = _KINDS.get(event["type"]) if isinstance(event.get("type"), str) else None
    if kind is None:
        raise InputError("unknown_type", f"only events of type {', '.join(_KINDS)} are published", path="$.type")
    data = event.get("data")
    server_id = data.get("server_id") if isinstance(data, dict) else None
    if not isinstance(server_id, str) or not server_id:
        raise InputError(
            "missing_field", "the event does not name its server, so it has no place", path="$.data.server_id"
        )
    trace = trace_of(event.get("traceparent"))
    return Observation(
        kind=kind,
        key=server_id.encode("utf-8", "replace"),
        value=raw,
        headers=observation_headers(None if trace is None else trace[0], observer_id=_observer_of(data)),
        timestamp_ms=timestamp_ms(parse_rfc3339(event.get("time"), path="$.time")),
    )


def _observer_of(data: Any) -> str | None:
    observer_id = data.get("observer_id") if isinstance(data, dict) else None
    try:
        return observer_id if isinstance(observer_id, str) and observer_id.encode() else None
    except UnicodeEncodeError:
        return None


def _object(raw: bytes, what: str) -> dict[str, Any]:
    # Forgiving on purpose: an unsound message was observed all the same, and its refusal is due later.
    content = read_leniently(raw)
    if not isinstance(content, dict):
        raise InputError("not_json", f"the line must be {what} as a JSON object", path="$")
    return content
