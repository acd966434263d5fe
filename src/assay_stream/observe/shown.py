"""What becomes of a message from a server on its way to the client."""

from __future__ import annotations

from dataclasses import dataclass, field

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.observe.observation import Observation

_NAMES_LOGGED = 5


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
