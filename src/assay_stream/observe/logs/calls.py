"""Shared by all log readers: the entries of files, attribution of logged calls, and their records.

A log's own text (messages, reasons, malformed exception names) is not copied: it may quote arguments.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Literal

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.fields import NotObserved
from assay_stream.observe.observation import Decision, Observation, Prefixes, Vantage, call_event, timing_of
from assay_stream.observe.recorded import OnError, check_observation, numbered, report, stable_id
from assay_stream.plugins import LOGS

SpanKind = Literal["server", "client"]
Split = Callable[[Iterable[bytes]], Iterable[bytes]]

_DURATION_MAX_MS = 366 * 24 * 3_600 * 1_000
_LINE_END = re.compile(r"\r\n|\r|\n")  # of server-sent events; U+2028 may be in a JSON text
_JSONRPC_CODE = re.compile(r"-?[0-9]{1,9}")
_ERROR_CODE = re.compile(r"timeout|cancelled|tool_error|other|[A-Z][A-Za-z]{1,40}(Error|Exception|Timeout)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """Attribution of a log's calls.

    Args:
        vantage: the log's writer, and the server of calls that name none.
        has_default: whether calls may name none.
        servers: the operator's names of servers, by their names in the log, where they differ.
        span_kind: whose spans are calls, in logs where both sides report a call.
    """

    vantage: Vantage
    has_default: bool = True
    servers: Mapping[str, str] = field(default_factory=dict)
    prefixes: Prefixes = field(default_factory=lambda: Prefixes({}))
    span_kind: SpanKind = "server"

    def server(self, named: object) -> str | None:
        return self.servers.get(named, named) if isinstance(named, str) and named.strip() else None

    def of(self, shown: str, server_id: str | None) -> tuple[Vantage, str]:
        """Return the vantage and the server's own name of a tool; raises ``missing_field``."""
        own = self.prefixes.own(shown, server_id=server_id)
        if own.server_id is None and not self.has_default:
            raise InputError("missing_field", "the line names no server: give --server-id or --prefix", path="$")
        server = own.server_id or self.vantage.server_id
        return replace(self.vantage, server_id=server, shown_prefix=own.prefix), own.tool_name


@dataclass(slots=True, kw_only=True)
class Logged:
    """One logged call.

    Args:
        name: the tool's name in the log.
        server_id: the server, if logged.
        identity: unique among calls, and stable across copies of the log.
        call_id: the log's own id of the call.
        ended_at: when it ended, or else when it was logged.
        duration_ms: how long it took.
        ok: whether it succeeded; ``None`` if not logged.
        lacks: facts missing from the log.
    """

    name: str
    identity: tuple[str, ...]
    ended_at: datetime
    server_id: str | None = None
    call_id: str | None = None
    duration_ms: float | None = None
    ok: bool | None = None
    error_code: str | None = None
    decision: Decision = "allow"
    reason_code: str = "forwarded"
    trace: tuple[str, str] | None = None
    args_hash: str | None = None
    result_hash: str | None = None
    lacks: set[NotObserved] = field(default_factory=set)

    def event(self, whose: Whose, counts: Counter[str]) -> Observation:
        """Return the record of the call, and count its missing facts."""
        vantage, tool_name = whose.of(self.name, self.server_id)
        event_id = stable_id(vantage.server_id, vantage.observer_id, *self.identity)
        absent: dict[NotObserved, bool] = {
            "arguments": self.args_hash is None,
            "result": self.result_hash is None and "result_over_limit" not in self.lacks,
            "outcome": self.ok is None,
            "call_id": self.call_id is None,
            "start_time": self.duration_ms is None,
        }
        if self.decision == "deny":
            # What did not happen cannot be lacking.
            self.lacks -= {"result_over_limit"}
            absent |= {"result": False, "outcome": False}
        lacks = sorted(self.lacks | {name for name, is_absent in absent.items() if is_absent})
        try:
            started_at = (self.ended_at - timedelta(milliseconds=self.duration_ms or 0)).astimezone(UTC)
        except OverflowError:
            raise InputError("bad_time", "the call began before the calendar does", path="$") from None
        observation = call_event(
            vantage,
            event_id=event_id,
            observed_at=started_at,
            # A name over the limit is rejected for its length; one character over suffices.
            tool_name=tool_name[: DEFAULT_LIMITS.identifier_chars_max + 1],
            tool_call_id=self.call_id or event_id,
            decision=self.decision,
            reason_code=self.reason_code,
            traceparent=None if self.trace is None else self.trace[0],
            trace_id=None if self.trace is None else self.trace[1],
            not_observed=lacks or None,
            args_hash=self.args_hash,
            result_hash=self.result_hash,
            ok=self.ok,
            error=None if self.error_code is None else {"code": self.error_code},
            timing=None if self.duration_ms is None else timing_of(started_at, self.ended_at, self.duration_ms),
        )
        check_observation(observation)
        counts.update(lacks)
        return observation


def safe_error_code(stated: object) -> str:
    """Return an error code that cannot quote anything: a JSON-RPC code, a known word, or an exception name."""
    text = stated if isinstance(stated, str) else str(stated) if type(stated) is int else ""
    if _JSONRPC_CODE.fullmatch(text):
        return f"jsonrpc_{text}"
    return text if _ERROR_CODE.fullmatch(text) else "error"


def duration_of(stated: object) -> float | None:
    is_number = isinstance(stated, int | float) and not isinstance(stated, bool)
    return float(stated) if is_number and 0 <= stated <= _DURATION_MAX_MS else None  # type: ignore[operator, arg-type]


def required_text(content: Mapping[str, Any], name: str, path: str = "$") -> str:
    value = content.get(name)
    if not isinstance(value, str) or not value:
        raise InputError("missing_field", "the field is required, as text", path=f"{path}.{name}")
    return value


def object_of(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def objects_of(listed: object) -> list[dict[str, Any]]:
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def response_of(logged: object) -> Mapping[str, Any] | None:
    """Return the JSON-RPC response, logged as JSON or as server-sent events; ``None`` if missing or incomplete."""
    if isinstance(logged, dict):
        return logged
    found: Mapping[str, Any] | None = None
    for line in _LINE_END.split(logged) if isinstance(logged, str) else ():
        if line.startswith("data:"):
            try:
                message = decode_json(line[5:].strip().encode("utf-8", "surrogatepass"))
            except InputError:
                return None
            if isinstance(message, dict) and ("result" in message or "error" in message):
                found = message
    return found


_MESSAGE_BYTES_MAX = DEFAULT_LIMITS.record_bytes_max


def from_log(
    name: str, pieces: Iterable[bytes], whose: Whose, counts: Counter[str], *, on_error: OnError | None = None
) -> Iterator[Observation]:
    """Yield a log's observations, always the same; without ``on_error`` the first error is raised.

    Args:
        name: of its reader.
        pieces: the lines of the log; pieces of any size where its reader splits them.
    """
    before, split = sha256(), LOGS.load(name).split
    for number, raw in numbered(pieces) if split is None else enumerate(_apart(name, split, pieces), 1):
        if isinstance(raw, InputError):
            report(raw, number, on_error)
            return
        # Two equal entries are two calls, and an appended log keeps the ids of its entries.
        before.update(sha256(raw).digest())
        for each in _observed(name, raw, before.hexdigest(), whose, counts):
            if isinstance(each, InputError):
                report(each, number, on_error)
            else:
                yield each


def _observed(
    name: str, raw: bytes, identity: str, whose: Whose, counts: Counter[str]
) -> Iterator[Observation | InputError]:
    """Yield what an entry holds, and an error in place of what cannot be read."""
    reader = LOGS.load(name)
    try:
        with LOGS.naming(name):
            try:
                entry = (reader.decode or decode_json)(raw)
            except InputError as error:
                yield error
                if reader.read_unsound is not None:
                    yield from reader.read_unsound(raw, whose)
                return
            if not isinstance(entry, dict):
                raise InputError("not_an_event", "the line must be a JSON object", path="$")
            for each in reader.read(entry, identity, whose, counts):
                if not isinstance(each, Observation | InputError):
                    raise TypeError
                yield each
    except InputError as error:
        yield error


def _apart(name: str, split: Split, pieces: Iterable[bytes]) -> Iterator[bytes | InputError]:
    """Yield the entries of a log, and an error in place of those that cannot be told apart."""
    try:
        with LOGS.naming(name):
            yield from split(pieces)
    except InputError as error:
        yield error


def delimited_messages(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield protocol buffers messages: one, or many with their length (four bytes, big-endian) before them."""
    held, rest = bytearray(), iter(pieces)

    def has(size: int) -> bool:
        while len(held) < size and (piece := next(rest, b"")):
            held.extend(piece)
        return len(held) >= size

    is_one = has(1) and held[0] != 0  # a length begins with 0, a message never does
    while held or has(1):
        length = _MESSAGE_BYTES_MAX if is_one else int.from_bytes(held[:4], "big") if has(4) else 4
        start = 0 if is_one else 4
        if length > _MESSAGE_BYTES_MAX or (is_one and has(_MESSAGE_BYTES_MAX + 1)):
            raise InputError("too_large", f"a message has at most {_MESSAGE_BYTES_MAX} bytes", path="$")
        if not has(start + length) and not is_one:
            raise InputError("bad_format", "the last message is cut short", path="$")
        yield bytes(held[start : start + length])
        del held[: start + length]
