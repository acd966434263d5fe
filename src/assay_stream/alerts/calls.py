"""Which calls used the tool that an alert is about: from evidence, record by record, in bounded memory."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import orjson

from assay_stream.alerts.selection import since_of
from assay_stream.errors import InputError

LATEST_MAX = 20
"""Calls that are named one by one."""


class Call(NamedTuple):
    """One call.

    Args:
        time_ms: event time, milliseconds since the epoch.
        evidence_id: id of its evidence record.
        tool_call_id: the proxy's id of it.
        observer_id: the proxy.
        decision: what the proxy did.
    """

    time_ms: int
    evidence_id: str
    tool_call_id: str
    observer_id: str
    decision: str


class Calls:
    """The calls of one tool since a time, told apart by the definition that they were bound to.

    Args:
        server_id: the server.
        tool_names: the tool, under each name that it goes by.
        full_digest: of the definition, ``None`` where the alert is about none: then every call counts.
        since_ms: from this event time on, milliseconds since the epoch.
    """

    def __init__(self, *, server_id: str, tool_names: frozenset[str], full_digest: str | None, since_ms: int) -> None:
        self._server_id = server_id
        self._tool_names = tool_names
        self.full_digest = full_digest
        self.since_ms = since_ms
        self.used = 0
        self.unbound = 0
        self.other = 0
        self._latest: list[Call] = []

    def add(self, value: bytes | None) -> None:
        """Take one evidence record more, in any order.

        Args:
            value: value bytes.

        Raises:
            InputError: ``not_evidence``, or ``bad_time``.
        """
        try:
            event = orjson.loads(value or b"")
            data = event["data"]
            if data["server_id"] != self._server_id or data["tool"] not in self._tool_names:
                return
            bound = data["binding"].get("full_digest")
            named = (str(data[name]) for name in ("tool_call_id", "observer_id", "decision"))
            call = Call(since_of(event["time"]), str(event["id"]), *named)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError("not_evidence", "this is no evidence record (assay.tool.decision)") from None
        if call.time_ms >= self.since_ms:
            self._count(call, bound)

    def latest(self) -> list[Call]:
        """Return the latest calls that used it, the latest first."""
        return sorted(self._latest, reverse=True)

    def _count(self, call: Call, bound: str | None) -> None:
        if self.full_digest is not None and bound != self.full_digest:
            if bound is None:
                self.unbound += 1
            else:
                self.other += 1
            return
        self.used += 1
        keep = heapq.heappush if len(self._latest) < LATEST_MAX else heapq.heappushpop
        keep(self._latest, call)
