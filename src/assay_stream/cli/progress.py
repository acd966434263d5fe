"""Progress of long commands: bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterable

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TimeRemainingColumn,
)
from rich.text import Text

_EVERY_S = 1.0
_PARTITIONS_SHOWN_MAX = 8


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


class Meter:
    """Show progress, rate and remaining time, at most once a second."""

    def __init__(self, wanted: bool | None, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._console = Console(stderr=True)
        self._wanted = self._console.is_terminal if wanted is None else wanted
        self._clock_s = clock_s
        self._shown_s = clock_s()
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TaskProgressColumn(),
            _Rate(),
            TimeRemainingColumn(),
            console=self._console,
            auto_refresh=False,
            get_time=clock_s,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def reading(self, count: int) -> None:
        if self._is_time():
            self._show([("records read", count, None)])

    def replaying(self, partitions: Iterable[tuple[str, int, int]]) -> None:
        """Show progress per partition of calls, given as name, done and total."""
        if self._is_time():
            rows = list(partitions)
            total = ("calls", sum(done for _, done, _ in rows), sum(of for _, _, of in rows))
            self._show([total, *rows[:_PARTITIONS_SHOWN_MAX]] if len(rows) > 1 else rows)

    def end(self) -> None:
        """Clear the progress line."""
        if self._console.is_terminal:
            self._progress.stop()

    def _is_time(self) -> bool:
        if not self._wanted or self._clock_s() - self._shown_s < _EVERY_S:
            return False
        self._shown_s = self._clock_s()
        return True

    def _show(self, rows: Iterable[tuple[str, int, int | None]]) -> None:
        for name, done, total in rows:
            if name not in self._tasks:
                # What was done before an interruption says nothing about the speed of this run.
                self._tasks[name] = self._progress.add_task(name, completed=done, total=total)
            self._progress.update(self._tasks[name], completed=done)
        if self._console.is_terminal:
            self._progress.start()
            self._progress.refresh()
        else:
            self._console.print(self._progress.get_renderable())
