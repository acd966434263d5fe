"""What an agent remembers under one key, windows over event time, and what operators say that tools can do."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.fields import compile_glob
from assay_stream.model.record import Origin

CAPABILITIES = ("sends", "untrusted", "private")


class Labels:
    """Capabilities of tools.

    Args:
        rows: capabilities by pattern; the first pattern that matches counts.
    """

    def __init__(self, rows: Mapping[str, tuple[str, ...]]) -> None:
        self.rows = dict(rows)
        self._patterns = [(compile_glob(pattern), labels) for pattern, labels in rows.items()]
        self.of = lru_cache(maxsize=8_192)(self._of)
        """Return the capabilities of a tool, by its server's id and its name; ``None`` where no pattern matches."""

    def _of(self, server_id: str, tool_name: str) -> tuple[str, ...] | None:
        name = f"{server_id}/{tool_name}"
        return next((labels for pattern, labels in self._patterns if pattern.fullmatch(name)), None)


NO_LABELS = Labels({})


def read_labels(content: object) -> Labels:
    """Return the labels that a file holds: an object of lists, by pattern.

    Raises:
        InputError: ``bad_labels`` with the path of the bad field, or ``bad_pattern``.
    """
    if not isinstance(content, dict) or not content:
        raise InputError("bad_labels", 'write one line per pattern: "mail/*" = ["private"]', path="$")
    rows = {}
    for pattern, labels in content.items():
        path = f'$["{pattern}"]'
        if "/" not in str(pattern):
            raise InputError("bad_labels", "a pattern is SERVER/TOOL; * stands for any text", path=path)
        if not isinstance(labels, list):
            raise InputError("bad_labels", "the capabilities of a tool are a list; [] means harmless", path=path)
        if strange := [label for label in labels if label not in CAPABILITIES]:
            known = ", ".join(CAPABILITIES)
            raise InputError("bad_labels", f"{str(strange[0])[:64]!r} is no capability; there are {known}", path=path)
        rows[str(pattern)] = tuple(labels)
    return Labels(rows)


class Memory:
    """What an agent remembers under the key of the current record.

    Args:
        state: the handler's state; it may be changed in place and must stay JSON.
        time_us: event time of the current record, microseconds since the epoch.
        origin: the observed record that the current one follows from.
        definition: looks up what was remembered of a definition.
        labels: capabilities of tools, as labelled by the operator.
    """

    __slots__ = ("_definition", "_labels", "_origin", "_time_us", "state")

    def __init__(
        self,
        state: dict[str, Any],
        time_us: int,
        origin: Origin,
        definition: Callable[[str], Any],
        labels: Labels = NO_LABELS,
    ) -> None:
        self.state = state
        self._time_us = time_us
        self._origin = origin
        self._definition = definition
        self._labels = labels

    def definition(self, full_digest: str | None) -> Any:
        """Return what ``Agent.definitions`` made of the definition with this full digest, ``None`` if nothing."""
        return None if full_digest is None else self._definition(full_digest)

    def labels(self, server_id: str, tool_name: str) -> tuple[str, ...] | None:
        """Return a tool's capabilities as labelled by the operator (``--labels``), ``None`` if there are none."""
        return self._labels.of(server_id, tool_name)

    def window(self, name: str, *, seconds: float) -> Window:
        """Return the window that ends with the current record.

        Args:
            name: its name in the state, where it is kept.
            seconds: its length. A record exactly as old is no longer in it.
        """
        return Window(self.state, name, self._time_us, self._origin, int(seconds * 1_000_000))


class Window:
    """Items with event times in (end - length, end], where the end is the current record.

    Records of several servers may arrive out of order of their event times. So if later items are already present,
    the window ends with the item that puts the most into it, among those that include the current record: whichever of
    some records comes last sees all of them.

    Args:
        state: holds the items as rows of time, topic, partition, offset and value; it is changed.
        name: its name in the state.
        end_us: event time of the current record, microseconds since the epoch.
        origin: the current record.
        length_us: the length in microseconds.
    """

    def __init__(self, state: dict[str, Any], name: str, end_us: int, origin: Origin, length_us: int) -> None:
        self._state = state
        self._name = name
        self._rows: list[list[Any]] = state.get(name, [])
        self._end_us = end_us
        self._origin = origin
        self._length_us = length_us

    def add(self, value: Any = None) -> None:
        """Add the current record, with an optional value.

        Items older than twice the length are dropped, and the oldest beyond ``agent_window_items_max``.
        """
        forgotten_us = self._end_us - 2 * self._length_us
        rows = [*(row for row in self._rows if row[0] > forgotten_us), [self._end_us, *self._origin, value]]
        rows.sort(key=lambda row: row[:4])
        self._rows = self._state[self._name] = rows[-DEFAULT_LIMITS.agent_window_items_max :]

    def clear(self) -> None:
        """Drop the items in it, so that the next detection needs new ones."""
        inside = self._inside()
        self._rows = [row for row in self._rows if row not in inside]
        self._state[self._name] = self._rows
        if not self._rows:
            del self._state[self._name]

    @property
    def values(self) -> list[Any]:
        """The values added, in order of (event time, origin)."""
        return [row[4] for row in self._inside()]

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The latest records in it, as many as a detection may refer to."""
        rows = self._inside()[-DEFAULT_LIMITS.agent_references_max :]
        return tuple(Origin(topic, partition, offset) for _, topic, partition, offset, _ in rows)

    def __len__(self) -> int:
        return len(self._inside())

    def _inside(self) -> list[list[Any]]:
        times = [row[0] for row in self._rows]
        first, last = bisect_right(times, self._end_us), bisect_right(times, self._end_us + self._length_us - 1)
        windows = [
            (bisect_right(times, end_us - self._length_us), bisect_right(times, end_us))
            for end_us in (self._end_us, *times[first:last])
        ]
        begin, end = max(windows, key=lambda window: window[1] - window[0])
        return self._rows[begin:end]
