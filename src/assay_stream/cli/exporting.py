"""``assay-stream archive``, ``export`` and ``bundle``: the logs into files, and evidence and alerts for other tools."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from assay_stream.cli.evidence import known_erasures, refuse_held
from assay_stream.cli.files import Force, copied_stdin, refuse_existing_file, refuse_filled_folder
from assay_stream.cli.options import Bootstrap, ProgressOption, ServerIds, check_span, time_option
from assay_stream.cli.output import print_json
from assay_stream.cli.parameters import argument, flag, option
from assay_stream.cli.restoring import WholeDeployment, file_of
from assay_stream.cli.shared import NOTHING_FOUND, on_kafka, say
from assay_stream.cli.sources import Meter, RangeOptions, Source, make_source
from assay_stream.config import Settings, command_settings
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.export.export import Collection, export_bundles, export_parquet, export_timesketch, numbered_bundles
from assay_stream.export.input import Dataset, ExportSelection, Stored, stored_in, verify_bundle
from assay_stream.export.rows import parquet_library
from assay_stream.files.archive import ARCHIVE_MANIFEST, PartitionPlace, manifest_bytes
from assay_stream.files.compressed import write_archive
from assay_stream.files.local import PREFIX, Aside, locked_folder, writing_to
from assay_stream.files.record_line import record_line
from assay_stream.kafka import ranges as log_ends
from assay_stream.kafka.lookup import read_records
from assay_stream.kafka.topics import topic_names
from assay_stream.limits.storage import BUNDLE_LIMITS
from assay_stream.model.record import Record, Role
from assay_stream.replay.selection import OFFSETS_METAVAR, offset_ranges


class ArchivedRole(StrEnum):
    CONTROL = "control"
    SNAPSHOTS = "snapshots"
    CALLS = "calls"


Compression = Literal["none", "gzip", "zstd"]

_SUFFIX: dict[Compression, str] = {"none": "", "gzip": ".gz", "zstd": ".zst"}
_LEFTOVERS = frozenset(
    {f"{PREFIX}{file_of(role)}{suffix}" for role in Role for suffix in _SUFFIX.values()}
    | {f"{PREFIX}{ARCHIVE_MANIFEST}"}
)


def archive(
    output: Annotated[Path, option("Folder for the files; it must be empty or missing.")],
    ranges: RangeOptions,
    force: Force = False,
    topics: list[ArchivedRole] | None = option("Only this topic. Repeatable."),
    all_topics: bool = flag("Every topic, and consumer groups' offsets. Stop workers and sealer meanwhile."),
    compression: Compression = option("How files are compressed.", default="gzip"),
    progress: ProgressOption = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Copy the input topics into files, without a consumer group. Replaying either gives the same result.

    A line is a record with topic, partition, offset, timestamp, key, headers and value. Prints a summary as one JSON
    object. archive.json says how far the join had come, for `verify`. `topics restore` writes an archive back. Exit
    code 5 if nothing matches the selection.
    """
    refuse_filled_folder(output, force=force, leftovers=_LEFTOVERS)
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    if force and output.is_dir() and any(output.iterdir()):
        refuse_held(known_erasures(None, bootstrap_servers))
    selection = ranges.selection()
    if all_topics and (topics or selection.narrows):
        raise ConfigurationError("bad_option", "--all-topics takes no selection of topics, times, offsets or servers")
    # Before the ends are noted: whatever the join had committed is then in the files.
    joined = asyncio.run(log_ends.committed_offsets(settings, "join"))
    whole = asyncio.run(WholeDeployment.noted(settings)) if all_topics else None
    source = make_source(None, True, selection, settings, ends=None if whole is None else whole.ends)
    wanted = set(map(Role, topics or log_ends.READ)) if whole is None else set(whole.ends)
    source = replace(source, ends={role: ends for role, ends in (source.ends or {}).items() if role in wanted})
    names = {role: f"{file_of(role)}{_SUFFIX[compression]}" for role in sorted(wanted)}
    meter = Meter(progress)
    with writing_to(output), locked_folder(output), Aside() as aside:
        last: dict[PartitionPlace, int] = {}
        read = partial(source.read, meter=meter) if whole is None else partial(whole.read, meter=meter)
        counts = _write(read, {role: aside.path(output / name) for role, name in names.items()}, last)
        aside.path(output / ARCHIVE_MANIFEST).write_bytes(_manifest(source, joined, last, whole))
        for role in wanted.union(log_ends.READ):
            for suffix in _SUFFIX.values():
                aside.remove(output / f"{file_of(role)}{suffix}")
        if not counts.total():
            aside.drop()
    meter.end()
    print_json({"written": counts, "snapshot_partitions": source.partitions})
    if not counts.total():
        say("no record matches the selection: check the times, offsets and servers")
        raise typer.Exit(NOTHING_FOUND)


def _manifest(
    source: Source,
    joined: Mapping[PartitionPlace, int],
    last: Mapping[PartitionPlace, int],
    whole: WholeDeployment | None,
) -> bytes:
    names = topic_names(source.settings)
    ends = {(names[role], number): end for role, found in (source.ends or {}).items() for number, end in found.items()}
    return manifest_bytes(
        ends,
        {place: joined[place] for place in ends if place in joined},
        last,
        firsts=None if whole is None else whole.firsts,
        groups=() if whole is None else whole.groups,
        selected=source.selection.narrows,
    )


def _write(
    read: Callable[[Callable[[Record], None]], None], paths: Mapping[Role, Path], last: dict[PartitionPlace, int]
) -> Counter[str]:
    """Write every selected record, store the last offset of each partition in ``last``, and return counts by role."""
    counts: Counter[str] = Counter({role.value: 0 for role in paths})
    with ExitStack() as stack:
        files = {role: stack.enter_context(write_archive(path)) for role, path in paths.items()}

        def take(record: Record) -> None:
            files[record.role].write(record_line(record) + b"\n")
            last[record.origin[:2]] = max(record.origin.offset, last.get(record.origin[:2], 0))
            counts[record.role.value] += 1

        read(take)
    return counts


export_app = typer.Typer(help="Export evidence, alerts and definitions for other tools.", no_args_is_help=True)
bundle_app = typer.Typer(help="Check Assay evidence bundles.", no_args_is_help=True)

_ROLES = {Dataset.EVIDENCE: Role.EVIDENCE, Dataset.ALERTS: Role.ALERTS, Dataset.DEFINITIONS: Role.DEFINITIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selecting:
    """What to export, and from where."""

    inputs: list[Path] | None = option(
        "Bundle, archive (NDJSON, plain or compressed), folder of a replay, or `-` (stdin). Repeatable. "
        "Default: from Kafka.",
        "--input",
    )
    since_us: int | None = time_option("Only records of this time or later.", "--since")
    until_us: int | None = time_option("Only records before this time.", "--until")
    server_ids: ServerIds = None
    offsets: list[str] | None = option(
        "Only evidence of calls at these offsets of the call topic; the end is exclusive, and either number "
        "may be left out. Repeatable.",
        metavar=OFFSETS_METAVAR,
    )
    bootstrap_servers: Bootstrap = None

    @contextmanager
    def collection(self, *kinds: Dataset) -> Iterator[Collection]:
        """Collect the records of the given kinds."""
        check_span(self.since_us, self.until_us)
        servers, offsets = frozenset(self.server_ids or ()), offset_ranges(self.offsets or ())
        selection = ExportSelection(since_us=self.since_us, until_us=self.until_us, server_ids=servers, offsets=offsets)
        with Collection(selection, frozenset(kinds)) as collection:

            async def read_topics(settings: Settings) -> None:
                for kind in kinds:
                    async for record in read_records(settings, _ROLES[kind]):
                        if record.value is not None:
                            collection.take([Stored(str(record.origin), record.value, kind)])

            if self.inputs:
                collection.take(stored_in(map(copied_stdin, self.inputs)))
            else:
                on_kafka(command_settings(bootstrap_servers=self.bootstrap_servers), read_topics)
            yield collection


@export_app.command("assay-bundle")
def assay_bundle(
    output: Annotated[Path, option("The bundle (tar.gz), which must not exist.")],
    selecting: Selecting,
    force: Force = False,
    run_id: str | None = option("Default: derived from the content."),
    split: int | None = option("Events per bundle; writes several.", min=1, max=BUNDLE_LIMITS.events_max),
) -> None:
    """Write evidence as a bundle that Assay's verifier accepts. Equal evidence gives equal bytes.

    Prints a summary as one JSON object. Exit code 1, and no file, if there is nothing to export.
    """
    for path in (output, *numbered_bundles(output)):
        refuse_existing_file(path, force=force)
    with selecting.collection(Dataset.EVIDENCE) as collection:
        written = export_bundles(collection, output, run_id=run_id, split=split)
        _tell({Dataset.EVIDENCE: sum(manifest.event_count for _, manifest in written)}, collection, bundles=[
            {"file": str(path), "run_id": manifest.run_id, "events": manifest.event_count,
             "run_root": str(manifest.run_root)}
            for path, manifest in written
        ])  # fmt: skip


@export_app.command()
def parquet(
    output: Annotated[Path, option("Folder for the datasets; it must be empty or missing.")],
    selecting: Selecting,
    force: Force = False,
) -> None:
    """Write evidence.parquet, alerts.parquet and definitions.parquet.

    Prints a summary as one JSON object. Exit code 1, and no file, if there is nothing to export.
    """
    parquet_library()
    refuse_filled_folder(output, force=force)
    with selecting.collection(*Dataset) as collection:
        _tell(export_parquet(collection, output), collection)


@export_app.command()
def timesketch(
    output: Annotated[Path, option("The timeline, which must not exist; its name ends in .csv or .jsonl.")],
    selecting: Selecting,
    force: Force = False,
) -> None:
    """Write evidence and alerts as a timeline that Timesketch imports.

    Prints a summary as one JSON object. Exit code 1, and no file, if there is nothing to export.
    """
    if output.suffix not in (".csv", ".jsonl"):
        raise ConfigurationError("bad_option", "--output must end in .csv or .jsonl: Timesketch needs it")
    refuse_existing_file(output, force=force)
    with selecting.collection(Dataset.EVIDENCE, Dataset.ALERTS) as collection:
        _tell(export_timesketch(collection, output), collection)


@bundle_app.command()
def verify(file: Annotated[Path, argument("The bundle.", metavar="FILE")]) -> None:
    """Check a bundle against every rule of the format, and print the result as one JSON object.

    Exit code 0 if it is valid, 1 if not. A valid bundle has not changed since it was written. It is not signed, so
    this does not say who wrote it.
    """
    try:
        manifest = verify_bundle(file)
    except InputError as error:
        if error.code == "unreadable_file":
            raise
        print_json({"valid": False, "code": error.code, "path": error.path, "message": error.message})
        raise typer.Exit(1) from None
    answer = {"valid": True, "run_id": manifest.run_id, "events": manifest.event_count}
    print_json(answer | {"run_root": str(manifest.run_root), "producer": dict(manifest.producer)})


def _tell(counts: dict[Dataset, int], collection: Collection, **more: object) -> None:
    written = {kind.value: count for kind, count in counts.items()}
    print_json({"written": written, "left_out": collection.left_out, **more})
    if not any(counts.values()):
        read = f"the selection matches none of the {collection.left_out} records read"
        say(f"nothing to export: {read if collection.left_out else 'there is no record'}")
        raise typer.Exit(1)
