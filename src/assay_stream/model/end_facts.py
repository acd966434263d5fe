"""Facts that end the force of observations: refused records, and changes that a server announced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from assay_stream.model.control_facts import FactKey, origin_of_key
from assay_stream.model.record import Origin, Position


class Observed(Protocol):
    """What these facts need to know of an observation (``facts.Seen``)."""

    @property
    def observer_id(self) -> str:
        """Who saw it."""

    @property
    def origin(self) -> Origin:
        """Its record."""

    @property
    def time_us(self) -> int:
        """Event time, microseconds since the epoch."""

    @property
    def attributed(self) -> bool:
        """Whether a header of its record named the observer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A record of this server was refused: what its observer saw before it in the log is in force no more.

    Args:
        server_id: the server.
        origin: the record.
        time_us: the log's time of it, microseconds since the epoch.
        code: why it was refused.
        observer_id: the observer that its header names. ``None``: it concerns all whose lists have no such header.
        unlisted: stands for rejections and announcements of observers without a list that were folded away: from
            its time on, no observer without a list is bound to what others saw.
    """

    server_id: str
    origin: Origin
    time_us: int
    code: str
    observer_id: str | None = None
    unlisted: bool = False

    @property
    def position(self) -> Position:
        return (self.time_us, self.origin)

    def concerns(self, seen: Observed) -> bool:
        """Tell whether this may end the force of an observation, by who saw it."""
        if self.observer_id is None:
            return not (seen.attributed or self.unlisted)
        return self.observer_id == seen.observer_id

    def ends(self, seen: Observed) -> bool:
        """Tell whether this concerns an observation and came after it."""
        return self.concerns(seen) and self.is_after(seen)

    def is_after(self, seen: Observed) -> bool:
        """Tell whether an observation stands before this in the log; across partitions the times decide."""
        if seen.origin[:2] == self.origin[:2]:
            return seen.origin.offset < self.origin.offset
        return seen.time_us <= self.time_us

    def key(self) -> FactKey:
        return ("rejection", self.server_id, *self.origin)

    def value_json(self) -> dict[str, Any]:
        stated = {"observer_id": self.observer_id, "unlisted": self.unlisted or None}
        return {
            "time_us": self.time_us,
            "code": self.code,
            **{name: value for name, value in stated.items() if value is not None},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """The server told this observer that its tools changed: what the observer saw before is in force no more.

    Args:
        server_id: the server.
        observer_id: who was told.
        origin: the record.
        time_us: event time, microseconds since the epoch.
        overdue: a finding has told that no list follows.
    """

    server_id: str
    observer_id: str
    origin: Origin
    time_us: int
    overdue: bool = False

    @property
    def position(self) -> Position:
        return (self.time_us, self.origin)

    def key(self) -> FactKey:
        return ("announcement", self.server_id, self.observer_id, *self.origin)

    def value_json(self) -> dict[str, Any]:
        return {"time_us": self.time_us, "overdue": self.overdue}


def read_rejection(key: FactKey, value: dict[str, Any]) -> Rejection:
    """Read a rejection; the arguments are those of ``facts.decode_fact``."""
    _, server_id, *place = key
    return Rejection(
        server_id=str(server_id),
        origin=origin_of_key(place),
        time_us=value["time_us"],
        code=value["code"],
        observer_id=value.get("observer_id"),
        unlisted=value.get("unlisted", False),
    )


def read_announcement(key: FactKey, value: dict[str, Any]) -> Announcement:
    """Read an announcement; the arguments are those of ``facts.decode_fact``."""
    _, server_id, observer_id, *place = key
    return Announcement(
        server_id=str(server_id),
        observer_id=str(observer_id),
        origin=origin_of_key(place),
        time_us=value["time_us"],
        overdue=value["overdue"],
    )
