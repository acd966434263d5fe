"""Where a replay or an archive takes its records from, and which of them: options and reading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_stream.alerts.selection import since_of
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.archive import TooLong, read_files
from assay_stream.model.record import Record, Role
from assay_stream.replay.selection import OFFSETS_METAVAR, Selection, offsets_of

FromTime = Annotated[
    str | None, typer.Option(help="Calls from this time of the log on (RFC 3339). Snapshots count from the beginning.")
]
ToTime = Annotated[str | None, typer.Option(help="Records before this time of the log (RFC 3339).")]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        metavar=OFFSETS_METAVAR,
        help="Only these offsets, the end exclusive, either may be missing. Of this topic these partitions only. "
        "May be given several times.",
    ),
]
ServerIds = Annotated[
    list[str] | None, typer.Option("--server-id", help="Of this server only. May be given several times.")
]
FromKafka = Annotated[bool, typer.Option("--from-kafka", help="Read the deployment's topics, in no consumer group.")]

Take = Callable[[Record], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Files, or the topics of a deployment.

    Args:
        files: archives, in order.
        settings: the operator's settings.
        ends: where each partition of the topics ends, ``None`` for files.
        selection: which records.
        partitions: how many partitions the snapshot topic has, ``None`` where that is not known.
    """

    files: tuple[Path, ...]
    settings: Settings
    ends: dict[Role, dict[int, int]] | None
    selection: Selection
    partitions: int | None = None

    def what(self) -> dict[str, Any]:
        """Return what decides the records: who goes on from an interruption must have the same.

        Raises:
            InputError: ``unreadable_file``.
        """
        selection = self.selection
        told: dict[str, Any] = {
            "from_time": selection.from_ms,
            "to_time": selection.to_ms,
            "offsets": sorted([*place, *bounds] for place, bounds in selection.offsets.items()),
            "server_ids": sorted(selection.server_ids),
            "snapshot_partitions": self.partitions,
        }
        if self.ends is not None:
            return told | {"bootstrap_servers": self.settings.bootstrap_servers, "prefix": self.settings.topic_prefix}
        try:
            stats = [(str(path), path.stat()) for path in self.files]
        except OSError as error:
            raise InputError("unreadable_file", f"cannot read {error.filename}: {error.strerror}") from None
        return told | {"inputs": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]}

    def read(self, take: Take, *, too_long: TooLong | None = None) -> None:
        """Hand every record that is asked for to somebody.

        Raises:
            InputError: where a file cannot be read.
            OperatingError: where the brokers do not answer.
        """
        if self.ends is not None:
            asyncio.run(_read_topics(self, take))
            return
        for record in self._from_files(too_long):
            take(record)

    def _from_files(self, too_long: TooLong | None) -> Iterator[Record]:
        narrows, wants = self.selection.narrows, self.selection.wants
        for record in read_files(self.files, too_long=too_long):
            if not narrows or wants(record):
                yield record


def make_selection(
    from_time: str | None, to_time: str | None, offsets: list[str] | None, server_ids: list[str] | None
) -> Selection:
    """Return what the options ask for.

    Raises:
        InputError: ``bad_time``.
        ConfigurationError: ``bad_offsets``.
    """
    return Selection(
        from_ms=None if from_time is None else since_of(from_time),
        to_ms=None if to_time is None else since_of(to_time),
        offsets=offsets_of(offsets or ()),
        server_ids=frozenset(server_ids or ()),
    )


def make_source(
    files: list[Path] | None,
    from_kafka: bool,
    selection: Selection,
    settings: Settings,
    *,
    snapshot_partitions: int | None = None,
    ends: dict[Role, dict[int, int]] | None = None,
) -> Source:
    """Return where to read.

    Raises:
        ConfigurationError: ``no_source``, ``topic_missing``.
        OperatingError: ``broker_unreachable``.
    """
    if from_kafka == bool(files):
        raise ConfigurationError("no_source", "give either files (--input) or --from-kafka")
    if from_kafka:
        if ends is None:
            ends = asyncio.run(_note_ends(settings))
        snapshot_partitions = len(ends[Role.SNAPSHOTS])
    return Source(
        files=tuple(files or ()),
        settings=settings,
        ends=ends if from_kafka else None,
        selection=selection,
        partitions=snapshot_partitions,
    )


def joined_source(settings: Settings) -> Source:
    """Return the topics of a deployment, their calls as far as there is evidence of them.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``broker_unreachable``.
    """
    from assay_stream.kafka.lookup import joined_ends

    ends = asyncio.run(joined_ends(settings))
    return make_source(None, True, Selection(), settings, ends=ends)


async def _note_ends(settings: Settings) -> dict[Role, dict[int, int]]:
    from assay_stream.kafka.lookup import READ, note_ends

    return await note_ends(settings, READ)


async def _read_topics(source: Source, take: Take) -> None:
    from assay_stream.kafka.lookup import read_ranges

    async for record in read_ranges(source.settings, source.ends or {}, source.selection):
        take(record)
