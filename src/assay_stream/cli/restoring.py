"""``assay-stream topics restore`` and ``restore-mirror``: an archive, or what MirrorMaker 2 copied, into empty topics.

An archive of all topics restores a deployment as it was. From an archive of the inputs, workers derive the rest anew.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from assay_stream.cli.options import Apply, Bootstrap
from assay_stream.cli.output import print_json
from assay_stream.cli.parameters import argument, flag
from assay_stream.cli.shared import as_admin, collecting_seldom
from assay_stream.cli.sources import Meter
from assay_stream.config import Settings, command_settings
from assay_stream.errors import ConfigurationError, InputError, IntegrityError
from assay_stream.files.archive import (
    ARCHIVE_MANIFEST,
    RESULTS,
    ArchivedOffsets,
    GroupOffset,
    PartitionPlace,
    check_whole,
    open_archive,
    read_lines,
    read_manifest,
)
from assay_stream.files.spool import Log, LogSpool
from assay_stream.kafka.connection import AIOKafkaAdminClient
from assay_stream.kafka.exact import ExactWriter, Span
from assay_stream.kafka.groups import commit_group_offsets, group_offsets
from assay_stream.kafka.mirror import Mirror
from assay_stream.kafka.ranges import READ, Ends, LogRanges, not_at_rest, note_ends, settled_ends
from assay_stream.kafka.topics import topic_names, topic_table
from assay_stream.model.record import TOPICS, Record, Role

_BESIDE = (Role.INGESTED, Role.DEAD_LETTERS)
"""Written while workers rest, in no transaction of theirs."""
_LOOK_EVERY = 1_024


def file_of(role: Role) -> str:
    """Return the name of a topic's file in an archive, without the suffix of its compression."""
    is_known = role in READ or role.value in RESULTS
    return f"{role.value}.ndjson" if is_known else f"state-{role.value}.ndjson"


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
        """Note where topics and consumer groups are.

        Raises:
            ConfigurationError: ``topic_missing``.
            OperatingError: ``not_at_rest``, ``broker_unreachable``.
        """
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
        """Pass every record to ``take``.

        Raises:
            OperatingError: ``not_at_rest``, ``broker_unreachable``.
        """
        asyncio.run(self._read(take, meter))

    async def _read(self, take: Callable[[Record], None], meter: Meter) -> None:
        count = 0
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
                    count += 1
                    if count % _LOOK_EVERY == 0:
                        meter.reading(count)


def topics_restore(
    folder: Annotated[Path, argument("An archive: `assay-stream archive --output FOLDER`.", metavar="FOLDER")],
    apply: Apply = False,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Write an archive into the empty topics of a cluster, every record at the offset, and with the time, that it had.

    What names offsets (evidence, seals, progress) then holds there as it is. Prints what it writes and what cannot be
    restored as one JSON object, before it writes. Create the topics first: `topics apply`. Nothing may write to them
    meanwhile. If it is interrupted, run it again: it continues.
    """
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    with collecting_seldom(), LogSpool() as spool:
        restoring = Restoring(settings, folder, spool)
        asyncio.run(as_admin(settings, lambda admin, _: restoring.run(admin, apply=apply)))


class Restoring:
    """A restoration of one archive.

    Args:
        spool: takes the records of the archive.

    Raises:
        InputError: ``not_restorable`` if it is not a whole archive; as ``open_archive`` and ``read_lines``.
        ConfigurationError: ``other_topics``.
    """

    def __init__(self, settings: Settings, folder: Path, spool: LogSpool) -> None:
        self._settings = settings
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

    async def run(self, admin: AIOKafkaAdminClient, *, apply: bool) -> None:
        """Print what is to be done, and do it if ``apply``.

        Raises:
            ConfigurationError: as ``ExactWriter.examine``; ``group_in_use``.
        """
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
            await commit_group_offsets(self._settings, self._groups)
        await self._writer.write(admin)
        print_json({"restored": sum(self.counts.values())})

    def not_restored(self) -> list[str]:
        """Return what stays different, in sentences."""
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
    """Write what MirrorMaker 2 mirrored into the empty topics of this deployment, at the offsets that records had.

    Evidence and seals then hold on this cluster as they are, and workers go on from there. Prints what it writes and
    what was not replicated as one JSON object, before it writes. Refuses if an offset is not certain. Stop MirrorMaker
    and run `topics apply` first. If it is interrupted, run it again: it continues.
    """
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    with collecting_seldom(), LogSpool() as spool:

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
