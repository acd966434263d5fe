"""Where commands look back: a store, files, or the topics. Files and topics are read into a store in memory, as
``store run`` fills one, so that every answer is a store's.
"""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from assay_stream.alerts.formats.view import AlertView, read_alert, view_of
from assay_stream.alerts.story import AlertStory, tool_names_of
from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import jcs_digest
from assay_stream.cli.files import STANDARD_INPUT, archive_lines, files_option, input_lines
from assay_stream.cli.options import AlertFile, AlertStore, Bootstrap, EvidenceFiles, Inputs, time_option
from assay_stream.cli.shared import Refusals, collecting_seldom, on_kafka, say
from assay_stream.cli.sources import make_source
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError
from assay_stream.kafka.lookup import read_records
from assay_stream.kafka.ranges import note_ends
from assay_stream.limits.store import STORE_BATCH_RECORDS, STORE_PAGE_ROWS_MAX
from assay_stream.model.record import Origin, Record, Role
from assay_stream.model.suppression import ANY_SERVER
from assay_stream.readmodel import schema
from assay_stream.readmodel.calls import read_line
from assay_stream.readmodel.filling import Filler, fill
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertHistory, Page, Paging
from assay_stream.readmodel.stories import calls_of, first_ms, key_of, known_definitions, story
from assay_stream.replay.selection import Selection
from assay_stream.text.counting import counted
from assay_stream.verify.evidence import of_lines

EXIT_INCOMPLETE = 3
"""Exit code where not everything could be looked at."""

_PROGRESS_EVERY_S = 5.0
_DEFINITIONS = "definitions.ndjson"
_Row = TypeVar("_Row")
_Wanted = Callable[[Record], bool]


@dataclass(slots=True)
class Looked:
    """A store to ask, and whether it has all that there is.

    Args:
        is_live: whether what it holds reaches up to now.
        refused: lines and records that could not be read.
    """

    store: Store
    is_live: bool
    is_complete: bool = True
    refused: Refusals = field(default_factory=Refusals)

    def now_us(self) -> int:
        """Return the time up to which the last day is counted: of recorded calls that of the latest."""
        newest = None if self.is_live else self.store.status().newest_us
        return time.time_ns() // 1_000 if newest is None else newest

    def end(self) -> None:
        """End with the exit code of an incomplete answer, if it is one."""
        if not self.is_complete:
            raise typer.Exit(EXIT_INCOMPLETE)

    def read(self, *roles: Role, since_ms: int | None = None, wanted: _Wanted | None = None) -> None:
        """Read more into the store, where it is filled from topics."""


class _Topics(Looked):
    """A store in memory, filled from the topics that an answer rests on.

    Args:
        within_s: how long to read at most, ``None`` for no bound.
    """

    __slots__ = ("_filler", "_settings", "_until", "_within_s")

    def __init__(self, settings: Settings, within_s: float | None = None) -> None:
        connection = schema.in_memory()
        Looked.__init__(self, Store(connection), is_live=True)
        self._filler, self._settings, self._within_s = Filler(connection), settings, within_s
        self._until = time.monotonic() + (float("inf") if within_s is None else within_s)

    def read(self, *roles: Role, since_ms: int | None = None, wanted: _Wanted | None = None) -> None:
        """Read topics once, to their end or the end of the time.

        Args:
            since_ms: skip everything before the first record of this timestamp or later.
            wanted: which records are taken in; by default all.
        """
        read = known = 0

        async def fill(settings: Settings) -> None:
            nonlocal read, known
            known = sum(end for of_role in (await note_ends(settings, roles)).values() for end in of_role.values())
            said_s, batch = time.monotonic(), list[Record]()
            for role in roles:
                async for record in read_records(settings, role, since_ms=since_ms):
                    read += 1
                    if (wanted is None or wanted(record)) and self._is_sound(record):
                        batch.append(record)
                    if len(batch) >= STORE_BATCH_RECORDS:
                        self._filler.take(batch)
                        batch.clear()
                    if read % 1_000 == 0 and time.monotonic() - said_s > _PROGRESS_EVERY_S:
                        said_s = time.monotonic()
                        say(f"read {read:,} of at most {counted(known, 'record')} so far")
                    if time.monotonic() > self._until:
                        self.is_complete = False
                        break
            self._filler.take(batch)

        with collecting_seldom():
            on_kafka(self._settings, fill)
        if self._within_s is None:
            return
        if self.is_complete:
            say(f"read {counted(read, 'record')} from {counted(len(roles), 'topic')}")
        else:
            say(
                f"incomplete: read {read:,} of at most {counted(known, 'record')} in {self._within_s:g} s. Give more "
                "time (--within), or keep a store (assay-stream store run) and name it with --store"
            )

    def _is_sound(self, record: Record) -> bool:
        if record.role is not Role.ALERTS:
            return True
        try:
            read_alert(record.value)
        except InputError as error:
            self.refused.append(f"{record.origin}: {error}")
            return False
        return True


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
        if self.inputs and self.evidence:
            raise InputError("bad_option", "give --input (observations) or --evidence, not both")
        if self.inputs or self.evidence:
            with _in_memory() as looked, collecting_seldom():
                self._fill(looked)
                yield looked
        elif self.store is not None:
            with opened_store(self.store) as store:
                yield Looked(store, is_live=True)
        else:
            with _closing(_Topics(command_settings(bootstrap_servers=self.bootstrap_servers), self.within_s)) as looked:
                looked.read(*roles)
                yield looked

    def _fill(self, looked: Looked) -> None:
        if self.inputs:
            settings = command_settings(bootstrap_servers=None)
            fill(looked.store.connection, make_source(self.inputs, False, Selection(), settings).derived())
        for path in self.evidence or ():
            lines = (line for _, line in archive_lines(path))
            fill(
                looked.store.connection,
                (
                    recorded.record or Record(Role.EVIDENCE, Origin(str(path), 0, number), None, recorded.value)
                    for number, recorded in enumerate(of_lines(lines, name=str(path)))
                ),
            )


@contextmanager
def _closing(looked: Looked) -> Iterator[Looked]:
    try:
        with schema.failures("in memory"):
            yield looked
    finally:
        looked.store.close()


def _in_memory() -> Any:
    return _closing(Looked(Store(schema.in_memory()), is_live=False))


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


def every_row(ask: Callable[[Paging], Page[_Row]], limit: int | None = None) -> Iterator[_Row]:
    """Yield the rows of all pages, or at most ``limit``."""
    left, after = limit, None
    while True:
        size = STORE_PAGE_ROWS_MAX if left is None else min(left, STORE_PAGE_ROWS_MAX)
        page = ask(Paging(limit=size, after=after))
        yield from page.rows
        left = None if left is None else left - len(page.rows)
        after = page.following
        if after is None or left == 0:
            return


@contextmanager
def alerts_in(file: Path | None, store: Path | None, bootstrap: str | None) -> Iterator[Looked]:
    """Open the store that has the alerts of a file, of a store's folder, or of the topics, in this order.

    Args:
        file: file of alerts, ``-`` for standard input.

    Raises:
        AssayStreamError: as ``StoreOptions.looked``; ``unreadable_file``.
    """
    if file is not None:
        with _in_memory() as looked:
            _take_lines(looked, Role.ALERTS, file)
            yield looked
    elif store is not None:
        with opened_store(store) as found:
            yield Looked(found, is_live=True)
    else:
        with _closing(_Topics(command_settings(bootstrap_servers=bootstrap))) as looked:
            looked.read(Role.ALERTS)
            yield looked


def published_alert(uid: str, bootstrap: str | None) -> AlertView:
    """Return the latest record of the alert in the topics whose uid begins so.

    Raises:
        InputError: ``bad_uid``, ``unknown_uid`` or ``ambiguous_uid``.
    """
    with alerts_in(None, None, bootstrap) as looked:
        return view_of(looked.store.alert(uid).records[-1])


def published_definitions(settings: Settings, digests: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the definitions with these full digests, as far as the topic holds them."""
    with _closing(_Topics(settings)) as looked:
        looked.read(Role.DEFINITIONS, wanted=lambda record: (record.key or b"").decode() in digests)
        found = {each: looked.store.definition(each) for each in digests}
    return {each: row.definition for each, row in found.items() if row is not None}


def _take_lines(looked: Looked, role: Role, path: Path) -> None:
    """Fill a store from lines, and note those that are none."""

    def records() -> Iterator[Record]:
        for number, line in input_lines(path):
            try:
                yield Record(role, Origin(str(path), 0, number), _key_of(role, line), line)
            except InputError as error:
                where = f"line {number}" if role is Role.ALERTS else f"{path}, line {number}"
                looked.refused.append(f"{where}: {error}")

    fill(looked.store.connection, records())


def _key_of(role: Role, line: bytes) -> bytes | None:
    """Return the key of the record in a line.

    Raises:
        InputError: where it is no such record.
    """
    if role is Role.ALERTS:
        read_alert(line)
    elif role is Role.EVIDENCE and read_line(line) is None:
        raise InputError("not_evidence", "this is no evidence record (assay.tool.decision)")
    elif role is Role.DEFINITIONS:
        value = decode_json(line)
        definition = value.get("definition") if isinstance(value, dict) else None
        if not isinstance(definition, dict):
            raise InputError("not_a_definition", "a definition record has a member definition, an object")
        # What a line says its digest is does not count.
        return str(jcs_digest(definition)).encode()
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertOptions:
    """Where ``alerts show`` and ``explain`` look."""

    file: AlertFile = None
    store: AlertStore = None
    definitions: Annotated[
        Path | None,
        files_option(
            "--definitions",
            help="Definitions (NDJSON, as replay writes them). Default: from the store or the topics; with --input, "
            f"{_DEFINITIONS} beside it.",
            kind="definitions",
        ),
    ] = None
    evidence: Annotated[
        Path | None,
        files_option(
            "--evidence",
            help="Evidence (NDJSON). Default: the store or the topics; none with --input.",
            kind="evidence",
        ),
    ] = None
    no_calls: Annotated[bool, typer.Option("--no-calls", help="Don't look for calls that used the tool.")] = False
    since: Annotated[int | None, time_option("Only calls since this time. Default: the first finding.")] = None
    bootstrap_servers: Bootstrap = None

    def story(self, uid: str, *, full: bool = False) -> tuple[AlertStory, Refusals]:
        """Return all that is known about one alert, and what could not be read.

        Raises:
            InputError: ``bad_uid``, ``unknown_uid`` or ``ambiguous_uid``; as ``alerts_in`` besides.
        """
        with alerts_in(self.file, self.store, self.bootstrap_servers) as looked, _in_memory() as given:
            history = looked.store.alert(uid)
            since_ms = first_ms(history) if self.since is None else self.since // 1_000
            self._read(looked, history, since_ms)
            definitions, evidence = self._definitions(), self.evidence
            for role, path in ((Role.DEFINITIONS, definitions), (Role.EVIDENCE, evidence)):
                if path is not None:
                    _take_lines(given, role, path)
            looked.refused.extend(given.refused)
            known = known_definitions(looked.store, history, among=looked.store if definitions is None else given.store)
            calls = None
            if not self.no_calls and (evidence is not None or self.file is None):
                asked = looked.store if evidence is None else given.store
                calls = calls_of(asked, history, since_ms=since_ms)
            return story(looked.store, history, known, calls=calls, full=full), looked.refused

    def _definitions(self) -> Path | None:
        if self.definitions is not None or self.file is None or self.file == STANDARD_INPUT:
            return self.definitions
        beside = self.file.with_name(_DEFINITIONS)
        return beside if beside.is_file() else None

    def _read(self, looked: Looked, history: AlertHistory, since_ms: int) -> None:
        """Read of the topics what the story needs, and no more."""
        view = view_of(history.records[-1])
        server = view.fact("mcp_server_id").encode()
        keys = {server, key_of(view).encode(), ANY_SERVER.encode()}
        looked.read(Role.FINDINGS, wanted=lambda record: record.key in keys)
        if view.fact("mcp_pin_expected") and not view.fact("mcp_digest_before"):
            looked.read(Role.BINDINGS)
        if self.definitions is None:
            pinned = known_definitions(looked.store, history).pinned
            named = (view.fact("mcp_digest_before"), view.fact("mcp_digest_after"), pinned)
            digests = {each.encode() for each in named if each}
            if digests:
                looked.read(Role.DEFINITIONS, wanted=lambda record: record.key in digests)
        if not self.no_calls and self.evidence is None and tool_names_of(view):
            looked.read(Role.EVIDENCE, since_ms=since_ms, wanted=lambda record: record.key == server)
