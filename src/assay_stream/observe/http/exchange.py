"""One HTTP exchange: a request, its response, and what they have to do with each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from assay_stream.observe.http.bodies import Body, Opaque
from assay_stream.observe.http.connections import Connection
from assay_stream.observe.http.credentials import Context
from assay_stream.observe.http.held import HeldEvents
from assay_stream.observe.jsonrpc import Line, RequestKey, request_key

if TYPE_CHECKING:
    from assay_stream.observe.gate import Gate

_OK = range(200, 300)
_CLOSING_CANCELS = "2026-07-28"

Ending = Literal["complete", "client_left", "upstream_failed"]


@dataclass(slots=True)
class Exchange:
    """One request and its response.

    Args:
        number: unique in the process, from 1.
        version: of the protocol, as its header states it.
    """

    number: int
    method: str
    context: Context
    session_id: str | None
    version: str | None
    connection: Connection
    request: Body
    response: Body = field(default_factory=Opaque)
    events: HeldEvents | None = None
    """A response that is held back event by event."""
    status: int | None = None
    is_mislabelled: bool = False
    """Whether the headers of the request say that its body is something else than JSON in UTF-8."""
    is_unread: bool = False
    """Whether there may be more in the request than was read of it."""
    asked: list[RequestKey] = field(default_factory=list)
    """Requests that this exchange has to answer."""
    waiting: tuple[bytes, datetime] | None = None
    """A message that concerns other requests, until the server accepts it."""

    @property
    def is_successful(self) -> bool:
        """Whether the server answered with a status of success."""
        return self.status in _OK

    @property
    def is_refused(self) -> bool:
        """Whether the server answered with another status."""
        return self.status is not None and self.status not in _OK

    @property
    def gate(self) -> Gate:
        """What rules on it; only where its connection has a gate."""
        if self.connection.gate is None:
            raise RuntimeError("this traffic is only observed")
        return self.connection.gate

    def note_asked(self, line: Line) -> None:
        """Note the requests in a line of the client."""
        keys = (request_key(each.get("id"), self.number) for each in line.messages if "method" in each)
        self.asked += [key for key in keys if key is not None]

    def let_go(self) -> int:
        """Drop what is kept of its bodies, and return how many bytes that was."""
        kept_bytes = self.request.kept_bytes + self.response.kept_bytes
        if self.waiting is not None:
            kept_bytes += len(self.waiting[0])
            self.waiting = None
        self.request = self.response = Opaque()
        if self.events is not None:
            kept_bytes += self.events.kept_bytes
            self.events = None
        return kept_bytes

    def why_unanswered(self, ending: Ending) -> str:
        """Return the reason code of requests that it leaves without an answer."""
        if self.is_refused:
            return f"http_{self.status}"
        if ending == "upstream_failed":
            return "upstream_failed"
        closing_cancels = self.version is not None and self.version >= _CLOSING_CANCELS
        return "cancelled" if ending == "client_left" and closing_cancels else "no_response"
