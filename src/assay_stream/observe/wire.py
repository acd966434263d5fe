"""Shared state of one client-server connection: vantage, the event in hand, pending requests, and counters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Generic, TypeVar

from assay_stream.limits.core import Limits
from assay_stream.observe.jsonrpc import RequestKey
from assay_stream.observe.observation import Observation, Vantage

T = TypeVar("T")

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


@dataclass(slots=True, kw_only=True)
class WireConnection:
    """State shared by the observers of one connection.

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
    session_id: str
    new_id: Callable[[], str]
    limits: Limits
    pending_max: int
    filtered: bool = False
    retrospective: bool = False
    stats: WireStats = field(default_factory=WireStats)
    at: datetime = _NEVER
    exchange: int = 0
    exact: bool = True
    found: list[Observation] = field(default_factory=list)

    def begin(self, at: datetime, exchange: int = 0, *, exact: bool = True) -> None:
        self.at, self.exchange, self.exact, self.found = at, exchange, exact, []


class Pending(Generic[T]):
    """Unanswered requests, oldest first, indexed by exchange and by id to avoid scans."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._all: OrderedDict[RequestKey, T] = OrderedDict()
        self._of_exchange: dict[int, dict[RequestKey, T]] = {}
        """By the exchange that answers them; 0 if any may."""
        self._of_id: dict[RequestKey, dict[RequestKey, T]] = {}
        """By key without exchange."""

    def __len__(self) -> int:
        return len(self._all)

    def put(self, key: RequestKey, request: T) -> tuple[RequestKey, T] | None:
        """Add a request, whose key must be unused, and return the oldest if that is one too many."""
        self._all[key] = request
        self._of_exchange.setdefault(_exchange_of(key), {})[key] = request
        self._of_id.setdefault(key[:2], {})[key] = request
        oldest = self.oldest() if len(self._all) > self._count_max else None
        if oldest is not None:
            self.take(oldest[0])
        return oldest

    def get(self, key: RequestKey) -> T | None:
        return self._all.get(key)

    def take(self, key: RequestKey) -> T | None:
        request = self._all.pop(key, None)
        if request is not None:
            others, namesakes = self._of_exchange[_exchange_of(key)], self._of_id[key[:2]]
            del others[key], namesakes[key]
            if not others:
                del self._of_exchange[_exchange_of(key)]
            if not namesakes:
                del self._of_id[key[:2]]
        return request

    def oldest(self) -> tuple[RequestKey, T] | None:
        return next(iter(self._all.items()), None)

    def answered_in(self, exchange: int) -> Iterator[RequestKey]:
        """Yield the requests that a message in an exchange may answer, its own last; 0 means any."""
        for number in (0, exchange) if exchange else self._of_exchange:
            yield from self._of_exchange.get(number, ())

    def latest_in(self, exchange: int) -> T | None:
        for number in (exchange, 0) if exchange else reversed(self._of_exchange):
            if number in self._of_exchange:
                return next(reversed(self._of_exchange[number].values()))
        return None

    def only_one(self, exchange: int) -> T | None:
        """Return the only request of an exchange; if it has none, the only one of the connection."""
        requests: Mapping[RequestKey, T] = (self._of_exchange.get(exchange) if exchange else None) or self._all
        return next(iter(requests.values())) if len(requests) == 1 else None

    def latest_with_id(self, key: RequestKey) -> T | None:
        """Return the latest request with this id, in any exchange."""
        namesakes = self._of_id.get(key[:2])
        return None if namesakes is None else next(reversed(namesakes.values()))

    def with_id(self, key: RequestKey) -> RequestKey:
        """Return the key of the only request with this id, in any exchange; ``key`` itself if ambiguous."""
        namesakes = () if key in self._all else self._of_id.get(key, ())
        return next(iter(namesakes)) if len(namesakes) == 1 else key


class Held(Generic[T]):
    """Values under non-unique keys, in order, indexed to avoid scans."""

    def __init__(self) -> None:
        self._all: OrderedDict[int, tuple[Hashable, T]] = OrderedDict()
        self._numbers: dict[Hashable, OrderedDict[int, None]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._all)

    def put(self, key: Hashable, value: T) -> int:
        """Add a value, and return its number for ``take_number``."""
        self._next += 1
        self._all[self._next] = key, value
        self._numbers.setdefault(key, OrderedDict())[self._next] = None
        return self._next

    def get(self, key: Hashable) -> T | None:
        numbers = self._numbers.get(key)
        return None if numbers is None else self._all[next(iter(numbers))][1]

    def take(self, key: Hashable, *, latest: bool = False) -> T | None:
        """Remove and return the oldest value under a key, or the latest."""
        numbers = self._numbers.get(key)
        if numbers is None:
            return None
        return self.take_number(next(reversed(numbers) if latest else iter(numbers)))

    def take_number(self, number: int) -> T | None:
        if number not in self._all:
            return None
        key, value = self._all.pop(number)
        del self._numbers[key][number]
        if not self._numbers[key]:
            del self._numbers[key]
        return value

    def oldest(self) -> T | None:
        return next((value for _, value in self._all.values()), None)

    def take_oldest(self) -> T | None:
        return self.take_number(next(iter(self._all), 0))


def _exchange_of(key: RequestKey) -> int:
    return key[2] if len(key) == 3 else 0
