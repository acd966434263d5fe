"""The format level of a deployment: in which form its workers write what they keep in state topics.

1. A release reads every level up to its own, ``LEVEL``, and writes the one that the operator finalised
   (``assay-stream topics finalize``). Until then the release before can take over again.
2. The topic of format levels says what is finalised; without a record it is level 1. A process reads it before it
   does anything else, and refuses a level above its own.
3. The owner of a partition marks it with the level before it writes anything of that level. So whoever follows a
   state topic, or got a copy of it, meets the mark first, and refuses it in the same way.

What a level brings is new to releases before it: a kind of record, or a member of one. A state that writes it asks
``self.level``; a record of an unknown form is refused, never read in part (``UNREADABLE``).
"""

from typing import Annotated, Any

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from assay_stream import __version__
from assay_stream.errors import ConfigurationError, IntegrityError
from assay_stream.model.fields import Positive
from assay_stream.model.record import Record

LEVEL = 1
"""The highest level that this release reads and writes."""
KEY = b"format"
"""Key of the level in its own topic, and of the mark in a state topic. No other record has it."""

UNREADABLE = frozenset(
    ("format_too_new", "foreign_fact", "unknown_agent_input", "unknown_fact", "unknown_finding", "unknown_state")
)
"""Error codes for records that this release does not know: a restart reads the same ones again."""


class FormatLevel(TypedDict):
    """From here on, records have the forms of this level."""

    level: Positive
    by: Annotated[str, Field(description="Version of the release that wrote this: it, and later ones, can read on.")]


def write_level(level: int) -> bytes:
    found: FormatLevel = {"level": level, "by": __version__}
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)


def stated_level(record: Record) -> tuple[int, str]:
    """Return the level that a record with the key ``KEY`` states, and which release wrote it. Other members may come.

    Raises:
        IntegrityError: ``unknown_state`` if it states none.
    """
    try:
        content: Any = {"level": 1, "by": ""} if record.value is None else orjson.loads(record.value)
        level, by = content["level"], content["by"]
    except (ValueError, TypeError, KeyError):
        level, by = 0, ""
    if type(level) is not int or level < 1 or not isinstance(by, str):
        raise IntegrityError(
            "unknown_state", f"the record {record.origin} states no format level: find out who wrote it"
        )
    return level, by


def read_level(record: Record) -> int:
    """Return the level that a record with the key ``KEY`` states.

    Raises:
        ConfigurationError: ``format_too_new`` if it is above ``LEVEL``.
        IntegrityError: as ``stated_level``.
    """
    level, by = stated_level(record)
    if level > LEVEL:
        named = by if by.isascii() and by.isprintable() and len(by) <= 64 else "a later release"
        raise ConfigurationError(
            "format_too_new",
            f"{record.origin.topic} has format level {level} and assay-stream {__version__} reads up to {LEVEL}: run "
            f"assay-stream {named} or later. A level that was finalised is never lowered, see docs/upgrading.md",
        )
    return level
