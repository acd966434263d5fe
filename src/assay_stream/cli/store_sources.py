"""Sources of history for commands: a store, files, or the topics. Files and topics are read into a temporary store,
filled as by ``store run``, so that every query runs on a store.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from assay_stream.alerts.story import AlertStory, tool_names_of
from assay_stream.alerts.view import AlertView, read_alert, view_of
from assay_stream.bindings.state import Bindings
from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import jcs_digest
from assay_stream.cli.options import (
    STANDARD_INPUT,
    AlertFile,
    Bootstrap,
    EvidenceFiles,
    Inputs,
    archive_lines,
    files_option,
    time_option,
)
from assay_stream.cli.shared import Refusals, flag, name_refused, note_incomplete, on_kafka, option, say
from assay_stream.cli.sources import Source, Wanted, make_source, noted
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError
from assay_stream.files.lines import record_line_parts
from assay_stream.files.local import path_text
from assay_stream.kafka.ranges import note_ends, read_records
from assay_stream.kafka.topics import topic_names
from assay_stream.limits import STORE_BATCH_RECORDS, STORE_PAGE_ROWS_MAX
from assay_stream.model.facts import decode_key
from assay_stream.model.finding import ANY_SERVER
from assay_stream.model.observation import CallEvent
from assay_stream.model.record import Origin, Record, Role
from assay_stream.model.state_table import KEY
from assay_stream.readmodel import schema
from assay_stream.readmodel.calls import read_line
from assay_stream.readmodel.filling import Filler, LogState, fill
from assay_stream.readmodel.queries import Store, calls_of, first_ms, key_of, known_definitions, story
from assay_stream.readmodel.rows import AlertHistory, Page, Paging
from assay_stream.replay.log_cut import unbounded
from assay_stream.replay.order import Selection
from assay_stream.report.timeline import TRACED_MAX, Sought
from assay_stream.text.escaping import counted

_PROGRESS_EVERY_S = 5.0
_DEFINITIONS, _EVIDENCE = "definitions.ndjson", "evidence.ndjson"
_Row = TypeVar("_Row")


@dataclass(slots=True)
class OpenedStore:
    """An opened store, and what it lacks.

    Args:
        topics: settings of the deployment from whose topics the store is filled as queries ask, if it is.
        within_s: how long topics are read at most.
        refused: lines and records that could not be read.
    """

    store: Store
    is_live: bool
    topics: Settings | None = None
    within_s: float | None = None
    is_complete: bool = True
    refused: Refusals = field(default_factory=Refusals)
    _begun_s: float = field(default_factory=time.monotonic)

    def now_us(self) -> int:
        """Return the end of the last day: now, or in recorded input the time of the latest call."""
        newest = None if self.is_live else self.store.status().newest_us
        return time.time_ns() // 1_000 if newest is None else newest

    def read(self, *roles: Role, since_ms: int | None = None, wanted: Wanted | None = None) -> None:
        """Read topics to their end or until the time limit, if the store is filled from topics."""
        if self.topics is None:
            return
        read, known = on_kafka(self.topics, lambda settings: self._fill(settings, roles, since_ms, wanted))
        if not self.is_complete:
            note_incomplete()
        if self.within_s is not None and self.is_complete:
            say(f"read {counted(read, 'record')} from {counted(len(roles), 'topic')}")
        elif self.within_s is not None:
            say(
                f"incomplete: read {read:,} of at most {counted(known, 'record')} in {self.within_s:g} s. Give more "
                "time (--within), or keep a store (assay-stream store run) and name it with --store"
            )

    async def _fill(
        self, settings: Settings, roles: Sequence[Role], since_ms: int | None, wanted: Wanted | None
    ) -> tuple[int, int]:
        """Return how many records were read, and how many there can be."""
        filler, ends, read, batch = Filler(self.store.connection), await note_ends(settings, roles), 0, list[Record]()
        names = topic_names(settings)
        logs = {(role, names[role], number): end for role, each in ends.items() for number, end in each.items()}
        filler.note({place: LogState(end=end) for place, end in logs.items()})
        known = sum(logs.values())
        said_s, until_s = time.monotonic(), self._begun_s + (self.within_s or float("inf"))
        for role in roles:
            async for record in read_records(settings, role, since_ms=since_ms):
                read += 1
                if (wanted is None or wanted(record)) and self._is_sound(record):
                    batch.append(record)
                if len(batch) >= STORE_BATCH_RECORDS:
                    filler.take(batch)
                    batch.clear()
                if read % 1_000 == 0 and time.monotonic() - said_s > _PROGRESS_EVERY_S:
                    said_s = time.monotonic()
                    say(f"read {read:,} of at most {counted(known, 'record')} so far")
                if time.monotonic() > until_s:
                    self.is_complete = False
                    break
        filler.take(batch)
        return read, known

    def pending_calls(self, sought: Sought) -> list[tuple[Origin, CallEvent]]:
        """Return calls without evidence yet, which only topics hold."""
        found: list[tuple[Origin, CallEvent]] = []

        async def read(settings: Settings) -> None:
            async for record in read_records(settings, Role.CALLS):
                event = sought.call_in(record, settings.call_profile) if len(found) < TRACED_MAX else None
                if event is not None:
                    found.append((record.origin, event))

        if self.topics is not None:
            on_kafka(self.topics, read)
        return found

    def _is_sound(self, record: Record) -> bool:
        if record.role is Role.ALERTS:
            try:
                read_alert(record.value)
            except InputError as error:
                self.refused.append(f"{record.origin}: {error}")
                return False
        return True


def about(*server_ids: str) -> Wanted:
    """Match records of any topic that can be about the given servers, by key; all records if none are given.

    A line that cannot be read has no key, and may be about any of them.
    """
    keys = {server_id.encode("utf-8", "surrogatepass") for server_id in server_ids}

    def wanted(record: Record) -> bool:
        if record.role is Role.BINDINGS:
            return record.key == KEY or decode_key(record.key)[1] in server_ids
        # What is found about a name on several servers stands under the group of the name.
        key = record.key
        return key is None or key in keys or (record.role is Role.ALERTS and key.startswith(b"names-"))

    return wanted if server_ids else lambda _: True


def not_calls(*server_ids: str) -> Wanted:
    """Match observations to replay for lists and decisions (not calls) of the given servers, or of all."""
    wanted = about(*server_ids)
    return lambda record: record.key is None or (record.role is not Role.CALLS and wanted(record))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """A store, or the topics."""

    store: Path | None = option(
        "Folder of a store. Default: files if given, else the topics, read once.",
        envvar="ASSAY_STREAM_STORE",
        metavar="FOLDER",
    )
    bootstrap_servers: Bootstrap = None

    def settings(self) -> Settings:
        return command_settings(bootstrap_servers=self.bootstrap_servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions(StoreOptions):
    """The same, or recorded observations."""

    inputs: Inputs = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceOptions(HistoryOptions):
    """The same, or files of evidence; topics are read for some time only."""

    evidence: EvidenceFiles = None
    within_s: float = option("How long to read topics at most.", "--within", default=60, min=1, metavar="SECONDS")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertOptions(StoreOptions):
    """A store, the topics, or a file of alerts."""

    file: AlertFile = None


@contextmanager
def open_store(
    options: StoreOptions, *roles: Role, replayed: Wanted | None = None, source: Source | None = None
) -> Iterator[OpenedStore]:
    """Open the store that the options name, or fill a temporary one from files or topics.

    The command ends with code 3 if topics could not be read whole, or lines were refused.

    Args:
        roles: topics that the query needs. If there are none, the caller reads them (``OpenedStore.read``).
        replayed: which records of files to replay, by default all; nothing is compacted then, so that history reaches
            back as far as the files.
        source: observations to replay, in place of the files that the options name.
    """
    inputs = options.inputs if isinstance(options, HistoryOptions) else None
    evidence = options.evidence if isinstance(options, EvidenceOptions) else None
    alerts = options.file if isinstance(options, AlertOptions) else None
    if inputs and evidence:
        raise InputError("bad_option", "give --input (observations) or --evidence, not both")
    if source is None and inputs:
        source = make_source(inputs, False, Selection(), options.settings())
    if source is not None or evidence or alerts is not None:
        refused = Refusals()
        with _temporary() as opened:
            if source is not None:
                limits = None if replayed is None else unbounded()
                fill(opened.store.connection, noted(source.derived(replayed, limits=limits), refused))
            for path in evidence or ():
                fill(opened.store.connection, results_in(path, Role.EVIDENCE, refused))
            if alerts is not None:
                fill(opened.store.connection, results_in(alerts, Role.ALERTS, opened.refused))
            name_refused(refused)
            yield opened
    elif options.store is not None:
        with closing(Store(schema.reading(options.store))) as store, schema.failures(options.store):
            status = store.status()
            if behind := sum(row.lag or 0 for row in status.positions):
                say(f"the store is {counted(behind, 'record')} behind the topics")
            if status.dropped:
                say(f"the store dropped {counted(status.dropped, 'older evidence record')} for age or size")
            yield OpenedStore(store, is_live=status.is_live)
    else:
        within_s = options.within_s if isinstance(options, EvidenceOptions) else None
        with _temporary(topics=options.settings(), within_s=within_s) as opened:
            if roles:
                opened.read(*roles)
            yield opened


@contextmanager
def _temporary(*, topics: Settings | None = None, within_s: float | None = None) -> Iterator[OpenedStore]:
    with closing(Store(schema.temporary())) as store, schema.failures("a temporary store"):
        yield OpenedStore(store, is_live=topics is not None, topics=topics, within_s=within_s)


def every_row(ask: Callable[[Paging], Page[_Row]], limit: int | None = None) -> Iterator[_Row]:
    left, after = limit, None
    while True:
        size = STORE_PAGE_ROWS_MAX if left is None else min(left, STORE_PAGE_ROWS_MAX)
        page = ask(Paging(limit=size, after=after))
        yield from page.rows
        left = None if left is None else left - len(page.rows)
        after = page.following
        if after is None or left == 0:
            return


def published_alert(uid: str, bootstrap: str | None) -> AlertView:
    """Return the latest record in the topics of the alert with this uid prefix."""
    with open_store(StoreOptions(bootstrap_servers=bootstrap), Role.ALERTS) as opened:
        return view_of(opened.store.alert(uid).records[-1])


def published_definitions(options: HistoryOptions, digests: Collection[str]) -> dict[str, dict[str, Any]]:
    keys = {each.encode() for each in digests}
    with open_store(options, replayed=not_calls()) as opened:
        opened.read(Role.DEFINITIONS, wanted=lambda record: record.key in keys)
        found = {each: opened.store.definition(each) for each in digests}
    return {each: row.definition for each, row in found.items() if row is not None}


def known_bindings(options: StoreOptions, *servers: str | None) -> Bindings:
    """Return what the registry published about the given servers, or about all of them."""
    server_ids = [each for each in servers if each is not None]
    with open_store(options, replayed=not_calls(*server_ids)) as opened:
        opened.read(Role.BINDINGS, wanted=about(*server_ids))
        return opened.store.bindings(*server_ids)


def results_in(path: Path, role: Role, refused: Refusals | None = None) -> Iterator[Record]:
    """Yield the records in a file of results: each line is a record, or a record line of an archive.

    Args:
        refused: collects errors of invalid lines, which are skipped; without it the store counts them.
    """
    for number, line in archive_lines(path):
        try:
            record = record_in(line, role, Origin(path_text(path), 0, number - 1))
            yield record if refused is None else _checked(record)
        except InputError as error:
            if refused is None:
                raise
            refused.append(f"{path}, line {number}: {error}")


def record_in(line: bytes, role: Role, place: Origin) -> Record:
    """Return what a line of a file of results holds: a record of this role, or any one in a record line of an archive.

    Raises:
        InputError: ``bad_record_line``.
    """
    record = record_line_parts(line, place) if line.startswith(b'{"origin"') else None
    return Record(role, place, b"", line) if record is None else record


def _checked(record: Record) -> Record:
    value = record.value or b""
    if record.role is Role.ALERTS:
        read_alert(value)
    elif record.role is Role.EVIDENCE and read_line(value) is None:
        raise InputError("not_evidence", "this is no evidence record (assay.tool.decision)")
    elif record.role is Role.DEFINITIONS:
        content = decode_json(value)
        definition = content.get("definition") if isinstance(content, dict) else None
        if not isinstance(definition, dict):
            raise InputError("not_a_definition", "a definition record has a member definition, an object")
        # What a line says its digest is does not count.
        return record._replace(key=str(jcs_digest(definition)).encode())
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryOptions(AlertOptions):
    """Where ``alerts show`` and ``explain`` look."""

    definitions: Path | None = files_option(
        "Definitions (NDJSON, as replay writes them). Default: from the store or the topics; with --input, "
        f"{_DEFINITIONS} beside it.",
        "--definitions",
        kind="definitions",
    )
    evidence: Path | None = files_option(
        f"Evidence (NDJSON). Default: the store or the topics; with --input, {_EVIDENCE} beside it, if there is one.",
        "--evidence",
        kind="evidence",
    )
    no_calls: bool = flag("Don't look for calls that used the tool.")
    since: int | None = time_option("Only calls since this time. Default: the first finding.")

    def story(self, uid: str, *, full: bool = False) -> tuple[AlertStory, Refusals]:
        """Return all that is known about one alert, and what was refused."""
        with open_store(self, Role.ALERTS) as opened, _temporary() as given:
            history = opened.store.alert(uid)
            since_ms = first_ms(history) if self.since is None else self.since // 1_000
            self._read(opened, history, since_ms)
            definitions = self._or_beside(self.definitions, _DEFINITIONS)
            evidence = None if self.no_calls else self._or_beside(self.evidence, _EVIDENCE)
            for role, path in ((Role.DEFINITIONS, definitions), (Role.EVIDENCE, evidence)):
                if path is not None:
                    fill(given.store.connection, results_in(path, role, opened.refused))
            known = known_definitions(opened.store, history, among=opened.store if definitions is None else given.store)
            calls = None
            if not self.no_calls and (evidence is not None or self.file is None):
                asked = opened.store if evidence is None else given.store
                calls = calls_of(asked, history, since_ms=since_ms)
            return story(opened.store, history, known, calls=calls, full=full), opened.refused

    def _or_beside(self, given: Path | None, name: str) -> Path | None:
        if given is not None or self.file is None or self.file == STANDARD_INPUT:
            return given
        beside = self.file.with_name(name)
        return beside if beside.is_file() else None

    def _read(self, opened: OpenedStore, history: AlertHistory, since_ms: int) -> None:
        """Read only the records that the story needs from the topics."""
        view = view_of(history.records[-1])
        server = view.fact("mcp_server_id").encode()
        keys = {server, key_of(view).encode(), ANY_SERVER.encode()}
        opened.read(Role.FINDINGS, wanted=lambda record: record.key in keys)
        if view.fact("mcp_pin_expected") and not view.fact("mcp_digest_before"):
            opened.read(Role.BINDINGS)
        if self.definitions is None:
            pinned = known_definitions(opened.store, history).pinned
            named = (view.fact("mcp_digest_before"), view.fact("mcp_digest_after"), pinned)
            digests = {each.encode() for each in named if each}
            if digests:
                opened.read(Role.DEFINITIONS, wanted=lambda record: record.key in digests)
        if not self.no_calls and self.evidence is None and tool_names_of(view):
            opened.read(Role.EVIDENCE, since_ms=since_ms, wanted=lambda record: record.key == server)
