"""The requests for lists of a connection that are not answered yet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from assay_stream.observe.jsonrpc import RequestKey
from assay_stream.observe.offered import Assembly

TOOLS = "tools/list"


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A request for a list.

    Args:
        doubts: how many there were when the list was begun.
        answered: whether a response came that only some clients accept as the answer.
    """

    method: str
    base: Assembly
    traceparent: str | None
    doubts: int
    answered: bool = False


class ListRequests:
    """Requests for lists, oldest first."""

    def __init__(self) -> None:
        self._pending: OrderedDict[RequestKey, ListRequest] = OrderedDict()
        self._tools_asked: dict[int, dict[RequestKey, None]] = {}
        """The requests for tools among them, by exchange; 0 for those that any exchange may answer."""

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, key: RequestKey) -> bool:
        return key in self._pending

    def for_tools(self, exchange: int) -> Iterator[RequestKey]:
        """Yield the requests for tools that a message in an exchange may answer, its own last; 0 stands for any."""
        for number in (0, exchange) if exchange else self._tools_asked:
            yield from self._tools_asked.get(number, ())

    def await_tools(self, exchange: int = 0) -> bool:
        """Tell whether a list of tools may come in an exchange; 0 stands for any."""
        return any(True for _ in self.for_tools(exchange))

    def get(self, key: RequestKey) -> ListRequest:
        """Return a request without taking it."""
        return self._pending[key]

    def put(self, key: RequestKey, request: ListRequest) -> None:
        self._pending[key] = request
        if request.method == TOOLS:
            self._tools_asked.setdefault(_exchange_of(key), {})[key] = None

    def take(self, key: RequestKey) -> ListRequest | None:
        """Remove a request and return it."""
        request = self._pending.pop(key, None)
        if request is not None and request.method == TOOLS:
            others = self._tools_asked[_exchange_of(key)]
            del others[key]
            if not others:
                del self._tools_asked[_exchange_of(key)]
        return request

    def drop_oldest(self) -> None:
        self.take(next(iter(self._pending)))

    def orphan(self, key: RequestKey) -> None:
        """Let another exchange answer the request with this id."""
        if (request := self.take(key)) is not None:
            self.take(key[:2])
            self.put(key[:2], request)

    def outdate(self) -> None:
        """Note that what was listed before belongs to no list of tools that is asked for now."""
        for key in self.for_tools(0):
            request = self._pending[key]
            self._pending[key] = replace(request, base=request.base.outdated())


def _exchange_of(key: RequestKey) -> int:
    return key[2] if len(key) == 3 else 0
