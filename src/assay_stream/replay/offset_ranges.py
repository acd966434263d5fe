"""Ranges of offsets as an operator writes them: one way for every command."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from assay_stream.errors import ConfigurationError

OFFSETS_METAVAR = "TOPIC:PARTITION=FIRST..END"
_WRITTEN = re.compile(r"(?P<topic>[^\s:=]+):(?P<partition>[0-9]{1,9})=(?P<first>[0-9]{1,18})?\.\.(?P<end>[0-9]{1,18})?")


class OffsetRange(NamedTuple):
    """A part of one partition.

    Args:
        topic: its topic, or the file that its records stand in.
        partition: its number.
        first: the first offset.
        end: the end, exclusive; ``None`` for as far as there is.
    """

    topic: str
    partition: int
    first: int
    end: int | None

    def holds(self, topic: str, partition: int, offset: int) -> bool:
        """Tell whether a place is in the range.

        Args:
            topic: topic or file.
            partition: its partition.
            offset: offset in it.
        """
        return (topic, partition) == self[:2] and offset >= self.first and (self.end is None or offset < self.end)


def offset_ranges(texts: Iterable[str]) -> tuple[OffsetRange, ...]:
    """Return the ranges that an operator means.

    Args:
        texts: ``TOPIC:PARTITION=FIRST..END`` each, the end exclusive; either number may be missing.

    Raises:
        ConfigurationError: ``bad_offsets``.
    """
    ranges = []
    for text in texts:
        match = _WRITTEN.fullmatch(text)
        first = int(match["first"] or 0) if match else 0
        end = int(match["end"]) if match and match["end"] else None
        if match is None or (end is not None and first >= end):
            raise ConfigurationError(
                "bad_offsets", f"write offsets as {OFFSETS_METAVAR}, the end exclusive and behind the first"
            )
        ranges.append(OffsetRange(match["topic"], int(match["partition"]), first, end))
    return tuple(ranges)
