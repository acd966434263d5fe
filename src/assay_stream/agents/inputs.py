"""The records that agents read: evidence, findings and alerts as events, each decoded afresh for each handler."""

from __future__ import annotations

from typing import Any

import orjson

from assay_stream.agents.declaration import Event
from assay_stream.errors import InputError, IntegrityError
from assay_stream.model.cloudevents import time_us_of
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import decode_entry
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Record, Role, rejected, set_aside_error
from assay_stream.model.refusal import refusal

OF_AGENTS = frozenset({Kind.DETECTION, Kind.AGENT_LIMITED})
"""Findings that agents make and do not read."""


def read_input(role: Role, record: Record) -> Event[Any] | None:
    """Return the event in a record, ``None`` where it holds none for agents: they don't read what agents found.

    Args:
        role: ``EVIDENCE``, ``FINDINGS`` or ``ALERTS``.
        record: a record with the value of a record of that topic.

    Raises:
        IntegrityError: ``unknown_agent_input`` or ``unknown_finding``, where this version did not write it.
    """
    try:
        if role is Role.FINDINGS:
            return _finding(record.value)
        value = orjson.loads(record.value or b"")
        return _evidence(value) if role is Role.EVIDENCE else _alert(value)
    except (AttributeError, KeyError, TypeError, ValueError, InputError):
        raise unknown_input(record) from None


def set_aside(record: Record) -> list[Output]:
    """Return what is written for a record that ended its worker too often: its copy, and a finding."""
    error = set_aside_error()
    # Its key names no server.
    return [rejected(record, error), *refusal(record._replace(key=None), error)[1:]]


def unknown_input(record: Record) -> IntegrityError:
    """Return the error for a record that this version did not write."""
    place = record.origin
    return IntegrityError(
        "unknown_agent_input",
        f"{place.topic} holds a record this version cannot read, at offset {place.offset} of partition "
        f"{place.partition}: run the version that wrote it",
    )


def _evidence(value: dict[str, Any]) -> Event[Any]:
    data = value["data"]
    return Event(value, time_us_of(value["time"]), Origin(**data["origin"]), data["server_id"])


def _finding(value: bytes | None) -> Event[Any] | None:
    entry = decode_entry(value)
    if not isinstance(entry, Finding) or entry.kind in OF_AGENTS:
        return None
    return Event(entry, entry.time_us, entry.origin, entry.server_id)


def _alert(value: dict[str, Any]) -> Event[Any] | None:
    flat = value["unmapped"]
    if flat["mcp_finding_kind"] in OF_AGENTS:
        return None
    origin = Origin(flat["mcp_origin_topic"], flat["mcp_origin_partition"], flat["mcp_origin_offset"])
    return Event(value, value["time"] * 1_000, origin, flat["mcp_server_id"])
