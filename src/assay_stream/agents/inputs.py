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
from assay_stream.model.record import Origin, Output, Record, Role, made_of, rejected, set_aside_error
from assay_stream.registry.refusal import refusal

_UNREADABLE = (AttributeError, KeyError, TypeError, ValueError, InputError)
OF_AGENTS = frozenset({Kind.DETECTION, Kind.AGENT_LIMITED})
"""Findings that agents make and do not read."""


def read_input(role: Role, record: Record) -> Event[Any] | None:
    """Return the event in a record, ``None`` where it holds none for agents.

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
    except _UNREADABLE:
        raise _unknown(record) from None


def read_again(role: Role, record: Record, time_us: int, origin: Origin) -> Event[Any] | None:
    """Return the event in a record of which time and origin are known. Evidence is decoded if somebody looks at it."""
    return Undecoded(record, time_us, origin) if role is Role.EVIDENCE else read_input(role, record)


class Undecoded(Event[Any]):
    """Evidence, decoded once its value is asked for: many handlers need only its key or its time.

    Args:
        record: a record with the value of a record of evidence.
        time_us: its event time.
        origin: the call's origin.
    """

    __slots__ = ("_record",)

    def __init__(self, record: Record, time_us: int, origin: Origin) -> None:
        self._record = record
        self._value = None
        self._time_us = time_us
        self._origin = origin

    @property
    def value(self) -> Any:
        """The record.

        Raises:
            IntegrityError: ``unknown_agent_input``, where this version did not write it.
        """
        if self._value is None:
            try:
                self._value = orjson.loads(self._record.value or b"")
                self._server_id = self._value["data"]["server_id"]
            except _UNREADABLE:
                raise _unknown(self._record) from None
        return self._value

    @property
    def server_id(self) -> str:
        """The server that it is about."""
        return self.value and self._server_id


def is_of_agents(role: Role, event: Event[Any]) -> bool:
    """Tell whether agents made it. They do not read it; it still shows how far its topic has come in event time."""
    match role:
        case Role.FINDINGS:
            return event.value.kind in OF_AGENTS
        case Role.ALERTS:
            return event.value["unmapped"]["mcp_finding_kind"] in OF_AGENTS
        case _:
            return False


def set_aside(record: Record) -> list[Output]:
    """Return what is written for a record that ended its worker too often: its copy, and a finding."""
    error = set_aside_error()
    # Its key names no server.
    return [rejected(record, error), *refusal(record._replace(key=None), error)[1:]]


def _unknown(record: Record) -> IntegrityError:
    place = record.origin
    return IntegrityError(
        "unknown_agent_input",
        f"{place.topic} holds a record this version cannot read, at offset {place.offset} of partition "
        f"{place.partition}: run the version that wrote it",
    )


def _evidence(value: dict[str, Any]) -> Event[Any]:
    data = value["data"]
    place = data["origin"]
    origin = made_of(Origin, (place["topic"], place["partition"], place["offset"]))
    return Event(value, time_us_of(value["time"]), origin, data["server_id"])


def _finding(value: bytes | None) -> Event[Any] | None:
    entry = decode_entry(value)
    if not isinstance(entry, Finding):
        return None
    return Event(entry, entry.time_us, entry.origin, entry.server_id)


def _alert(value: dict[str, Any]) -> Event[Any]:
    flat = value["unmapped"]
    origin = Origin(flat["mcp_origin_topic"], flat["mcp_origin_partition"], flat["mcp_origin_offset"])
    return Event(value, value["time"] * 1_000, origin, flat["mcp_server_id"])
