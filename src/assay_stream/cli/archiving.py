"""``assay-stream archive``, ``export``, ``bundle``: the logs into files; ``topics restore``: files into empty topics.

An archive of all topics restores a deployment as it was. From an archive of the inputs, workers derive the rest anew.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from assay_stream.cli.evidence import known_erasures, refuse_held
from assay_stream.cli.options import (
    Apply,
    Bootstrap,
    Force,
    ProgressOption,
    ServerIds,
    copied_stdin,
    refuse_existing_file,
    refuse_filled_folder,
    time_option,
)
from assay_stream.cli.output import print_json, refusal
from assay_stream.cli.shared import NOTHING_FOUND, argument, as_admin, flag, on_kafka, option, say
from assay_stream.cli.sources import Meter, RangeOptions, Source, make_source
from assay_stream.config import Settings, command_settings
from assay_stream.errors import ConfigurationError, InputError, IntegrityError
from assay_stream.files.archive import (
    ARCHIVE_MANIFEST,
    RESULTS,
    ArchivedOffsets,
    GroupOffset,
    PartitionPlace,
    check_whole,
    manifest_bytes,
    open_archive,
    read_manifest,
    write_archive,
)
from assay_stream.files.lines import read_lines, record_line
from assay_stream.files.local import PREFIX, Aside, locked_folder, path_text, writing_to
from assay_stream.files.spool import Log, LogSpool
from assay_stream.kafka import ranges as log_ends
from assay_stream.kafka.connection import AIOKafkaAdminClient
from assay_stream.kafka.exact import ExactWriter, Span, commit_group_offsets, group_offsets
from assay_stream.kafka.mirror import Mirror
from assay_stream.kafka.ranges import READ, Ends, LogRanges, not_at_rest, note_ends, read_records, settled_ends
from assay_stream.kafka.topics import topic_names, topic_table
from assay_stream.limits import BUNDLE_LIMITS
from assay_stream.model.record import TOPICS, Record, Role
from assay_stream.replay.order import OFFSETS_METAVAR, offset_ranges
from assay_stream.report.export import (
    Collection,
    export_bundles,
    export_parquet,
    export_timesketch,
    numbered_bundles,
    parquet_library,
)
from assay_stream.report.export_input import Dataset, ExportSelection, Stored, stored_in, verify_bundle


class ArchivedRole(StrEnum):
    CONTROL = "control"
    SNAPSHOTS = "snapshots"
    CALLS = "calls"


Compression = Literal["none", "gzip", "zstd"]


def file_of(role: Role) -> str:
    """Return the name of a topic's file in an archive, without the suffix of its compression."""
    is_known = role in READ or role.value in RESULTS
    return f"{role.value}.ndjson" if is_known else f"state-{role.value}.ndjson"


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
    all_topics: bool = flag("Every topic, and consumer groups' offsets. Stop the workers and the sealer first."),
    compression: Compression = option("Compression of the files.", default="gzip"),
    progress: ProgressOption = None,
    bootstrap_servers: Bootstrap = None,
) -> int:
    """Copy the input topics into files, without a consumer group. Replaying either gives the same result.

    A line is a record with topic, partition, offset, timestamp, key, headers and value. Prints a summary as one JSON
    object. archive.json records the position of the join, for `verify`. `topics restore` writes an archive back. Exit
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
    joined = on_kafka(settings, partial(log_ends.committed_offsets, stage="join"))
    whole = asyncio.run(WholeDeployment.noted(settings)) if all_topics else None
    source = make_source(None, True, selection, settings, ends=None if whole is None else whole.ends)
    wanted = set(map(Role, topics or log_ends.READ)) if whole is None else set(whole.ends)
    source = replace(source, ends={role: ends for role, ends in (source.ends or {}).items() if role in wanted})
    names = {role: f"{file_of(role)}{_SUFFIX[compression]}" for role in sorted(wanted)}
    meter = Meter(progress)
    counts: Counter[str] = Counter({role.value: 0 for role in names})
    last: dict[PartitionPlace, int] = {}
    with writing_to(output), locked_folder(output), Aside() as aside:
        with ExitStack() as stack:
            paths = {role: aside.path(output / name) for role, name in names.items()}
            files = {role: stack.enter_context(write_archive(path)) for role, path in paths.items()}

            def take(record: Record) -> None:
                files[record.role].write(record_line(record) + b"\n")
                last[record.origin[:2]] = max(record.origin.offset, last.get(record.origin[:2], 0))
                counts[record.role.value] += 1

            (source if whole is None else whole).read(take, meter=meter)
        aside.path(output / ARCHIVE_MANIFEST).write_bytes(_manifest(source, joined, last, whole))
        # An earlier archive goes as a whole, whatever topics it had.
        for role in Role if (output / ARCHIVE_MANIFEST).exists() else wanted.union(log_ends.READ):
            for suffix in _SUFFIX.values():
                aside.remove(output / f"{file_of(role)}{suffix}")
        if not counts.total():
            aside.drop()
    meter.end()
    print_json({"written": counts, "snapshot_partitions": source.partitions})
    if counts.total():
        return 0
    say("no record matches the selection: check the times, offsets and servers")
    return NOTHING_FOUND


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
            {"file": path_text(path), "run_id": manifest.run_id, "events": manifest.event_count,
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
def verify(file: Annotated[Path, argument("The bundle.", metavar="FILE")]) -> bool:
    """Check a bundle against every rule of the format, and print the result as one JSON object.

    Exit code 0 if it is valid, 1 if not. A valid bundle has not changed since it was written. It is not signed, so
    this does not say who wrote it.
    """
    try:
        manifest = verify_bundle(file)
    except InputError as error:
        if error.code == "unreadable_file":
            raise
        print_json(refusal(error))
        return True
    answer = {"valid": True, "run_id": manifest.run_id, "events": manifest.event_count}
    print_json(answer | {"run_root": str(manifest.run_root), "producer": dict(manifest.producer)})
    return False


def _tell(counts: dict[Dataset, int], collection: Collection, **more: object) -> None:
    written = {kind.value: count for kind, count in counts.items()}
    print_json({"written": written, "left_out": collection.left_out, **more})
    if not any(counts.values()):
        read = f"the selection matches none of the {collection.left_out} records read"
        say(f"nothing to export: {read if collection.left_out else 'there is no record'}")
        raise typer.Exit(1)


_BESIDE = (Role.INGESTED, Role.DEAD_LETTERS)
"""Written while workers rest, in no transaction of theirs."""


def archived_roles() -> list[Role]:
    """Return every role but those of users' agents, compacted topics first: they must rest until they are read."""
    roles = [role for role, topic in TOPICS.items() if not topic.of_agents]
    return sorted(roles, key=lambda role: (TOPICS[role].kept != "compacted", role in READ))


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeDeployment:
    """All topics of a deployment at a moment when no stage wrote."""

    settings: Settings
    ends: Ends
    groups: list[GroupOffset]
    firsts: dict[PartitionPlace, int]

    @staticmethod
    async def noted(settings: Settings) -> WholeDeployment:
        """Note where topics and consumer groups are; raises ``not_at_rest`` if a stage writes meanwhile."""
        derived = [role for role in archived_roles() if role not in READ and role not in _BESIDE]
        ends = await settled_ends(settings, derived)
        groups = await group_offsets(settings, set(topic_names(settings).values()))
        if await note_ends(settings, derived, isolation_level="read_uncommitted") != ends:
            # Positions committed since are those of records that the archive would lack.
            raise not_at_rest()
        # Inputs last: nothing may refer to a record that the archive lacks.
        ends |= await note_ends(settings, _BESIDE) | await note_ends(settings, READ)
        return WholeDeployment(settings=settings, ends=ends, groups=groups, firsts={})

    def read(self, take: Callable[[Record], None], *, meter: Meter) -> None:
        """Pass every record to ``take``; raises ``not_at_rest`` if a stage writes meanwhile."""
        asyncio.run(self._read(take, meter))

    async def _read(self, take: Callable[[Record], None], meter: Meter) -> None:
        take = meter.counting(take)
        compacted = [role for role in self.ends if TOPICS[role].kept == "compacted"]
        async with LogRanges(self.settings, archived_roles(), ends=self.ends) as logs:
            self.firsts.update(logs.starts())
            for role in archived_roles():
                if role not in compacted and compacted:
                    # What is written meanwhile may have superseded a record before it was read.
                    if await note_ends(self.settings, compacted) != {each: self.ends[each] for each in compacted}:
                        raise not_at_rest()
                    compacted = []
                async for record in logs.records(role):
                    take(record)


def topics_restore(
    folder: Annotated[Path, argument("An archive: `assay-stream archive --output FOLDER`.", metavar="FOLDER")],
    apply: Apply = False,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Write an archive into the empty topics of a cluster, with the original offset and time of each record.

    References to offsets (evidence, seals, progress) stay valid. Before it writes, it prints one JSON object: what it
    writes, and what cannot be restored. Create the topics first: `topics apply`. Nothing else may write to them at the
    same time. If it is interrupted, run it again: it continues.
    """
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    with LogSpool() as spool:
        asyncio.run(as_admin(settings, partial(Restoring(settings, folder, spool).run, apply=apply)))


class Restoring:
    """A restoration of one archive.

    Args:
        spool: takes the records of the archive.

    Raises:
        InputError: ``not_restorable`` if it is not a whole archive; as ``open_archive`` and ``read_lines``.
        ConfigurationError: ``other_topics``.
    """

    def __init__(self, settings: Settings, folder: Path, spool: LogSpool) -> None:
        manifest, specs = read_manifest(folder / ARCHIVE_MANIFEST), {each.name: each for each in topic_table(settings)}
        if manifest is None or manifest.selected:
            what = f"has no {ARCHIVE_MANIFEST}" if manifest is None else "holds a selection of the records"
            raise _not_restorable(f"{folder} {what}")
        topics = {each.topic for each in manifest.partitions}
        if unknown := sorted(topics - set(specs)):
            text = f"{folder} is an archive of {unknown[0]}, no topic of this deployment"
            raise ConfigurationError("other_topics", f"{text}: set ASSAY_STREAM_TOPIC_PREFIX as it was")
        self._groups = manifest.groups
        if others := sorted({each.topic for each in manifest.groups} - topics):
            raise _not_restorable(f"{ARCHIVE_MANIFEST} has positions in {others[0]}, which is not in it")
        self._roles = {specs[topic].role for topic in topics}
        # Of other topics, an archive has all that its release knew.
        if missing := sorted(role.value for role in set(READ) - self._roles):
            raise _not_restorable(f"{folder} lacks the topics of {', '.join(missing)}")
        self._restamped = sorted(topic for topic in topics if "message.timestamp.type" in specs[topic].config)
        places = {(each.topic, each.partition): each for each in manifest.partitions}
        self.counts: Counter[str] = Counter()
        ranges: dict[PartitionPlace, tuple[int, int]] = dict.fromkeys(places, (0, -1))
        for record in _records(folder, self._roles):
            place = record.origin[:2]
            if place not in places or specs[place[0]].role is not record.role:
                raise _not_restorable(f"a record of {place[0]}, partition {place[1]}, is not in {ARCHIVE_MANIFEST}")
            ranges[place] = (0, max(record.origin.offset, ranges[place][1]))
            spool.add(record._replace(set_aside=False))
            self.counts[place[0]] += 1
        spool.finish()
        lasts = {place: each.last for place, each in places.items() if isinstance(each.last, int)}
        check_whole(ArchivedOffsets({}, lasts), ranges)
        spans = {}
        for place, each in places.items():
            log = Log(specs[place[0]].role, *place)
            first = next((record.origin.offset for record in spool.read(log)), each.end)
            spans[log] = Span(min(each.first, first) if isinstance(each.first, int) else first, each.end)
        self._writer = ExactWriter(settings, spool, spans, restamped=self._restamped)

    async def run(self, admin: AIOKafkaAdminClient, settings: Settings, *, apply: bool) -> None:
        """Print what is to be done, and do it if ``apply``."""
        cost = await self._writer.examine(admin)
        print_json(
            {
                "topics": dict(sorted(self.counts.items())),
                "left_to_write": asdict(cost),
                "groups": len({each.group for each in self._groups}),
                "not_restored": self.not_restored(),
            }
        )
        if not apply:
            return
        if cost.records or cost.transactions:
            # First: who is in a group is found out, and a second run rewinds nobody who has gone on.
            await commit_group_offsets(settings, self._groups)
        await self._writer.write(admin)
        print_json({"restored": sum(self.counts.values())})

    def not_restored(self) -> list[str]:
        lost = [f"{name}: records get the time of writing" for name in self._restamped]
        lost += ["a store: it names its cluster; fill a new one", "topics and state of users' agents"]
        if self._roles <= set(READ):
            lost += [
                "everything but the inputs: workers derive it again, at other offsets; evidence has the same bytes, "
                "unless a list was late",
                "seals: checkpoints begin anew; keep the old ones with the old evidence",
                "positions of consumer groups: a forwarder sends every alert again",
            ]
        return lost


def _records(folder: Path, roles: Iterable[Role]) -> Iterator[Record]:
    for role in sorted(roles):
        found = [path for suffix in ("", ".gz", ".zst") if (path := folder / f"{file_of(role)}{suffix}").exists()]
        if not found:
            raise _not_restorable(f"{folder} lacks {file_of(role)}")
        for path in found:
            yield from read_lines(open_archive(path), name=path.name, roles=tuple(Role))


def _not_restorable(why: str) -> InputError:
    return InputError("not_restorable", f"{why}: make a whole archive with `assay-stream archive`")


def topics_restore_mirror(
    alias: Annotated[
        str, argument("MirrorMaker's name for the lost cluster: its topics begin with it.", metavar="ALIAS")
    ],
    apply: Apply = False,
    drop_checkpoints: bool = flag("Leave out checkpoints over evidence that was not replicated."),
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Write records mirrored by MirrorMaker 2 into the empty topics of this deployment, at their original offsets.

    Evidence and seals then hold on this cluster unchanged, and workers continue from there. Before it writes, it prints
    one JSON object: what it writes, and what was not replicated. Refuses if an offset is not certain. Stop MirrorMaker
    and run `topics apply` first. If it is interrupted, run it again: it continues.
    """
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    with LogSpool() as spool:

        async def restore(admin: AIOKafkaAdminClient, settings: Settings) -> None:
            found = Mirror(settings, alias, spool)
            await found.read()
            rerouted = topic_names(settings)[Role.REROUTED]
            writer = ExactWriter(settings, spool, found.spans, restamped={rerouted})
            cost = await writer.examine(admin)
            print_json(
                {
                    "records": dict(sorted(found.records.items())),
                    "left_to_write": asdict(cost),
                    "to_join": found.to_join,
                    "not_replicated": {role: count for role, count in sorted(found.not_replicated.items()) if count},
                    "checkpoints_dropped": found.checkpoints_dropped,
                }
            )
            if found.checkpoints_dropped and not drop_checkpoints:
                raise IntegrityError(
                    "mirror_behind_seals",
                    f"{found.checkpoints_dropped} checkpoints seal evidence that was not replicated. Keep them, and "
                    "the heads you noted, as proof that it existed, and repeat with --drop-checkpoints",
                )
            if apply:
                await writer.write(admin)
                print_json({"restored": sum(found.records.values())})

        asyncio.run(as_admin(settings, restore))
