"""Turns recorded traffic and operators' decisions into observations: the same file yields the same observations.

Nothing is lost silently: every line yields observations, is known to have none, or is reported with its number and
how to fix it. ``on_error`` collects the errors of skipped lines; without it the first bad line raises an
``InputError``. A bad name raises a ``ConfigurationError``, ``bad_identifier``.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, TypeVar, cast
from urllib.parse import quote

from assay_stream.canonical.decode import decode_json, is_unicode, member_bytes, read_leniently
from assay_stream.canonical.digest import redacted_digest
from assay_stream.errors import InputError
from assay_stream.model.cloudevents import read_event
from assay_stream.model.control import DISCOVERY_TYPE, PIN_REMOVE_TYPE, PIN_SET_TYPE
from assay_stream.model.evidence import EVIDENCE_TYPE
from assay_stream.model.observation import CallFacts
from assay_stream.model.record import Origin, Record
from assay_stream.observe.observation import (
    KIND_OF,
    Observation,
    ObservationKind,
    Vantage,
    call_event,
    control_event,
    observation_headers,
)
from assay_stream.observe.session import Session
from assay_stream.observe.wire import Direction, trace_of
from assay_stream.schemes import assay_tool as assay
from assay_stream.text.times import timestamp_ms


def decision_event(
    kind: str, data: Mapping[str, Any], *, author: str, event_id: str, decided_at: datetime
) -> Observation:
    """Return the event of an operator's decision, checked as the stream will check it."""
    for name, value in {**data, "author": author}.items():
        # A shell passes bytes that are not UTF-8 on as surrogates.
        if isinstance(value, str) and not is_unicode(value):
            raise InputError("lone_surrogate", "a lone surrogate is not Unicode text", path=f"$.data.{name}")
    given = {name: value for name, value in data.items() if value is not None}
    source = f"urn:assay-stream:operator:{quote(author, safe='')}"
    observation = control_event(source, kind, given, event_id=event_id, at=decided_at)
    check_observation(observation)
    return observation


def check_observation(observation: Observation) -> None:
    """Raise the ``InputError`` with which the stream would reject an observation."""
    read_event(
        Record(
            role=observation.role,
            origin=Origin(topic="", partition=0, offset=0),
            key=observation.key,
            value=observation.value,
            headers=observation.headers,
            timestamp_ms=observation.timestamp_ms,
        )
    )


T = TypeVar("T")
OnError = Callable[[InputError], None]

_NAMESPACE = uuid.UUID("6f7c3f0e-5d2b-5a53-9d0c-1f2a2f3b9c11")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_DIRECTIONS: dict[Any, Direction] = {"client->server": "client->server", "server->client": "server->client"}
_KINDS: dict[str, ObservationKind] = {
    **KIND_OF,
    **dict.fromkeys((PIN_SET_TYPE, PIN_REMOVE_TYPE, DISCOVERY_TYPE), "control"),
}
_TIME_FIELDS = ("time", "ts", "timestamp")
_NOT_COPIED = {"profile", "trace_id", "args_ref", "result_ref", "error", "idempotency_key", "transport"}
_COPIED = [name for name in CallFacts.__annotations__ if name not in _NOT_COPIED]


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
        lines: NDJSON: ``{"dir": "client->server" or "server->client", "ts": RFC 3339, "msg": message}``. A message
            that is not JSON is a string there.
    """
    vantage = Vantage(
        server_id=server_id, observer_id=observer_id, server_scoped=server_scoped, auth_context=auth_context
    )
    new_id = StableIds(vantage)
    observer: Session | None = None

    def read(raw: bytes) -> tuple[Direction, datetime, bytes]:
        new_id.line(raw)
        return _wire_line(raw)

    for direction, at, message in _each(lines, read, on_error):
        if observer is None:
            observer = Session(vantage, session_id=new_id(), new_id=new_id)
        yield from observer.feed(direction, message, at)
    if observer is not None:
        yield from observer.close(at)


def from_observations(lines: Iterable[bytes], *, on_error: OnError | None = None) -> Iterator[Observation]:
    """Yield recorded observations unchanged, byte for byte.

    Events are not validated here: one that no stage accepts is published anyway and ends among the rejected
    records with its reason. Only a line without a destination is an error.
    """
    yield from _each(lines, recorded_observation, on_error)


def from_assay_log(
    lines: Iterable[bytes], *, server_id: str, observer_id: str, on_error: OnError | None = None
) -> Iterator[Observation]:
    """Yield a call observation for every decision in Assay's runtime decision log; other events are skipped.

    A line is the stable payload of ``assay.tool.decision``, alone or in a CloudEvents envelope. A definition digest
    in the log is not copied: digests come only from observed lists.
    """
    vantage = Vantage(server_id=server_id, observer_id=observer_id)
    new_id = StableIds(vantage)

    def read(raw: bytes) -> Observation | None:
        new_id.line(raw)
        observation = _decision(vantage, raw, new_id)
        if observation is not None:
            # Reject here what the join would reject, while the line's number is still known.
            check_observation(observation)
        return observation

    yield from (each for each in _each(lines, read, on_error) if each is not None)


class StableIds:
    """Generate ids that depend only on the vantage and on every line read so far.

    A file therefore yields the same ids on every read, even after lines were appended.
    """

    def __init__(self, vantage: Vantage) -> None:
        self._hash = sha256(f"{vantage.server_id}\0{vantage.observer_id}\0".encode())
        self._count = 0

    def line(self, raw: bytes) -> None:
        self._hash.update(sha256(raw).digest())
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return stable_id(self._hash.hexdigest(), str(self._count))


def parse_rfc3339(text: object, *, path: str) -> datetime:
    """Parse an RFC 3339 time with offset; raises ``bad_time`` at ``path``."""
    if isinstance(text, str) and _RFC3339.fullmatch(text):
        try:
            moment = datetime.fromisoformat(text.upper())
            moment.astimezone(UTC)  # overflows at either end of the calendar
        except (ValueError, OverflowError):
            pass
        else:
            return moment
    raise InputError("bad_time", "write the time as RFC 3339, for example 2026-11-21T02:06:07.386Z", path=path)


def report(error: InputError, number: int, on_error: OnError | None) -> None:
    """Pass on a line's error with its number (from 1); raise it if there is no ``on_error``."""
    located = InputError(error.code, f"line {number}: {error.message}", path=error.path)
    if on_error is None:
        raise located from None
    on_error(located)


def _each(lines: Iterable[bytes], read: Callable[[bytes], T], on_error: OnError | None) -> Iterator[T]:
    """Yield what is read of each line, and report the lines that cannot be read."""
    for number, raw in numbered(lines):
        try:
            found = read(raw)
        except InputError as error:
            report(error, number, on_error)
        else:
            yield found


def numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(lines, start=1):
        raw = line.strip(b" \t\r\n")
        if raw:
            yield number, raw


def stable_id(*parts: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, "\0".join(parts)))


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


def recorded_observation(raw: bytes) -> Observation:
    """Return an event, byte for byte and not validated; raises ``InputError`` if it has no destination."""
    event = _object(raw, "one event")
    kind = _KINDS.get(event["type"]) if isinstance(event.get("type"), str) else None
    if kind is None:
        raise InputError("unknown_type", f"only events of type {', '.join(_KINDS)} are published", path="$.type")
    data = event.get("data")
    server_id = data.get("server_id") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(server_id, str) or not server_id:
        raise InputError("missing_field", "the event does not name its server: add it", path="$.data.server_id")
    observer_id = data.get("observer_id")
    trace = trace_of(event.get("traceparent"))
    return Observation(
        kind=kind,
        key=server_id.encode("utf-8", "replace"),
        value=raw,
        headers=observation_headers(
            None if trace is None else trace[0],
            observer_id=observer_id
            if isinstance(observer_id, str) and observer_id and is_unicode(observer_id)
            else None,
        ),
        timestamp_ms=timestamp_ms(parse_rfc3339(event.get("time"), path="$.time")),
    )


def _object(raw: bytes, what: str) -> dict[str, Any]:
    # Lenient on purpose: an unsound message was observed all the same, and is rejected later.
    content = read_leniently(raw)
    if not isinstance(content, dict):
        raise InputError("not_json", f"the line must be {what} as a JSON object", path="$")
    return content


def _decision(vantage: Vantage, raw: bytes, new_id: StableIds) -> Observation | None:
    line = decode_json(raw)
    if not isinstance(line, dict):
        raise InputError("not_an_event", "the line must be one decision as a JSON object", path="$")
    enveloped = "specversion" in line
    if enveloped and line.get("type") != EVIDENCE_TYPE:
        return None
    payload, path = (line.get("data"), "$.data") if enveloped else (line, "$")
    if not isinstance(payload, dict):
        raise InputError("wrong_type", "the decision must be a JSON object", path=path)
    assay.check_definition_cluster(payload)
    event_id = new_id()
    if enveloped and isinstance(line.get("source"), str) and isinstance(line.get("id"), str):
        # The same decision in another copy of the log is the same observation.
        event_id = stable_id(vantage.server_id, vantage.observer_id, line["source"], line["id"])
    trace = trace_of(line.get("traceparent", payload.get("traceparent")))
    return call_event(
        vantage,
        event_id=event_id,
        observed_at=_time(line, payload),
        tool_name=_required(payload, "tool", path),
        tool_call_id=payload.get("tool_call_id", event_id),
        decision=_required(payload, "decision", path),
        reason_code=_required(payload, "reason_code", path),
        traceparent=None if trace is None else trace[0],
        **_fields(payload, trace),
    )


def _fields(payload: Mapping[str, Any], trace: tuple[str, str] | None) -> CallFacts:
    copied: dict[str, Any] = {name: payload[name] for name in _COPIED if name in payload}
    copied["trace_id"] = payload.get("trace_id", None if trace is None else trace[1])
    for name in ("args", "result"):
        if name in payload and f"{name}_hash" not in payload:
            copied[f"{name}_hash"] = str(redacted_digest(payload[name]))
    error = payload.get("error")
    if isinstance(error, dict) and "code" in error:
        copied["error"] = {"code": error["code"]}  # a message may quote arguments
    return cast("CallFacts", copied)  # check_observation has the last word


def _time(line: Mapping[str, Any], payload: Mapping[str, Any]) -> datetime:
    for place, path in ((line, "$"), (payload, "$.data")):
        for name in _TIME_FIELDS:
            if name in place:
                return parse_rfc3339(place[name], path=f"{path}.{name}")
    raise InputError("missing_field", "the decision has no time: add it in RFC 3339", path="$.time")


def _required(payload: Mapping[str, Any], name: str, path: str) -> Any:
    if name not in payload:
        raise InputError("missing_field", "the field is required: add it", path=f"{path}.{name}")
    return payload[name]
