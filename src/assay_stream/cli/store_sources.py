"""Where inventory and evidence are looked up: a store, files, or the topics, read once within a time limit."""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from assay_stream.cli.files import archive_lines
from assay_stream.cli.options import Bootstrap, EvidenceFiles, Inputs
from assay_stream.cli.shared import collecting_seldom, on_kafka, say
from assay_stream.cli.sources import make_source
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError
from assay_stream.kafka.ends import note_ends
from assay_stream.kafka.lookup import read_records
from assay_stream.limits.store import STORE_BATCH_RECORDS
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import Filler
from assay_stream.readmodel.queries import Store, load
from assay_stream.replay.selection import Selection
from assay_stream.text.counting import counted
from assay_stream.verify.evidence import of_lines

EXIT_INCOMPLETE = 3
"""Exit code where not everything could be looked at."""


@dataclass(slots=True)
class Looked:
    """A store to ask, and whether it has all that there is.

    Args:
        is_live: whether what it holds reaches up to now.
    """

    store: Store
    is_live: bool
    is_complete: bool = True

    def now_us(self) -> int:
        """Return the time up to which the last day is counted: of recorded calls that of the latest."""
        newest = None if self.is_live else self.store.status().newest_us
        return time.time_ns() // 1_000 if newest is None else newest

    def end(self) -> None:
        """End with the exit code of an incomplete answer, if it is one."""
        if not self.is_complete:
            raise typer.Exit(EXIT_INCOMPLETE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Where to look."""

    store: Annotated[
        Path | None,
        typer.Option(
            envvar="ASSAY_STREAM_STORE", help="Folder of a store. Default: files if given, else the topics, read once."
        ),
    ] = None
    inputs: Inputs = None
    evidence: EvidenceFiles = None
    within_s: Annotated[
        float, typer.Option("--within", min=1, metavar="SECONDS", help="How long to read topics at most.")
    ] = 60
    bootstrap_servers: Bootstrap = None

    @contextmanager
    def looked(self, *roles: Role) -> Iterator[Looked]:
        """Open the store, or fill one in memory.

        Args:
            roles: what the answer rests on.

        Raises:
            InputError: ``bad_option``, ``store_unreadable``; as ``make_source``.
            ConfigurationError: ``store_missing``, ``store_version``, ``topic_missing``.
            OperatingError: ``store_failing``, ``broker_unreachable``.
        """
        if self.inputs or self.evidence:
            if self.inputs and self.evidence:
                raise InputError("bad_option", "give --input (observations) or --evidence, not both")
            with collecting_seldom():
                looked = Looked(self._from_files(), is_live=False)
        elif self.store is not None:
            with opened_store(self.store) as store:
                yield Looked(store, is_live=True)
            return
        else:
            with collecting_seldom():
                looked = self._from_topics(roles)
        try:
            with schema.failures("in memory"):
                yield looked
        finally:
            looked.store.close()

    def _from_files(self) -> Store:
        if self.inputs:
            settings = command_settings(bootstrap_servers=None)
            return load(make_source(self.inputs, False, Selection(), settings).derived())
        return load(each for path in self.evidence or () for each in _evidence(path))

    def _from_topics(self, roles: Collection[Role]) -> Looked:
        connection = schema.in_memory()
        filler, until = Filler(connection), time.monotonic() + self.within_s
        batch: list[Record] = []
        read, known, complete = 0, 0, True

        async def fill(settings: Settings) -> None:
            nonlocal read, known, complete
            ends = await note_ends(settings, roles)
            known = sum(end for of_role in ends.values() for end in of_role.values())
            for role in roles:
                async for record in read_records(settings, role):
                    batch.append(record)
                    read += 1
                    if len(batch) >= STORE_BATCH_RECORDS:
                        filler.take(batch)
                        batch.clear()
                    if time.monotonic() > until:
                        complete = False
                        return

        on_kafka(command_settings(bootstrap_servers=self.bootstrap_servers), fill)
        filler.take(batch)
        if complete:
            say(f"read {counted(read, 'record')} from {counted(len(roles), 'topic')}")
        else:
            say(
                f"incomplete: read {read:,} of at most {counted(known, 'record')} in {self.within_s:g} s. Give more "
                "time (--within), or keep a store (assay-stream store run) and name it with --store"
            )
        return Looked(Store(connection), is_live=True, is_complete=complete)


@contextmanager
def opened_store(folder: Path) -> Iterator[Store]:
    """Open a store to read, and say what it lacks.

    Raises:
        InputError: ``store_unreadable``.
        ConfigurationError: ``store_missing``, ``store_version``.
        OperatingError: ``store_failing``.
    """
    store = Store(schema.reading(folder))
    try:
        with schema.failures(folder):
            status = store.status()
            behind = sum(row.lag or 0 for row in status.positions)
            if behind:
                say(f"the store is {counted(behind, 'record')} behind the topics")
            if status.dropped:
                say(f"the store dropped {counted(status.dropped, 'older evidence record')} for age or size")
            yield store
    finally:
        store.close()


def _evidence(path: Path) -> Iterator[Record]:
    for number, recorded in enumerate(of_lines((line for _, line in archive_lines(path)), name=str(path))):
        yield recorded.record or Record(Role.EVIDENCE, Origin(str(path), 0, number), None, recorded.value)
