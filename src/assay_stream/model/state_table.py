"""A table of JSON objects, kept in one partition of a compacted topic, that knows which input it follows from.

Under each key stands its value; under ``progress``, the next offset to read and how many values there are. Both are
written in the transaction of the input they follow from. A table that has another number of values than its
progress says has lost part of its topic: it is emptied, and the input is read from its beginning.
"""

from collections import UserDict
from collections.abc import Mapping
from typing import Any, TypeVar

import orjson

from assay_stream.errors import IntegrityError
from assay_stream.model.alert_state import AlertProgress
from assay_stream.model.format_level import KEY
from assay_stream.model.record import Output, Record, Role
from assay_stream.model.wire import members_of

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
