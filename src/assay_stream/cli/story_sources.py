"""Where ``alerts list``, ``show`` and ``explain`` read from: files if they are given, else the topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from assay_stream.alerts.context import Calls, Sightings
from assay_stream.alerts.formats.view import AlertView, read_alert
from assay_stream.alerts.index import AlertIndex, Life
from assay_stream.alerts.processor import partition_key
from assay_stream.alerts.story import AlertStory, story_of, tool_names_of
from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import jcs_digest
from assay_stream.cli.files import input_lines
from assay_stream.cli.shared import quiet_client_logs, say
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError
from assay_stream.kafka.connection import start_admin
from assay_stream.kafka.lookup import read_bindings, read_definitions, read_entries, read_records
from assay_stream.model.record import Record, Role
from assay_stream.registry.state import Bindings

_PROGRESS_EVERY_S = 5.0
_PROGRESS_CHECK_RECORDS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What to read from where.

    Args:
        alerts: file of alerts, ``-`` for standard input, ``None`` for Kafka.
        definitions: file of definitions, ``None`` for Kafka where the alerts are read there too.
        evidence: file of evidence, in the same way.
        bootstrap: Kafka brokers, ``None`` for the settings'.
        calls: whether to look for calls.
    """

    alerts: Path | None
    definitions: Path | None = None
    evidence: Path | None = None
    bootstrap: str | None = None
    calls: bool = True


async def index_of(sources: Sources, refused: list[str], prefix: str | None = None) -> AlertIndex:
    """Return the alerts as they stand.

    Raises:
        InputError: ``unreadable_file`` or ``bad_uid``.
        OperatingError: ``broker_unreachable``.
        ConfigurationError: ``topic_missing``.
    """
    index = AlertIndex(prefix)
    if sources.alerts is not None:
        for where, line in _lines(sources.alerts):
            _take(index, where, line, refused)
        return index
    settings = await _reached(sources)
    async for record in _told(read_records(settings, Role.ALERTS)):
        origin = record.origin
        _take(index, f"{origin.topic}/{origin.partition}/{origin.offset}", record.value, refused)
    return index


async def story_from(uid: str, sources: Sources, refused: list[str], *, since_ms: int | None, full: bool) -> AlertStory:
    """Return what there is to be said of one alert.

    Raises:
        InputError: ``bad_uid``, ``unknown_uid`` or ``ambiguous_uid``; as ``index_of`` besides.
    """
    index = await index_of(sources, refused, uid)
    life = index.the_one()
    see_also = index.on_same_definition(life.last.uid)
    view = life.last
    calls = _calls_of(view, life, since_ms) if sources.calls else None
    if sources.alerts is not None:
        return _from_files(life, sources, calls, refused, see_also, full=full)
    settings = command_settings(bootstrap_servers=sources.bootstrap)
    server_id, tool_name = view.fact("mcp_server_id"), view.fact("mcp_tool_name") or None
    sightings = Sightings(view.uid, server_id, tool_name)
    key = partition_key({"kind": view.kind, "server_id": server_id, "tool_name": tool_name or ""})
    async for entry in read_entries(settings, key):
        sightings.add(entry)
    pinned = _pinned_digest(view, await read_bindings(settings)) if _is_about_a_pin(view) else None
    digests = _digests(view, pinned)
    if sources.definitions is not None:
        definitions = _definitions(sources.definitions, digests, refused)
    else:
        definitions = await read_definitions(settings, digests) if digests else {}
    if calls is not None and sources.evidence is not None:
        _count_lines(calls, sources.evidence, refused)
    elif calls is not None:
        async for record in _told(read_records(settings, Role.EVIDENCE, since_ms=calls.since_ms)):
            calls.add(record.value)
    return story_of(
        life, sightings=sightings, definitions=definitions, pinned=pinned, calls=calls, see_also=see_also, full=full
    )


def _from_files(
    life: Life, sources: Sources, calls: Calls | None, refused: list[str], see_also: list[str], *, full: bool
) -> AlertStory:
    definitions = {}
    if sources.definitions is not None:
        definitions = _definitions(sources.definitions, _digests(life.last, None), refused)
    if calls is not None and sources.evidence is not None:
        _count_lines(calls, sources.evidence, refused)
    return story_of(
        life,
        definitions=definitions,
        calls=calls if sources.evidence is not None else None,
        see_also=see_also,
        full=full,
    )


def _calls_of(view: AlertView, life: Life, since_ms: int | None) -> Calls | None:
    names = tool_names_of(view)
    if not names:
        return None
    return Calls(
        server_id=view.fact("mcp_server_id"),
        tool_names=names,
        full_digest=view.fact("mcp_digest_after") or None,
        since_ms=min(view.first_seen_ms, life.first[0].first_seen_ms) if since_ms is None else since_ms,
    )


def _is_about_a_pin(view: AlertView) -> bool:
    return bool(view.fact("mcp_pin_expected")) and not view.fact("mcp_digest_before")


def _pinned_digest(view: AlertView, bindings: Bindings) -> str | None:
    """Return the full digest of the definition that has the approved value, if it was ever observed here."""
    server = bindings.servers.get(view.fact("mcp_server_id"))
    scheme, expected = view.fact("mcp_pin_scheme"), view.fact("mcp_pin_expected")
    prints = () if server is None else server.tools.values()
    return next((print_.full for print_ in prints if print_.has_value(scheme, expected)), None)


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


def _take(index: AlertIndex, where: str, value: bytes | None, refused: list[str]) -> None:
    try:
        index.add(read_alert(value))
    except InputError as error:
        refused.append(f"{where}: {error}")


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    for number, line in input_lines(None if str(path) == "-" else path):
        yield f"line {number}", line


async def _reached(sources: Sources) -> Settings:
    quiet_client_logs()
    settings = command_settings(bootstrap_servers=sources.bootstrap)
    await (await start_admin(settings, waiting=say)).close()
    return settings


async def _told(records: AsyncIterator[Record]) -> AsyncIterator[Record]:
    """Pass records on, and say now and then how many there were."""
    count, told = 0, monotonic()
    async for record in records:
        count += 1
        if count % _PROGRESS_CHECK_RECORDS == 0 and monotonic() - told > _PROGRESS_EVERY_S:
            told = monotonic()
            say(f"{count:,} records of {record.origin.topic} read so far")
        yield record
