"""The open calls of a connection: those that wait for an answer, and those that an answer left open."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Mapping

from assay_stream.observe.jsonrpc import RequestKey
from assay_stream.observe.open_call import OpenCall


class PendingCalls:
    """Calls that wait for an answer, by request, oldest first."""

    def __init__(self) -> None:
        self._calls: OrderedDict[RequestKey, OpenCall] = OrderedDict()
        self._in_exchange: dict[int, dict[RequestKey, OpenCall]] = {}
        self._of_id: dict[RequestKey, set[RequestKey]] = {}
        """The keys of calls in exchanges, by the key without its exchange."""

    def __len__(self) -> int:
        return len(self._calls)

    def put(self, key: RequestKey, call: OpenCall) -> None:
        """Add a call; there must be none under its key."""
        self._calls[key] = call
        if len(key) == 3:
            self._in_exchange.setdefault(key[2], {})[key] = call
            self._of_id.setdefault(key[:2], set()).add(key)

    def get(self, key: RequestKey) -> OpenCall | None:
        """Return a call without taking it."""
        return self._calls.get(key)

    def take(self, key: RequestKey) -> OpenCall | None:
        """Remove a call and return it."""
        call = self._calls.pop(key, None)
        if call is not None and len(key) == 3:
            others, namesakes = self._in_exchange[key[2]], self._of_id[key[:2]]
            del others[key]
            if not others:
                del self._in_exchange[key[2]]
            namesakes.remove(key)
            if not namesakes:
                del self._of_id[key[:2]]
        return call

    def oldest(self) -> tuple[RequestKey, OpenCall] | None:
        """Return the first call, and its key."""
        return next(iter(self._calls.items()), None)

    def only_one(self, exchange: int) -> OpenCall | None:
        """Return the only call of an exchange; where it has none, the only one of the connection."""
        calls: Mapping[RequestKey, OpenCall] = self._in_exchange.get(exchange, self._calls)
        return next(iter(calls.values())) if len(calls) == 1 else None

    def with_id(self, key: RequestKey) -> RequestKey:
        """Return the key of the only call with an id, in whatever exchange; ``key`` itself if that is not clear."""
        if key in self._calls:
            return key
        namesakes = self._of_id.get(key, ())
        return next(iter(namesakes)) if len(namesakes) == 1 else key


class HeldCalls:
    """Calls that an answer left open, by what the next request for them names; of equal ones the oldest comes first."""

    def __init__(self) -> None:
        self._calls: OrderedDict[int, tuple[Hashable, OpenCall]] = OrderedDict()
        self._numbers: dict[Hashable, deque[int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._calls)

    def put(self, key: Hashable, call: OpenCall) -> None:
        """Hold a call, as the latest one."""
        self._next += 1
        self._calls[self._next] = key, call
        self._numbers.setdefault(key, deque()).append(self._next)

    def get(self, key: Hashable) -> OpenCall | None:
        """Return a call without taking it."""
        numbers = self._numbers.get(key)
        return None if numbers is None else self._calls[numbers[0]][1]

    def take(self, key: Hashable) -> OpenCall | None:
        """Remove a call and return it."""
        numbers = self._numbers.get(key)
        return None if numbers is None else self._remove(key, numbers[0])

    def oldest(self) -> OpenCall | None:
        """Return the call that is held for longest, without taking it."""
        return next((call for _, call in self._calls.values()), None)

    def take_oldest(self) -> OpenCall:
        """Remove the call that is held for longest, and return it; there must be one."""
        number, (key, _) = next(iter(self._calls.items()))
        return self._remove(key, number)

    def _remove(self, key: Hashable, number: int) -> OpenCall:
        numbers = self._numbers[key]
        numbers.popleft()  # the oldest of its key in either case
        if not numbers:
            del self._numbers[key]
        return self._calls.pop(number)[1]
