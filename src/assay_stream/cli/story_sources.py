"""Where ``alerts list``, ``show`` and ``explain`` read from: files, a store, or the topics, in this order."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer

from assay_stream.alerts.context import Calls, Sightings
from assay_stream.alerts.formats.view import AlertView, read_alert
from assay_stream.alerts.index import AlertIndex, AlertRow, Life
from assay_stream.alerts.processor import partition_key
from assay_stream.alerts.selection import AlertSelection
from assay_stream.alerts.story import AlertStory, story_of, tool_names_of
from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import jcs_digest
from assay_stream.cli.alerts import AlertFile, AlertStore
from assay_stream.cli.files import STANDARD_INPUT, files_option, input_lines
from assay_stream.cli.inventory import every_row
from assay_stream.cli.options import Bootstrap, time_option
from assay_stream.cli.shared import Refusals, on_kafka, say
from assay_stream.cli.store_sources import opened_store
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError
from assay_stream.kafka.lookup import read_bindings, read_definitions, read_entries, read_records
from assay_stream.model.record import Record, Role
from assay_stream.readmodel.alert_life import life_of, pinned_digest
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter, EvidenceFilter
from assay_stream.registry.state import Bindings
from assay_stream.report.pins import full_digest_of

_PROGRESS_EVERY_S = 5.0
_PROGRESS_CHECK_RECORDS = 1_000
_DEFINITIONS = "definitions.ndjson"
_UID_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
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
            InputError: ``bad_uid``, ``unknown_uid`` or ``ambiguous_uid``; as ``index_of`` besides.
        """
        if self.file is None and self.store is not None:
            return self._from_store(self.store, uid, full=full)
        refused = Refusals()
        index = index_of(self.file, self.bootstrap_servers, refused, uid)
        life = index.the_one()
        calls = None if self.no_calls else _calls_of(life, None if self.since is None else self.since // 1_000)
        further: dict[str, Any] = {"see_also": index.on_same_definition(life.last.uid), "full": full}
        if self.file is None:
            return asyncio.run(self._from_topics(life, calls, refused, further)), refused
        beside = self.file.with_name(_DEFINITIONS)
        path = self.definitions
        if path is None and self.file != STANDARD_INPUT and beside.is_file():
            path = beside
        definitions = {} if path is None else _definitions(path, _digests(life.last, None), refused)
        if self.evidence is None:
            calls = None
        elif calls is not None:
            _count_lines(calls, self.evidence, refused)
        return story_of(life, definitions=definitions, calls=calls, **further), refused

    def _from_store(self, folder: Path, uid: str, *, full: bool) -> tuple[AlertStory, Refusals]:
        refused = Refusals()
        with opened_store(folder) as store:
            life = life_of(store.alert(uid))
            view = life.last
            pinned, after = pinned_digest(store, view), view.fact("mcp_digest_after")
            digests = _digests(view, pinned)
            if self.definitions is not None:
                definitions = _definitions(self.definitions, digests, refused)
            else:
                found = {digest: store.definition(digest) for digest in digests}
                definitions = {digest: row.definition for digest, row in found.items() if row is not None}
            calls = None if self.no_calls else _calls_of(life, None if self.since is None else self.since // 1_000)
            if calls is not None and self.evidence is not None:
                _count_lines(calls, self.evidence, refused)
            elif calls is not None:
                for value in _stored_calls(store, view, calls.since_ms):
                    calls.add(value)
            about = AlertFilter(
                selection=AlertSelection(server_id=view.fact("mcp_server_id")), state=None, digest=after
            )
            alike = store.alerts(about).rows if after else ()
        see_also = [row.uid[:_UID_CHARS] for row in alike if row.uid != view.uid]
        story = story_of(life, definitions=definitions, pinned=pinned, calls=calls, see_also=see_also, full=full)
        return story, refused

    async def _from_topics(
        self, life: Life, calls: Calls | None, refused: list[str], further: dict[str, Any]
    ) -> AlertStory:
        view, settings = life.last, command_settings(bootstrap_servers=self.bootstrap_servers)
        server_id, tool_name = view.fact("mcp_server_id"), view.fact("mcp_tool_name") or None
        sightings = Sightings(view.uid, server_id, tool_name)
        about = {"kind": view.kind, "server_id": server_id, "tool_name": tool_name, "reason": view.fact("mcp_reason")}
        key = partition_key(about)
        async for entry in read_entries(settings, key):
            sightings.add(entry)
        pinned = None
        if view.fact("mcp_pin_expected") and not view.fact("mcp_digest_before"):
            pinned = _pinned_digest(view, await read_bindings(settings))
        digests = _digests(view, pinned)
        if self.definitions is not None:
            definitions = _definitions(self.definitions, digests, refused)
        else:
            definitions = await read_definitions(settings, digests) if digests else {}
        if calls is not None and self.evidence is not None:
            _count_lines(calls, self.evidence, refused)
        elif calls is not None:
            async for record in _reported(read_records(settings, Role.EVIDENCE, since_ms=calls.since_ms)):
                calls.add(record.value)
        return story_of(life, sightings=sightings, definitions=definitions, pinned=pinned, calls=calls, **further)


def index_of(file: Path | None, bootstrap: str | None, refused: list[str], prefix: str | None = None) -> AlertIndex:
    """Return the current alerts, and the whole history of those whose uid starts with a prefix.

    Args:
        file: file of alerts, ``-`` for standard input, ``None`` for Kafka.

    Raises:
        InputError: ``unreadable_file`` or ``bad_uid``.
        OperatingError: ``broker_unreachable``.
        ConfigurationError: ``topic_missing``.
    """
    index = AlertIndex(prefix)

    def take(where: object, value: bytes | None) -> None:
        try:
            index.add(read_alert(value))
        except InputError as error:
            refused.append(f"{where}: {error}")

    async def read_topic(settings: Settings) -> None:
        async for record in _reported(read_records(settings, Role.ALERTS)):
            take(record.origin, record.value)

    if file is None:
        on_kafka(command_settings(bootstrap_servers=bootstrap), read_topic)
    else:
        for where, line in _lines(file):
            take(where, line)
    return index


def stored_rows(folder: Path) -> list[AlertRow]:
    """Return the current alerts of a store.

    Raises:
        AssayStreamError: as ``opened_store``.
    """
    with opened_store(folder) as store:
        return list(every_row(lambda paging: store.alerts(AlertFilter(state=None), paging)))


def _stored_calls(store: Store, view: AlertView, since_ms: int) -> Iterator[bytes]:
    for name in sorted(tool_names_of(view)):
        wanted = EvidenceFilter(server_id=view.fact("mcp_server_id"), tool_name=name, since_us=since_ms * 1_000)
        for row in every_row(partial(store.evidence, wanted)):
            record = store.evidence_of(row.reference)
            if record is not None:
                yield record.value


def _calls_of(life: Life, since_ms: int | None) -> Calls | None:
    view = life.last
    names = tool_names_of(view)
    if not names:
        return None
    return Calls(
        server_id=view.fact("mcp_server_id"),
        tool_names=names,
        full_digest=view.fact("mcp_digest_after") or None,
        since_ms=min(view.first_seen_ms, life.first[0].first_seen_ms) if since_ms is None else since_ms,
    )


def _pinned_digest(view: AlertView, bindings: Bindings) -> str | None:
    server = bindings.find(view.fact("mcp_server_id"))
    if server is None:
        return None
    return full_digest_of(server, view.fact("mcp_pin_scheme"), view.fact("mcp_pin_expected"))


def _digests(view: AlertView, pinned: str | None) -> set[str]:
    return {each for each in (view.fact("mcp_digest_before"), view.fact("mcp_digest_after"), pinned) if each}


def _definitions(path: Path, digests: set[str], refused: list[str]) -> dict[str, dict[str, Any]]:
    """Return the definitions of a file that are asked for. What a line says its digest is does not count."""
    found: dict[str, dict[str, Any]] = {}
    for where, line in _lines(path):
        try:
            value = decode_json(line)
            definition = value.get("definition") if isinstance(value, dict) else None
            if not isinstance(definition, dict):
                raise InputError("not_a_definition", "a definition record has a member definition, an object")
            digest = str(jcs_digest(definition))
        except InputError as error:
            refused.append(f"{path}, {where}: {error}")
            continue
        if digest in digests:
            found[digest] = definition
    return found


def _count_lines(calls: Calls, path: Path, refused: list[str]) -> None:
    for where, line in _lines(path):
        try:
            calls.add(line)
        except InputError as error:
            refused.append(f"{path}, {where}: {error}")


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    for number, line in input_lines(path):
        yield f"line {number}", line


async def _reported(records: AsyncIterator[Record]) -> AsyncIterator[Record]:
    """Pass records on, and report from time to time how many there were."""
    count, said = 0, monotonic()
    async for record in records:
        count += 1
        if count % _PROGRESS_CHECK_RECORDS == 0 and monotonic() - said > _PROGRESS_EVERY_S:
            said = monotonic()
            say(f"read {count:,} records of {record.origin.topic} so far")
        yield record
