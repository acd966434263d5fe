"""Shared state of one client-server connection: vantage, the event in hand, pending requests, and counters."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
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
