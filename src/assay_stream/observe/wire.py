"""Shared state of one client-server connection: vantage, the event in hand, pending requests, and counters."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Generic, TypeVar

from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.observe.jsonrpc import RequestKey
from assay_stream.observe.observation import Observation, Vantage

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


@dataclass(slots=True, eq=False)
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
    """Values by unique names, in order, each also filed under places that it shares with others, to avoid scans."""

    def __init__(self) -> None:
        self._all: OrderedDict[Name, tuple[T, tuple[Hashable, ...]]] = OrderedDict()
        self._under: defaultdict[Hashable, OrderedDict[Name, T]] = defaultdict(OrderedDict)

    def __len__(self) -> int:
        return len(self._all)

    def _file(self, name: Name, value: T, *places: Hashable) -> None:
        self._all[name] = value, places
        for place in places:
            self._under[place][name] = value

    def _take(self, name: Name) -> T | None:
        value, places = self._all.pop(name, (None, ()))
        for place in places:
            del self._under[place][name]
            if not self._under[place]:
                del self._under[place]
        return value

    def oldest(self) -> tuple[Name, T] | None:
        return next(((name, value) for name, (value, _) in self._all.items()), None)

    def take_oldest(self) -> tuple[Name, T] | None:
        oldest = self.oldest()
        if oldest is not None:
            self._take(oldest[0])
        return oldest


class Pending(_Filed[RequestKey, T]):
    """Unanswered requests, by the exchange that answers them (0 if any may), and by their ids in any exchange."""

    def __init__(self, count_max: int) -> None:
        super().__init__()
        self._count_max = count_max

    def put(self, key: RequestKey, request: T) -> tuple[RequestKey, T] | None:
        """Add a request, whose key must be unused, and return the oldest if that is one too many."""
        self._file(key, request, key[2] if len(key) == 3 else 0, key[:2])
        return self.take_oldest() if len(self) > self._count_max else None

    def get(self, key: RequestKey) -> T | None:
        return self._all[key][0] if key in self._all else None

    def take(self, key: RequestKey) -> T | None:
        return self._take(key)

    def answered_in(self, exchange: int) -> Iterator[RequestKey]:
        """Yield the requests that a message in an exchange may answer, its own last; 0 means any."""
        if not exchange:
            yield from self._all
        else:
            yield from self._under.get(0, ())
            yield from self._under.get(exchange, ())

    def latest_in(self, exchange: int) -> T | None:
        """Return the latest request of an exchange; if it has none, or for 0, the latest that any may answer."""
        return self._latest(exchange) or self._latest(0)

    def only_one(self, exchange: int) -> T | None:
        """Return the only request of an exchange; if it has none, the only one of the connection."""
        keys: Collection[RequestKey] = (self._under.get(exchange) if exchange else None) or self._all
        return self._all[next(iter(keys))][0] if len(keys) == 1 else None

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


class Held(_Filed[int, T]):
    """Values under keys that several may have."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def put(self, key: Hashable, value: T) -> int:
        """Add a value, and return its number for ``take_number``."""
        self._next += 1
        self._file(self._next, value, key)
        return self._next

    def get(self, key: Hashable) -> T | None:
        found = self._under.get(key)
        return None if found is None else next(iter(found.values()))

    def take(self, key: Hashable, *, latest: bool = False) -> T | None:
        """Remove and return the oldest value under a key, or the latest."""
        found = self._under.get(key)
        return None if found is None else self._take(next(reversed(found) if latest else iter(found)))

    def take_number(self, number: int) -> T | None:
        return self._take(number)
