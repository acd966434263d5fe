"""One connection between a client and a server: who observes it, and what was counted on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.observe.jsonrpc import RequestKey
from assay_stream.observe.observation import Observation, Vantage

_NAMES_LOGGED = 5


@dataclass(slots=True, kw_only=True)
class WireStats:
    """Counts since the wire opened.

    Args:
        list_changes: announced changes of the tools; repeats without a list in between are not all published.
        malformed_lines: lines no parser can make sense of.
        missed_lines: not inspected: too long, or the observer was too far behind.
        refused_snapshots: snapshots the registry is meant to reject.
        unmatched_responses: answers to requests not followed here, such as pings.
        evicted_requests: given up because too many others came after them.
        unlinked_requests: of the server to its client, in no call or in one of several.
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
    """What the observers of one connection share.

    Args:
        session_id: unique to this connection; prefix of its tool call ids.
        new_id: returns a new unique id with every call.
        pending_max: requests of a kind (calls, lists) that may be unanswered at a time.
        filtered: whether somebody may have removed tools from the lists, so that none of them is complete.
        retrospective: whether calls are reported after they ended: a list may then be newer than the call.
    """

    vantage: Vantage
    session_id: str
    new_id: Callable[[], str]
    limits: Limits
    pending_max: int
    filtered: bool = False
    retrospective: bool = False
    stats: WireStats = field(default_factory=WireStats)


class Awaited:
    """Requests that wait for an answer, by the exchange that gives it; 0 stands for any. None is searched for."""

    def __init__(self) -> None:
        self._keys: dict[int, dict[RequestKey, None]] = {}
        self._ids: Counter[RequestKey] = Counter()
        """How many there are of each id, in whatever exchange."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: RequestKey) -> None:
        """Add a request that is not among them."""
        self._keys.setdefault(_exchange_of(key), {})[key] = None
        self._ids[key[:2]] += 1
        self._count += 1

    def discard(self, key: RequestKey) -> bool:
        """Remove a request, and tell whether it was among them."""
        exchange, same_id = _exchange_of(key), key[:2]
        others = self._keys.get(exchange, {})
        if key not in others:
            return False
        del others[key]
        if not others:
            del self._keys[exchange]
        self._count -= 1
        self._ids[same_id] -= 1
        if not self._ids[same_id]:
            del self._ids[same_id]
        return True

    def has_id(self, key: RequestKey) -> bool:
        return key[:2] in self._ids

    def of(self, exchange: int) -> Iterator[RequestKey]:
        """Yield those that a message in an exchange may answer, its own last."""
        for number in (0, exchange) if exchange else self._keys:
            yield from self._keys.get(number, ())

    def latest(self, exchange: int) -> RequestKey | None:
        """Return the last of them."""
        for number in (exchange, 0) if exchange else reversed(self._keys):
            if number in self._keys:
                return next(reversed(self._keys[number]))
        return None


def _exchange_of(key: RequestKey) -> int:
    return key[2] if len(key) == 3 else 0


@dataclass(frozen=True, slots=True)
class Shown:
    """What becomes of a message from the server.

    Args:
        text: what the client gets: the message itself, or one in its place.
        hidden: names of the tools that were dropped from it.
        is_withheld: whether the client gets an error in its place.
    """

    text: bytes
    observations: list[Observation] = field(default_factory=list)
    hidden: tuple[str, ...] = ()
    is_withheld: bool = False

    @property
    def hidden_text(self) -> str:
        """The hidden names for the log: the first few, none longer than a name may be."""
        more = len(self.hidden) - _NAMES_LOGGED
        names = (repr(name[: DEFAULT_LIMITS.identifier_chars_max]) for name in self.hidden[:_NAMES_LOGGED])
        return ", ".join(names) + (f" and {more} more" if more > 0 else "")
