"""State topics: in which form workers write what they keep there, and tables of JSON objects that know their input.

Under each key stands its value; under ``progress``, the next offset to read and how many values there are. Both are
written in the transaction of the input they follow from. A table that has another number of values than its
progress says has lost part of its topic: it is emptied, and the input is read from its beginning.

1. A release reads every level up to its own, ``LEVEL``, and writes the one that the operator finalised
   (``assay-stream topics finalize``). Until then the release before can take over again.
2. The topic of format levels says what is finalised; without a record it is level 1. A process reads it before it
   does anything else, and refuses a level above its own.
3. The owner of a partition marks it with the level before it writes anything of that level. So whoever follows a
   state topic, or got a copy of it, meets the mark first, and refuses it in the same way.

What a level brings is new to releases before it: a kind of record, or a member of one. A state that writes it asks
``self.level``; a record of an unknown form is refused, never read in part (``UNREADABLE``).
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from assay_stream import __version__
from assay_stream.errors import ConfigurationError, IntegrityError
from assay_stream.model.alert_state import AlertProgress
from assay_stream.model.fields import Positive
from assay_stream.model.record import Output, Record, Role
from assay_stream.model.wire import members_of

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


_PROGRESS = "progress"
_RESERVED = frozenset((_PROGRESS, KEY.decode()))

Value = TypeVar("Value")


class Table(UserDict[str, Value]):
    """Values by key, for one input partition. To change a value, store it again: ``table[key] = value``.

    Args:
        input_topic: topic whose records the values follow from.
    """

    level = 1
    """The format level that it may write; set once it is restored."""

    def __init__(self, role: Role, partition: int, input_topic: str) -> None:
        super().__init__()
        self._role = role
        self._partition = partition
        self._input_topic = input_topic
        self._changed: set[str] = set()
        self._progress: dict[str, int] | None = None

    @property
    def entries(self) -> int:
        return len(self.data)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under a key, without the exception that ``UserDict`` raises and catches for none."""
        return self.data.get(key, default)

    def __setitem__(self, key: str, value: Value) -> None:
        if key in _RESERVED:
            raise ValueError(f"{key!r} is reserved for the table's own record: use another key")
        self.data[key] = value
        self._changed.add(key)

    def __delitem__(self, key: str) -> None:
        del self.data[key]
        self._changed.add(key)

    def restore(self, record: Record) -> None:
        """Apply one record of the compacted topic.

        Raises:
            IntegrityError: ``unknown_state`` if this version did not write it.
        """
        try:
            key = (record.key or b"").decode()
            fields = None if record.value is None else orjson.loads(record.value)
            if key == _PROGRESS:
                self._progress = None if fields is None else members_of(AlertProgress, fields)
            elif fields is None:
                self.data.pop(key, None)
            else:
                self.data[key] = self.decode(key, fields)
        except (AttributeError, ValueError, KeyError, TypeError):
            raise IntegrityError(
                "unknown_state",
                f"{record.origin.topic} holds a record this version cannot read, at offset {record.origin.offset} "
                f"of partition {record.origin.partition}: run the version that wrote it",
            ) from None

    def restored(self) -> Mapping[str, int | None]:
        """Return the next offset of the input topic; ``None`` for its beginning, the table being empty then."""
        progress = self._progress
        if progress is not None and progress["states"] == len(self.data):
            return {self._input_topic: progress["position"]}
        self._changed.update(self.data)
        self.data.clear()
        return {self._input_topic: None}

    def flush(self, positions: Mapping[str, int]) -> list[Output]:
        changed = sorted(self._changed)
        self._changed.clear()
        progress: AlertProgress = {"position": positions[self._input_topic], "states": len(self.data)}
        return [*(self._state(key) for key in changed), self._output(_PROGRESS, progress)]

    def punctuate(self) -> list[Output]:
        """Return nothing: time alone changes no value."""
        return []

    def decode(self, key: str, fields: dict[str, Any]) -> Value:  # noqa: ARG002 -- for those whose form depends on it
        """Return the value that a JSON object stands for; here the object itself, and likewise in ``encode``."""
        return fields  # type: ignore[return-value]

    def encode(self, value: Value) -> Mapping[str, Any]:
        return value  # type: ignore[return-value]

    def _state(self, key: str) -> Output:
        return self._output(key, self.encode(self.data[key]) if key in self.data else None)

    def _output(self, key: str, value: Mapping[str, Any] | None) -> Output:
        body = None if value is None else orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        return Output(self._role, key.encode(), body, partition=self._partition)
