"""How far a long command is, told to a person on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable

import typer

_EVERY_S = 1.0
_PARTITIONS_SHOWN_MAX = 8


class Meter:
    """Tells once a second how many calls are done, how fast, and how long it will take.

    Args:
        wanted: whether to tell at all; ``None``: on a terminal only.
        clock_s: seconds that only go up.
    """

    def __init__(self, wanted: bool | None, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._wanted = sys.stderr.isatty() if wanted is None else wanted
        self._overwrites = self._wanted and sys.stderr.isatty()
        self._clock_s = clock_s
        self._started_s = self._told_s = clock_s()
        self._first: int | None = None

    def reading(self, count: int) -> None:
        """Tell how many records were read in, if it is time to.

        Args:
            count: so far.
        """
        if self._is_time():
            self._tell(f"{count:,} records read")

    def replaying(self, partitions: Iterable[tuple[str, int, int]]) -> None:
        """Tell how far each partition of calls is, if it is time to.

        Args:
            partitions: name, calls done and calls in all of each.
        """
        if not self._is_time():
            return
        listed = list(partitions)
        done, total = sum(row[1] for row in listed), sum(row[2] for row in listed)
        if self._first is None:
            # The rate is that of this run, whatever was done before an interruption.
            self._first, self._started_s = done, self._clock_s()
            return
        rate = (done - self._first) / max(self._clock_s() - self._started_s, 0.001)
        left = f"{(total - done) / rate:,.0f} s left" if rate > 0 else "time left not known"
        each = ", ".join(f"{name} {_percent(part, of)}" for name, part, of in listed[:_PARTITIONS_SHOWN_MAX])
        more = f" and {len(listed) - _PARTITIONS_SHOWN_MAX} more" if len(listed) > _PARTITIONS_SHOWN_MAX else ""
        self._tell(f"{_percent(done, total)} of {total:,} calls, {rate:,.0f}/s, {left}: {each}{more}")

    def end(self) -> None:
        """Leave the line."""
        if self._overwrites:
            typer.echo("", err=True)

    def _is_time(self) -> bool:
        if not self._wanted or self._clock_s() - self._told_s < _EVERY_S:
            return False
        self._told_s = self._clock_s()
        return True

    def _tell(self, text: str) -> None:
        if self._overwrites:
            typer.echo(f"\r\x1b[K{text}", nl=False, err=True)
        else:
            typer.echo(f"assay-stream: {text}", err=True)


def _percent(part: int, total: int) -> str:
    return f"{100 * part // total if total else 100} %"
