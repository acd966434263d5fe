"""JSON-RPC 2.0 messages in MCP framing, and what the observers of one connection share about them."""

from __future__ import annotations

import json
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Generic, Literal, TypeVar

from assay_stream.canonical.decode import decode_json, read_leniently
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.observe.observation import Observation, Vantage

Direction = Literal["client->server", "server->client"]
RequestKey = tuple[bool, int | float | str | bytes] | tuple[bool, int | float | str | bytes, int]
"""A request's id and whether it is a string: ``1`` and ``"1"`` are two ids. Over HTTP, where many clients share a
connection, the number of the exchange goes with them. Thousands of requests may wait, so a long id is only hashed."""

_ID_CHARS_MAX = DEFAULT_LIMITS.identifier_chars_max // 2

BLANKS = b" \t\r\n"
"""Whitespace allowed around a message on its line."""

BLOCKED_CODE = -32050
"""Error code of a blocked call, in the implementation-defined range."""

INVALID_REQUEST_CODE = -32600

HEADER_MISMATCH_CODE = -32020
"""Error code of MCP 2026-07-28 for a request whose headers and message differ."""

NOT_RULED_ON = "the line could not be ruled on; it was not passed on"

_MEMBERS = frozenset(
    ("id", "method", "params", "result", "error", "name", "arguments", "cursor", "tools", "nextCursor")
)
_FOLDED_MEMBERS = frozenset(name.casefold() for name in _MEMBERS)
_TOOL_MEMBERS = frozenset(
    ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "execution", "_meta")
)
_FOLDED_TOOL_MEMBERS = frozenset(name.casefold() for name in _TOOL_MEMBERS)
_ID_MAX = 2**256
"""No client counts its requests so far."""
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a wire.

    Args:
        messages: its messages; empty if no parser could read it.
        exact: whether the strict decoder accepts it, so that its content may be hashed.
        sure: whether every program that reads it finds the same messages.
    """

    messages: tuple[dict[str, Any], ...]
    exact: bool
    batch: bool = False
    whole: bool = True
    sure: bool = True


def read_line(raw: bytes, limits: Limits) -> Line:
    """Parse the messages of a line; never raises."""
    exact = sure = True
    try:
        content = decode_json(raw, limits=limits)
    except InputError as error:
        # Found last, in what is sound otherwise.
        exact, sure = False, error.code == "lone_surrogate"
        content = read_leniently(raw)
    batch = isinstance(content, list)
    parts = content if batch else [content]
    messages = tuple(part for part in parts if isinstance(part, dict))
    return Line(messages, exact, batch=batch, whole=len(messages) == len(parts), sure=sure)


LINE_BREAK = re.compile(rb"\r")
"""What some programs treat as a line end."""

EVENT_BREAK = re.compile(rb"(?:\xe2\x80[\xa8\xa9]|\xc2\x85){2}")
"""What some programs treat as the end of a server-sent event: they split lines as Python's ``splitlines`` does."""


def is_ambiguous(line: Line, raw: bytes, breaks: re.Pattern[bytes] | None = LINE_BREAK) -> bool:
    """Return True if programs may read a line differently although it is sound JSON.

    Some see an end of the message within it, and another message after that. Some ignore case, so that they read
    ``Method`` as ``method`` and find a message where others find none.
    """
    if breaks is not None and breaks.search(raw.strip(BLANKS)) is not None:
        return True
    for message in line.messages:
        tools = [tool for tool in listed_in(message) or () if isinstance(tool, dict)]
        if is_misread(message) or any(map(_has_misread_tool_member, tools)):
            return True
    return False


def is_misread(message: Mapping[str, Any]) -> bool:
    """Return True if programs which ignore case find another message, or another list in it."""
    parts = (message, message.get("params"), message.get("result"))
    return any(misread_members(part) for part in parts if isinstance(part, dict))


def misread_members(part: Mapping[str, Any]) -> list[str]:
    """Return the members that programs which ignore case take for others."""
    return [key for key in part if key not in _MEMBERS and key.casefold() in _FOLDED_MEMBERS]


def may_be_misread(line: Line, raw: bytes, breaks: re.Pattern[bytes] | None = LINE_BREAK) -> bool:
    """Return True if some program may find other messages in a line than those parsed here."""
    return not (line.sure and line.whole) or is_ambiguous(line, raw, breaks)


def _has_misread_tool_member(tool: Mapping[str, Any]) -> bool:
    return any(key not in _TOOL_MEMBERS and key.casefold() in _FOLDED_TOOL_MEMBERS for key in tool)


def is_response(message: Mapping[str, Any]) -> bool:
    """Return True if a server's message answers a request.

    Common clients also take an answer whose ``method`` or ``params`` no request can have.
    """
    if "method" not in message:
        return True
    is_request = isinstance(message["method"], str) and isinstance(message.get("params"), dict | None)
    return not is_request and ("result" in message or "error" in message)


def listed_in(message: Mapping[str, Any]) -> list[Any] | None:
    """Return the tools array in a response, whichever request it answers; ``None`` if it has none."""
    result = message.get("result")
    tools = result.get("tools") if isinstance(result, dict) else None
    return tools if isinstance(tools, list) else None


_MAY_LIST = re.compile(
    rb'"(?:t|\\u00[57]4)(?:(?:o|\\u00[46]f)){2}(?:l|\\u00[46]c)(?:s|\xc5\xbf|\\u00[57]3|\\u017f)"|\0', re.IGNORECASE
)
"""A member that some program may take for ``tools``, in any spelling, or a body that is not UTF-8 at all."""


def may_list(raw: bytes) -> bool:
    """Return True if some program may find a list of tools in a message, however it parses JSON and joins lines."""
    # Some clients join the lines of an event without a break, and strip each of them before.
    return _MAY_LIST.search(raw.translate(None, BLANKS)) is not None


def is_unread_list(line: Line, raw: bytes) -> bool:
    """Return True if a server's message has no reading, but may be a list to some clients.

    They read JSON in other encodings than UTF-8, or half a line.
    """
    return not line.messages and may_list(raw)


def request_key(value: object, exchange: int = 0) -> RequestKey | None:
    """Return the key of a request's ``id`` in an exchange (0: any); ``None`` if it is none."""
    if isinstance(value, str):
        kept = value if len(value) <= _ID_CHARS_MAX else text_hash(f'"{value}"')
        return (True, kept, exchange) if exchange else (True, kept)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (False, value, exchange) if exchange else (False, value)
    return None


def text_hash(text: str) -> bytes:
    """Return the SHA-256 of foreign text, which may be long."""
    return sha256(text.encode("utf-8", "backslashreplace")).digest()


def answer_keys(value: object, exchange: int = 0) -> list[RequestKey]:
    """Return the requests that a response with this ``id`` may answer, most likely first.

    A response on the stream of an exchange answers a request of that exchange, or of an earlier
    one whose stream broke.

    Common clients convert a string id to a number before they look up their request. A server that answers 2
    with "2" reaches such a client, and must not escape observation this way.
    """
    number = _number(value) if isinstance(value, str) else None
    keys = [
        request_key(each, scope)
        for scope in ((exchange, 0) if exchange else (0,))
        for each in ((value,) if number is None else (value, number))
    ]
    return [key for key in keys if key is not None]


def error_of(code: int, text: str, name: str, /, **detail: Any) -> dict[str, Any]:
    """Return an error of ours; ``name`` is its stable code."""
    return {"code": code, "message": f"assay-stream: {text}", "data": {"code": name, **detail}}


def failure(name: str, text: str) -> bytes:
    """Return an error of ours that answers no request: its id is null (JSON-RPC 2.0, section 5)."""
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": error_of(BLOCKED_CODE, text, name)}).encode()


def params_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def meta_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def trace_of(traceparent: object) -> tuple[str, str] | None:
    """Return a W3C ``traceparent`` and its trace id."""
    if not isinstance(traceparent, str):
        return None
    match = _TRACEPARENT.fullmatch(traceparent)
    return None if match is None else (traceparent, match[1])


def _number(text: str) -> int | float | None:
    """Return the number JavaScript would convert a string to; accepting more strings than it does is harmless."""
    stripped = text.replace("\ufeff", "").strip()
    # By its value, not its length: any number of zeros may precede or follow the digits.
    for number_of in (lambda: int(stripped or "0", 0), lambda: float(stripped)):
        with suppress(ValueError):
            number = number_of()
            return number if abs(number) < _ID_MAX else None
    return None


T = TypeVar("T")
Name = TypeVar("Name", bound=Hashable)

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True, kw_only=True)
class WireStats:
    """Counts since the wire opened.

    Args:
        list_changes: announced changes of the tools; repeats without a list in between are not all published.
        malformed_lines: lines no parser can read.
        missed_lines: not inspected: too long, or the observer was too far behind.
        refused_snapshots: snapshots the registry is meant to reject.
        unmatched_responses: responses to requests not followed here, such as pings.
        evicted_requests: dropped in favour of newer ones.
        unlinked_requests: server requests that belong to no call, or to one of several.
    """

    lines: int = 0
    snapshots: int = 0
    list_changes: int = 0
    calls: int = 0
    malformed_lines: int = 0
    inexact_lines: int = 0
    missed_lines: int = 0
    refused_snapshots: int = 0
    unmatched_responses: int = 0
    evicted_requests: int = 0
    unlinked_requests: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def __add__(self, other: WireStats) -> WireStats:
        counts = other.as_dict()
        return WireStats(**{name: count + counts[name] for name, count in self.as_dict().items()})


PENDING_MAX = 10_000
"""Limit of unanswered requests of a kind. A client has a few at a time; each costs under a kilobyte."""


@dataclass(slots=True, eq=False, repr=False)
class WireConnection:
    """State shared by all that observes one connection.

    Args:
        session_id: unique to this connection; prefix of its tool call ids.
        new_id: returns a new unique id.
        pending_max: limit of unanswered requests per kind (calls, lists).
        filtered: whether tools may have been removed from the lists, so that none of them is complete.
        retrospective: whether calls are reported after they ended: a list may then be newer than the call.
        at: when the event in hand happened.
        exchange: the HTTP exchange that it came in; 0 for none.
        exact: whether its JSON passed strict decoding, so that its content may be hashed.
        found: its observations so far, in the order in which they are published.
    """

    vantage: Vantage
    _: KW_ONLY
    session_id: str
    new_id: Callable[[], str]
    limits: Limits = DEFAULT_LIMITS
    pending_max: int = PENDING_MAX
    filtered: bool = False
    retrospective: bool = False
    counts: WireStats = field(default_factory=WireStats, init=False)
    at: datetime = field(default=_NEVER, init=False)
    exchange: int = field(default=0, init=False)
    exact: bool = field(default=True, init=False)
    found: list[Observation] = field(default_factory=list, init=False)

    @property
    def stats(self) -> WireStats:
        return replace(self.counts)

    def begin(self, at: datetime, exchange: int = 0, *, exact: bool = True) -> None:
        self.at, self.exchange, self.exact, self.found = at, exchange, exact, []


class _Filed(Generic[Name, T]):
    """Values by unique name, in order, each indexed by the places that its name gives, so that nothing is scanned.

    Args:
        drawer: what holds a place's values; an ``OrderedDict`` where they leave at the front.
    """

    def __init__(self, drawer: Callable[[], dict[Name, T]] = dict) -> None:
        self._all: OrderedDict[Name, T] = OrderedDict()
        self._under = defaultdict[Hashable, dict[Name, T]](drawer)

    def __len__(self) -> int:
        return len(self._all)

    def _places(self, name: Name) -> Iterable[Hashable]:
        raise NotImplementedError

    def _file(self, name: Name, value: T) -> None:
        self._all[name] = value
        for place in self._places(name):
            self._under[place][name] = value

    def take(self, name: Name) -> T | None:
        value = self._all.pop(name, None)
        for place in () if value is None else self._places(name):
            del self._under[place][name]
            if not self._under[place]:
                del self._under[place]
        return value

    def oldest(self) -> tuple[Name, T] | None:
        return next(iter(self._all.items()), None)

    def take_oldest(self) -> tuple[Name, T] | None:
        oldest = self.oldest()
        if oldest is not None:
            self.take(oldest[0])
        return oldest


class Pending(_Filed[RequestKey, T]):
    """Unanswered requests, by the exchange that answers them (0 if any may), and by their ids in any exchange."""

    def __init__(self, count_max: int) -> None:
        super().__init__()
        self._count_max = count_max

    def _places(self, name: RequestKey) -> Iterable[Hashable]:
        return name[2] if len(name) == 3 else 0, name[:2]

    def put(self, key: RequestKey, request: T) -> tuple[RequestKey, T] | None:
        """Add a request, whose key must be unused, and return the oldest if that is one too many."""
        self._file(key, request)
        return self.take_oldest() if len(self) > self._count_max else None

    def get(self, key: RequestKey) -> T | None:
        return self._all.get(key)

    def answered_in(self, exchange: int) -> Iterator[RequestKey]:
        """Yield the requests that a message in an exchange may answer, its own last; 0 means any."""
        for found in [self._under.get(place, {}) for place in (0, exchange)] if exchange else [self._all]:
            yield from found

    def latest_in(self, exchange: int) -> T | None:
        """Return the latest request of an exchange; if it has none, or for 0, the latest that any may answer."""
        return self._latest(exchange) or self._latest(0)

    def only_one(self, exchange: int) -> T | None:
        """Return the only request of an exchange; if it has none, the only one of the connection."""
        requests = (self._under.get(exchange) if exchange else None) or self._all
        return next(iter(requests.values())) if len(requests) == 1 else None

    def latest_with_id(self, key: RequestKey) -> T | None:
        """Return the latest request with this id, in any exchange."""
        return self._latest(key[:2])

    def with_id(self, key: RequestKey) -> RequestKey:
        """Return the key of the only request with this id, in any exchange; ``key`` itself if ambiguous."""
        namesakes = () if key in self._all else self._under.get(key, ())
        return next(iter(namesakes)) if len(namesakes) == 1 else key

    def _latest(self, place: Hashable) -> T | None:
        found = self._under.get(place)
        return None if found is None else next(reversed(found.values()))


class Held(_Filed[tuple[int, Hashable], T]):
    """Values under keys that several may have; the name of each is its number and its key."""

    def __init__(self) -> None:
        super().__init__(OrderedDict)
        self._next = 0

    def _places(self, name: tuple[int, Hashable]) -> Iterable[Hashable]:
        return (name[1],)

    def put(self, key: Hashable, value: T) -> tuple[int, Hashable]:
        """Add a value, and return its name for ``take``."""
        self._next += 1
        self._file((self._next, key), value)
        return self._next, key

    def get(self, key: Hashable) -> T | None:
        found = self._under.get(key)
        return None if found is None else next(iter(found.values()))

    def take_under(self, key: Hashable, *, latest: bool = False) -> T | None:
        """Remove and return the oldest value under a key, or the latest."""
        found = self._under.get(key)
        return None if found is None else self.take(next(reversed(found) if latest else iter(found)))
