"""Record sources for a replay, a comparison or an archive, the selection of records, and progress in reading them."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

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

from assay_stream.cli.options import ServerIds, time_option
from assay_stream.cli.shared import Refusals, on_kafka, option
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.files.archive import read_files
from assay_stream.files.lines import TooLong
from assay_stream.files.local import path_text, reading
from assay_stream.files.spool import LogSpool
from assay_stream.kafka import ranges as log_ends
from assay_stream.kafka.ranges import READ, Ends, LogRanges
from assay_stream.kafka.topics import topic_names
from assay_stream.limits import Limits
from assay_stream.model.record import ERROR_HEADERS, Origin, Output, Record, Role
from assay_stream.replay.order import OFFSETS_METAVAR, Selection, offsets_of
from assay_stream.replay.run import Replay

RecordSink = Callable[[Record], None]
Wanted = Callable[[Record], bool]
_Written = TypeVar("_Written", Record, Output)

LOOK_EVERY = 1_024
"""Records between two looks at the clock."""
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

    def counting(self, take: RecordSink) -> RecordSink:
        """Return ``take``, and show how many records it has taken."""
        counts = count(1)

        def counted(record: Record) -> None:
            take(record)
            if (read := next(counts)) % LOOK_EVERY == 0 and self._is_time():
                self._show([("records read", read, None)])

        return counted

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOptions:
    """Which records to take."""

    from_time: int | None = time_option("Calls from this log time on.")
    to_time: int | None = time_option("Records before this log time.")
    offsets: list[str] | None = option(
        "Only these offsets; the end is exclusive, and either number may be left out. Leaves out the topic's "
        "other partitions. Repeatable.",
        metavar=OFFSETS_METAVAR,
    )
    server_ids: ServerIds = None

    def selection(self) -> Selection:
        return Selection(
            from_ms=None if self.from_time is None else self.from_time // 1_000,
            to_ms=None if self.to_time is None else self.to_time // 1_000,
            offsets=offsets_of(self.offsets or ()),
            server_ids=frozenset(self.server_ids or ()),
        )


async def read_ranges(settings: Settings, ends: Ends, selection: Selection) -> AsyncIterator[Record]:
    """Yield the selected records before these end offsets, partition by partition."""
    names, roles = topic_names(settings), [role for role in reversed(READ) if role in ends]
    async with LogRanges(settings, roles, ends=ends) as logs:
        for role, number in [(each, number) for each in roles for number in logs.partitions(each)]:
            wanted = selection.range_of(names[role], number)
            if wanted is None:
                continue
            first, end = wanted.first, wanted.end
            if selection.from_ms is not None and role is Role.CALLS:
                first = max(first, await logs.offset_at(role, number, max(selection.from_ms, 0)))
            async for batch in logs.read(role, number, first=first, end=end):
                for record in filter(selection.wants, batch):
                    yield record


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Files, or the topics of a deployment."""

    files: tuple[Path, ...]
    settings: Settings
    ends: Ends | None
    selection: Selection
    partitions: int | None = None

    def what(self) -> dict[str, Any]:
        """Return what determines the records: a resumed run must match it."""
        selection = self.selection
        what: dict[str, Any] = {
            "from_time": selection.from_ms,
            "to_time": selection.to_ms,
            "offsets": sorted(map(list, selection.offsets)),
            "server_ids": sorted(selection.server_ids),
            "snapshot_partitions": self.partitions,
        }
        if self.ends is not None:
            return what | {"bootstrap_servers": self.settings.bootstrap_servers, "prefix": self.settings.topic_prefix}
        inputs = []
        for path in self.files:
            with reading(path):
                stat = path.stat()
            inputs.append([path_text(path), stat.st_size, stat.st_mtime_ns])
        return what | {"inputs": inputs}

    def read(self, take: RecordSink, *, meter: Meter | None = None, too_long: TooLong | None = None) -> None:
        """Pass every selected record to ``take``."""
        note = take if meter is None else meter.counting(take)

        async def read_topics(ends: Ends) -> None:
            async for record in read_ranges(self.settings, ends, self.selection):
                note(record)

        if self.ends is not None:
            asyncio.run(read_topics(self.ends))
            return
        for record in filter(self.selection.wants, read_files(self.files, too_long=too_long)):
            note(record)

    def spool(
        self, *, meter: Meter | None = None, too_long: TooLong | None = None, wanted: Wanted | None = None
    ) -> LogSpool:
        """Return every selected record in order; the caller closes the spool."""
        spool = LogSpool()

        def add_wanted(record: Record) -> None:
            if wanted is None or wanted(record):
                spool.add(record)

        try:
            self.read(spool.add if wanted is None else add_wanted, meter=meter, too_long=too_long)
            spool.finish()
        except BaseException:
            spool.close()
            raise
        return spool

    def replay(
        self, spool: LogSpool, *, take_fact: Callable[[Output], None] | None = None, limits: Limits | None = None
    ) -> Replay:
        """Return the replay of a spool from ``spool()``, under the operator's settings."""
        return Replay(
            spool,
            producer=self.settings.producer(),
            limits=self.settings.limits() if limits is None else limits,
            snapshot_partitions=self.partitions,
            redaction=self.settings.redaction(),
            call_profile=self.settings.call_profile,
            server_ids=self.selection.server_ids or None,
            alert_rules=self.settings.alert_rules(),
            take_fact=take_fact,
        )

    def derived(self, wanted: Wanted | None = None, *, limits: Limits | None = None) -> Iterator[Record]:
        """Yield everything a replay writes, including facts, as it would appear in topics."""
        offsets = Counter[tuple[Role, int]]()
        written: list[Output] = []
        with self.spool(wanted=wanted) as spool:
            for outputs in self.replay(spool, take_fact=written.append, limits=limits).steps():
                written += outputs
                for output in written:
                    place = (output.role, output.partition or 0)
                    origin = Origin(f"replay.{output.role.value}", place[1], offsets[place])
                    offsets[place] += 1
                    yield Record(output.role, origin, output.key, output.value, output.headers, output.timestamp_ms)
                written.clear()


def noted(written: Iterable[_Written], refused: Refusals) -> Iterator[_Written]:
    """Pass on what a replay wrote, and note the lines of its files that are no observations.

    What else a stage refuses has a key, and is refused by live stages as well.
    """
    for each in written:
        # One that was erased on record has no value either.
        if each.role is Role.REJECTED and each.key is None and each.value is not None:
            given = [(content or b"").decode() for _, content in each.headers[-len(ERROR_HEADERS) :]]
            _, message, topic, partition, offset = given
            refused.append(f"{Origin(topic, int(partition), int(offset))}: {message}")
        yield each


def make_source(
    files: list[Path] | None,
    from_kafka: bool,
    selection: Selection,
    settings: Settings,
    *,
    snapshot_partitions: int | None = None,
    ends: Ends | None = None,
) -> Source:
    if from_kafka == bool(files):
        raise ConfigurationError("no_source", "give either files (--input) or --from-kafka")
    if from_kafka:
        ends = ends or on_kafka(settings, partial(log_ends.note_ends, roles=READ))
        snapshot_partitions = len(ends[Role.SNAPSHOTS])
    return Source(
        files=tuple(files or ()), settings=settings, ends=ends, selection=selection, partitions=snapshot_partitions
    )


def joined_source(settings: Settings) -> Source:
    """Return the topics of a deployment, with calls only as far as evidence covers them."""
    return make_source(None, True, Selection(), settings, ends=on_kafka(settings, log_ends.joined_ends))
