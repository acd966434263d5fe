"""The registry: snapshots and control records in; facts, definitions and findings out.

Rules:

1. A record is decoded and checked as a whole before any state changes.
2. State changes only by applying the facts that are published: what a restart restores is what was there.
3. A digest is computed once per distinct definition; equal bytes are never canonicalised twice.
4. A snapshot that must be refused ends the force of what its server had offered before, if its key names one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from assay_stream.core import drift
from assay_stream.core.bindings import Bindings, ServerBindings
from assay_stream.core.cloudevents import event_time_us, read_event
from assay_stream.core.control import PinRemoveEvent, PinSetEvent, pinned_value
from assay_stream.core.digest import canonicalize
from assay_stream.core.errors import InputError
from assay_stream.core.facts import (
    Catalogue,
    Fact,
    FactKey,
    Horizon,
    Pin,
    Rejection,
    Seen,
    ToolFact,
    encode_key,
    encode_value,
)
from assay_stream.core.finding import Finding, Kind
from assay_stream.core.limits import DEFAULT_LIMITS, Limits
from assay_stream.core.observation import SnapshotEvent
from assay_stream.core.offer import Offers
from assay_stream.core.partition import murmur2_partition
from assay_stream.core.record import Output, Record, Role, rejected
from assay_stream.schemes import assay


class Registry:
    """The state of one registry partition.

    Args:
        limits: bounds on what is accepted and kept.
        partitions: how many partitions the snapshot topic has, ``None`` where there is no such topic.
    """

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS, partitions: int | None = None) -> None:
        self.bindings = Bindings()
        self._limits = limits
        self._partitions = partitions
        self._offers = Offers(limits)

    def step(self, record: Record) -> list[Output]:
        """Apply one snapshot or control record.

        Args:
            record: a record of the snapshots or the control topic.

        Returns:
            Facts, definitions and findings to publish, or the rejected copy.
        """
        try:
            event = read_event(record, limits=self._limits)
            if isinstance(event, SnapshotEvent):
                self._check_key(record, event.data.server_id)
                return self._snapshot(record, event)
            if isinstance(event, PinSetEvent | PinRemoveEvent):
                self._check_key(record, event.data.server_id)
                return self._pin(record, event)
            raise AssertionError(f"no handler for {type(event).__name__}")
        except InputError as error:
            return self._reject(record, error)

    def _check_key(self, record: Record, server_id: str) -> None:
        if record.key is None:
            raise InputError("key_missing", "the record's key must be the event's server_id, and there is none")
        if record.key != server_id.encode():
            raise InputError(
                "key_mismatch", "the record's key must be the event's server_id", path="$.data.server_id"
            )

    def _snapshot(self, record: Record, event: SnapshotEvent) -> list[Output]:
        data = event.data
        offer = self._offers.of(data)
        server = self.bindings.server(data.server_id)
        seen = Seen(
            server_id=data.server_id,
            observer_id=data.observer_id,
            origin=record.origin,
            time_us=event_time_us(event),
            snapshot_id=data.snapshot_id,
            catalogue=offer.digest,
            completeness=data.completeness,
        )
        if _is_repetition(server, seen):
            return []
        catalogue = Catalogue(
            server_id=data.server_id,
            digest=offer.digest,
            server_scoped=data.server_scoped,
            tools=offer.tools,
        )
        baseline = drift.baseline_for(server, data.observer_id, seen.position)
        findings = [
            *self._misrouted(record, seen),
            *drift.compare(server, baseline, catalogue, seen, offer.fingerprints),
        ]
        outputs: list[Output] = []
        for full, print_ in offer.fingerprints.items():
            if (data.server_scoped, full) not in server.tools:
                fact = ToolFact(server_id=data.server_id, server_scoped=data.server_scoped, fingerprint=print_)
                outputs.append(self._publish(record, fact))
                outputs.append(_definition(record, full, offer.definitions[full]))
        if offer.digest not in server.catalogues:
            outputs.extend(_definition(record, full, tool) for full, tool in offer.unbinding.items())
            outputs.append(self._publish(record, catalogue))
        outputs.append(self._publish(record, seen))
        outputs.extend(self._fold(record, server, seen))
        outputs.extend(finding.output() for finding in findings)
        return outputs

    def _misrouted(self, record: Record, seen: Seen) -> Iterable[Finding]:
        if self._partitions is None:
            return
        if murmur2_partition(seen.server_id.encode(), self._partitions) != record.origin.partition:
            yield Finding(
                kind=Kind.SERVER_MISROUTED,
                server_id=seen.server_id,
                observer_id=seen.observer_id,
                time_us=seen.time_us,
                origin=record.origin,
                snapshot_id=seen.snapshot_id,
            )

    def _fold(self, record: Record, server: ServerBindings, seen: Seen) -> list[Output]:
        timeline = server.observers[seen.observer_id]
        outputs: list[Output] = []
        while (surplus := timeline.one_too_many(self._limits.timeline_entries_max, server.rejections)) is not None:
            folded, history_lost = surplus
            outputs.append(self._retract(record, folded.key()))
            if history_lost:
                oldest_us = next(iter(timeline)).time_us
                horizon = Horizon(
                    server_id=seen.server_id,
                    observer_id=seen.observer_id,
                    time_us=max(oldest_us, timeline.horizon_us or 0),
                )
                outputs.append(self._publish(record, horizon))
            outputs.extend(self._drop_unused(record, server, folded.catalogue))
        return outputs

    def _drop_unused(self, record: Record, server: ServerBindings, digest: str) -> list[Output]:
        in_use = {seen.catalogue for timeline in server.observers.values() for seen in timeline}
        if digest in in_use:
            return []
        catalogue = server.catalogues[digest]
        outputs = [self._retract(record, catalogue.key())]
        still_used = {
            (other.server_scoped, full) for other in server.catalogues.values() for full in other.tools.values()
        }
        for full in sorted({full for full in catalogue.tools.values() if full is not None}):
            place = (catalogue.server_scoped, full)
            if place not in still_used and place in server.tools:
                key: FactKey = ("tool", catalogue.server_id, catalogue.server_scoped, full)
                outputs.append(self._retract(record, key))
        return outputs

    def _pin(self, record: Record, event: PinSetEvent | PinRemoveEvent) -> list[Output]:
        data = event.data
        pinned = pinned_value(data.scheme, event.data.value) if isinstance(event, PinSetEvent) else None
        pin = Pin(
            server_id=data.server_id,
            tool_name=data.tool_name,
            scheme=data.scheme,
            origin=record.origin,
            time_us=event_time_us(event),
            pinned=pinned,
            author=data.author,
            reason=data.reason,
        )
        return [self._publish(record, pin)]

    def _reject(self, record: Record, error: InputError) -> list[Output]:
        outputs = [rejected(record, error)]
        server_id = _server_named_by_key(record, self._limits)
        if record.role is not Role.SNAPSHOTS or server_id is None:
            return outputs
        time_us = record.timestamp_ms * 1_000
        rejection = Rejection(server_id=server_id, origin=record.origin, time_us=time_us, code=error.code)
        server = self.bindings.server(server_id)
        if not _is_redundant(server, rejection):
            outputs.append(self._publish(record, rejection))
            outputs.extend(self._merge_rejections(record, server))
        finding = Finding(
            kind=Kind.SNAPSHOT_REJECTED,
            server_id=server_id,
            time_us=time_us,
            origin=record.origin,
            reason=error.code,
        )
        outputs.append(finding.output())
        return outputs

    def _merge_rejections(self, record: Record, server: ServerBindings) -> list[Output]:
        """Let the oldest two rejections be one that ends what either did: nothing comes into force again."""
        outputs: list[Output] = []
        while len(server.rejections) > self._limits.rejections_max:
            oldest, second = server.rejections[:2]
            outputs.append(self._retract(record, oldest.key()))
            outputs.append(self._publish(record, replace(second, time_us=oldest.time_us)))
        return outputs

    def _publish(self, record: Record, fact: Fact) -> Output:
        self.bindings.apply(fact, partition=record.origin.partition)
        return fact_output(fact, partition=record.origin.partition, timestamp_ms=record.timestamp_ms)

    def _retract(self, record: Record, key: FactKey) -> Output:
        self.bindings.forget(key, partition=record.origin.partition)
        return Output(
            role=Role.BINDINGS,
            key=encode_key(key),
            value=None,
            timestamp_ms=record.timestamp_ms,
            partition=record.origin.partition,
            label="fact:retracted",
        )


def fact_output(fact: Fact, *, partition: int, timestamp_ms: int = 0) -> Output:
    """Return a fact as a record for the binding topic.

    Args:
        fact: what to publish.
        partition: the registry's own partition, so that progress never overtakes the facts it covers.
        timestamp_ms: timestamp for the log, milliseconds since the epoch.
    """
    key = fact.key()
    return Output(
        role=Role.BINDINGS,
        key=encode_key(key),
        value=encode_value(fact),
        timestamp_ms=timestamp_ms,
        partition=partition,
        label=f"fact:{key[0]}",
    )


def _definition(record: Record, full: str, tool: dict[str, Any]) -> Output:
    """Return the record that lets a reviewer see a definition: the same bytes whoever observed it."""
    value: dict[str, Any] = {"full_digest": full, "definition": tool}
    try:
        value["projection"] = assay.definition_projection(tool, server_id=None)
        label = "definition"
    except InputError:
        label = "definition:not_digestible"
    return Output(
        role=Role.DEFINITIONS,
        key=full.encode(),
        value=canonicalize(value),
        timestamp_ms=record.timestamp_ms,
        label=label,
    )


def _is_repetition(server: ServerBindings, seen: Seen) -> bool:
    """Tell whether a snapshot was published before: same observer, id, time and content."""
    return any(
        (old.observer_id, old.time_us, old.catalogue, old.completeness)
        == (seen.observer_id, seen.time_us, seen.catalogue, seen.completeness)
        for old in server.snapshots.get(seen.snapshot_id, ())
    )


def _is_redundant(server: ServerBindings, rejection: Rejection) -> bool:
    """Tell whether nothing was observed since the last rejection, so that another changes no answer."""
    if not server.rejections:
        return False
    last = server.rejections[-1]
    return last.time_us <= rejection.time_us and all(
        last.ends(seen) for timeline in server.observers.values() for seen in timeline
    )


def _server_named_by_key(record: Record, limits: Limits) -> str | None:
    if not record.key or len(record.key) > limits.identifier_chars_max * 4:
        return None
    try:
        server_id = record.key.decode()
    except UnicodeDecodeError:
        return None
    return server_id if len(server_id) <= limits.identifier_chars_max and server_id.strip() else None
