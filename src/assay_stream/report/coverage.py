"""Coverage by server and by observer: lists, calls, how these were bound, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from assay_stream.errors import InputError
from assay_stream.limits import COVERAGE_NAMES_MAX, DEFAULT_LIMITS
from assay_stream.model.cloudevents import event_time_us, read_event
from assay_stream.model.evidence import Scope, Unbound
from assay_stream.model.observation import LossEvent, SnapshotEvent
from assay_stream.model.record import OBSERVER_HEADER, Record
from assay_stream.readmodel.queries import Store
from assay_stream.report.pins import Row
from assay_stream.text.times import time_text, time_us_in
from assay_stream.verify.evidence import Recorded

GRAVE = frozenset({"never_listed", "calls_unlisted", "observations_lost", "silent", "names_beyond_limit"})
"""Gaps in which calls stay unbound, or may go on unobserved."""
_EVER_US = 2**63 - 1
_SCOPES = frozenset(scope.value for scope in Scope)


@dataclass(slots=True)
class _Seen:
    lists: int = 0
    incomplete: int = 0
    refused: int = 0
    lost: int = 0
    calls: int = 0
    bound: dict[str, int] = field(default_factory=lambda: dict.fromkeys(sorted(_SCOPES), 0))
    unlisted: int = 0
    last_list_us: int = 0
    last_call_us: int = 0

    @property
    def last_us(self) -> int:
        return max(self.last_list_us, self.last_call_us)


class CoverageCounts:
    """Counts lists and evidence by server and by observer.

    Args:
        since_us: count calls from this event time on, microseconds since the epoch; every list counts, since calls
            rest on what was listed before.
        until_us: count what has this event time or an earlier one.
        names_max: maximum servers, and observers, counted separately; the rest is counted together.
    """

    def __init__(
        self, *, since_us: int | None = None, until_us: int | None = None, names_max: int = COVERAGE_NAMES_MAX
    ) -> None:
        self._since_us = since_us or 0
        self._until_us = until_us
        self._names_max = names_max
        self._seen: dict[str, dict[str | None, _Seen]] = {"server": {}, "observer": {}}
        self._is_of_store = False
        self.latest_us = 0
        """The latest event time counted."""

    def take_snapshot(self, record: Record) -> None:
        """Count a record of the snapshot topic. Announced changes are not lists."""
        try:
            event = read_event(record)
        except InputError:
            named = dict(record.headers).get(OBSERVER_HEADER)
            for seen in self._of(_text(record.key), _text(named)):
                seen.refused += 1
            return
        time_us = event_time_us(event)
        if isinstance(event, LossEvent) and not self._is_later(time_us):
            for seen in self._of(event.data.server_id, event.data.observer_id):
                seen.lost += event.data.lists + event.data.calls
        if not isinstance(event, SnapshotEvent) or self._is_later(time_us):
            return
        for seen in self._of(event.data.server_id, event.data.observer_id):
            seen.lists += 1
            seen.incomplete += event.data.completeness != "complete"
            seen.last_list_us = max(seen.last_list_us, time_us)

    def take_evidence(self, evidence: Recorded) -> None:
        """Count a record of evidence. One without time, server and observer is not ours, and is skipped."""
        server_id, observer_id = evidence.text("server_id"), evidence.text("observer_id")
        time_us = time_us_in(evidence.content.get("time"))
        if time_us is None or server_id is None or observer_id is None:
            return
        if time_us < self._since_us or self._is_later(time_us):
            return
        binding = evidence.binding
        scope = binding.get("scope") if isinstance(binding, dict) else None
        # A rule may find the list and no digest in it.
        scope = scope if scope in _SCOPES and evidence.text("tool_definition_digest") is not None else None
        for seen in self._of(server_id, observer_id):
            seen.calls += 1
            if scope is not None:
                seen.bound[scope] += 1
            seen.unlisted += evidence.text("unbound_reason") == Unbound.NOT_OBSERVED
            seen.last_call_us = max(seen.last_call_us, time_us)

    def take_store(self, store: Store) -> None:
        """Count what a store holds. It knows of lost observations, not how many, and nothing of refused lists."""
        self._is_of_store = True
        until_us = _EVER_US if self._until_us is None else self._until_us
        found = store.coverage(since_us=self._since_us, until_us=until_us)
        for server_id, observer_id, lists, last_us in found.lists:
            self._is_later(last_us)
            for seen in self._of(server_id, observer_id):
                seen.lists += lists
                seen.last_list_us = max(seen.last_list_us, last_us)
        for server_id, observer_id, scope, is_unlisted, calls, last_us in found.calls:
            self._is_later(last_us)
            for seen in self._of(server_id, observer_id):
                seen.calls += calls
                seen.unlisted += calls * is_unlisted
                seen.last_call_us = max(seen.last_call_us, last_us)
                if scope in _SCOPES:
                    seen.bound[scope] += calls
        for view in found.losses:
            for seen in self._of(view.fact("mcp_server_id"), view.fact("mcp_observer_id") or None):
                seen.lost += 1

    def rows(self, *, silent_after_us: int) -> Iterator[Row]:
        """Yield a row for each server and each observer, by name; those counted together come last.

        Args:
            silent_after_us: silent means last seen at least this long before the latest event time, or the end.
        """
        now_us = self.latest_us if self._until_us is None else self._until_us
        for what, entries in self._seen.items():
            for name, seen in sorted(entries.items(), key=lambda entry: (entry[0] is None, entry[0] or "")):
                is_silent = 0 < seen.last_us <= now_us - silent_after_us
                is_server = what == "server"
                gaps = {
                    "never_listed" if is_server else "calls_only": seen.calls and not seen.lists,
                    "calls_unlisted": seen.unlisted,
                    "never_called" if is_server else "lists_only": seen.lists and not seen.calls,
                    "observations_lost": seen.lost,
                    "silent": is_silent,
                    "names_beyond_limit": name is None,
                }
                yield {
                    "what": what,
                    "name": name,
                    "lists": seen.lists,
                    "incomplete": None if self._is_of_store else seen.incomplete,
                    "refused": None if self._is_of_store else seen.refused,
                    "lost": None if self._is_of_store else seen.lost,
                    "calls": seen.calls,
                    **seen.bound,
                    "unbound": seen.calls - sum(seen.bound.values()),
                    "unlisted": seen.unlisted,
                    "bound_share": round(sum(seen.bound.values()) / seen.calls, 4) if seen.calls else None,
                    "last_list": time_text(seen.last_list_us) if seen.last_list_us else None,
                    "last_call": time_text(seen.last_call_us) if seen.last_call_us else None,
                    "silent_since": time_text(seen.last_us) if is_silent else None,
                    "gaps": [gap for gap, is_there in gaps.items() if is_there],
                }

    def _is_later(self, time_us: int) -> bool:
        if self._until_us is not None and time_us > self._until_us:
            return True
        self.latest_us = max(self.latest_us, time_us)
        return False

    def _of(self, server_id: str | None, observer_id: str | None) -> Iterator[_Seen]:
        for what, name in (("server", server_id), ("observer", observer_id)):
            if name is not None:
                entries = self._seen[what]
                kept = name if name in entries or len(entries) < self._names_max else None
                yield entries.setdefault(kept, _Seen())


def _text(raw: bytes | None) -> str | None:
    text = (raw or b"").decode("utf-8", "replace")[: DEFAULT_LIMITS.identifier_chars_max]
    return text if text.strip() else None
