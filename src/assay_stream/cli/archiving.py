"""``assay-stream archive``: the input topics into files that replay without a broker."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from assay_stream.cli.files import Force, refuse_filled_folder
from assay_stream.cli.options import Bootstrap, ProgressOption, grouped
from assay_stream.cli.output import print_json
from assay_stream.cli.progress import Meter
from assay_stream.cli.shared import NOTHING_FOUND, say
from assay_stream.cli.sources import RangeOptions, Source, make_source
from assay_stream.config import command_settings
from assay_stream.files.archive_manifest import ARCHIVE_MANIFEST, PartitionPlace, manifest_bytes
from assay_stream.files.aside import PREFIX, Aside, locked_folder
from assay_stream.files.compressed import write_archive
from assay_stream.files.failures import writing_to
from assay_stream.files.record_line import record_line
from assay_stream.kafka import ranges as log_ends
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Record, Role


class ArchivedRole(StrEnum):
    CONTROL = "control"
    SNAPSHOTS = "snapshots"
    CALLS = "calls"


Compression = Literal["none", "gzip", "zstd"]

_SUFFIX: dict[Compression, str] = {"none": "", "gzip": ".gz", "zstd": ".zst"}
_NAMES = frozenset(f"{role}.ndjson{suffix}" for role in ArchivedRole for suffix in _SUFFIX.values())
_LEFTOVERS = frozenset(f"{PREFIX}{name}" for name in {*_NAMES, ARCHIVE_MANIFEST})


@grouped
def archive(
    output: Annotated[Path, typer.Option(help="Folder for the files; it must be empty or missing.")],
    ranges: RangeOptions,
    force: Force = False,
    topics: Annotated[list[ArchivedRole] | None, typer.Option(help="Only this topic. Repeatable.")] = None,
    compression: Annotated[Compression, typer.Option(help="How files are compressed.")] = "gzip",
    progress: ProgressOption = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Copy the input topics into files, without a consumer group. Replaying either gives the same result.

    A line is a record with topic, partition, offset, timestamp, key, headers and value. Prints a summary as one JSON
    object. archive.json says how far the join had come, for `verify`. Exit code 5 if nothing matches the selection.
    """
    refuse_filled_folder(output, force=force, leftovers=_LEFTOVERS)
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    selection = ranges.selection()
    # Before the ends are noted: whatever the join had committed is then in the files.
    joined = asyncio.run(log_ends.committed_offsets(settings, "join"))
    source = make_source(None, True, selection, settings)
    wanted = {Role(chosen) for chosen in topics or list(ArchivedRole)}
    source = replace(source, ends={role: ends for role, ends in (source.ends or {}).items() if role in wanted})
    names = {role: f"{role.value}.ndjson{_SUFFIX[compression]}" for role in sorted(wanted)}
    meter = Meter(progress)
    with writing_to(output), locked_folder(output), Aside() as aside:
        last: dict[PartitionPlace, int] = {}
        counts = _write(source, {role: aside.path(output / name) for role, name in names.items()}, meter, last)
        aside.path(output / ARCHIVE_MANIFEST).write_bytes(_manifest(source, joined, last))
        for name in _NAMES:
            aside.remove(output / name)
        if not counts.total():
            aside.drop()
    meter.end()
    print_json({"written": counts, "snapshot_partitions": source.partitions})
    if not counts.total():
        say("no record matches the selection: check the times, offsets and servers")
        raise typer.Exit(NOTHING_FOUND)


def _manifest(source: Source, joined: Mapping[PartitionPlace, int], last: Mapping[PartitionPlace, int]) -> bytes:
    names = topic_names(source.settings)
    ends = {(names[role], number): end for role, found in (source.ends or {}).items() for number, end in found.items()}
    return manifest_bytes(ends, {place: joined[place] for place in ends if place in joined}, last)


def _write(source: Source, paths: Mapping[Role, Path], meter: Meter, last: dict[PartitionPlace, int]) -> Counter[str]:
    """Write every selected record, store the last offset of each partition in ``last``, and return counts by role."""
    counts: Counter[str] = Counter({role.value: 0 for role in paths})
    with ExitStack() as stack:
        files = {role: stack.enter_context(write_archive(path)) for role, path in paths.items()}

        def take(record: Record) -> None:
            files[record.role].write(record_line(record) + b"\n")
            last[record.origin[:2]] = max(record.origin.offset, last.get(record.origin[:2], 0))
            counts[record.role.value] += 1

        source.read(take, meter=meter)
    return counts
