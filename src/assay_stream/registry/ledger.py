"""The ledger: what the registry publishes, applied to its own state in the same step, and kept within bounds.

State changes by ``publish`` and ``retract`` alone, so that what a restart restores is what was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay_stream.limits import Limits
from assay_stream.model.control_facts import Discovery
from assay_stream.model.facts import (
    Catalogue,
    Fact,
    FormerTool,
    Horizon,
    Progress,
    Rejection,
    Seen,
    encode_key,
    encode_value,
)
from assay_stream.model.fields import Subject
from assay_stream.model.record import Output, Record, Role
from assay_stream.model.wire import FactKey
from assay_stream.registry.server import ServerBindings
from assay_stream.registry.state import Bindings
from assay_stream.registry.timeline import Timeline

_LATEST_KEPT = 2
"""Observations that stay however large they are: the latest, and what it is compared with."""


class Ledger:
    """The bindings of one registry partition, and the records that brought them about.

    Args:
        limits: bounds on what is kept.
    """

    def __init__(self, limits: Limits) -> None:
        self.bindings = Bindings(keep_definitions=True)
        self._limits = limits

    def publish(self, record: Record, fact: Fact) -> Output:
        """Apply a fact and return its record."""
        self.bindings.apply(fact, partition=record.origin.partition)
        return fact_output(fact, partition=record.origin.partition, timestamp_ms=record.timestamp_ms)

    def retract(self, record: Record, key: FactKey) -> Output:
        """Take a fact back and return its tombstone."""
        self.bindings.forget(key, partition=record.origin.partition)
        return Output(
            role=Role.BINDINGS,
            key=encode_key(key),
            value=None,
            timestamp_ms=record.timestamp_ms,
            partition=record.origin.partition,
            label="fact:retracted",
        )

    def fold(self, record: Record, server: ServerBindings, seen: Seen) -> list[Output]:
        """Fold away what an observer's timeline holds too much of, and what nothing names any more."""
        timeline = server.observers[seen.observer_id]
        outputs: list[Output] = []
        while (surplus := self._surplus(server, timeline)) is not None:
            folded, history_lost = surplus
            outputs.append(self.retract(record, folded.key()))
            if history_lost:
                oldest_us = next(iter(timeline)).time_us
                horizon = Horizon(
                    server_id=seen.server_id,
                    observer_id=seen.observer_id,
                    time_us=max(oldest_us, timeline.horizon_us or 0),
                )
                outputs.append(self.publish(record, horizon))
                oldest = next(iter(timeline)).position
                # No answer rests on what an observer was told before the first list that is kept.
                told = [end for end in server.endings.announcements_of(seen.observer_id) if end.position < oldest]
                outputs.extend(self.retract(record, end.key()) for end in told)
            outputs.extend(self._drop_unused(record, server, folded))
            outputs.extend(self._drop_unused_signatures(record, server, folded.signatures))
            outputs.extend(self._drop_unused_lists(record, server, folded))
        return outputs

    def _surplus(self, server: ServerBindings, timeline: Timeline) -> tuple[Seen, bool] | None:
        entries_max = self._limits.timeline_entries_max
        if len(timeline) > _LATEST_KEPT and server.definitions_bytes > self._limits.server_definitions_bytes_max:
            entries_max = min(entries_max, len(timeline) - 1)
        return timeline.one_too_many(entries_max, server.endings.parts)

    def _drop_unused_lists(self, record: Record, server: ServerBindings, folded: Seen) -> list[Output]:
        outputs: list[Output] = []
        for subject in (Subject.PROMPT, Subject.TEMPLATE):
            digest = folded.listed(subject)
            if digest is None or server.observations.uses_item_list(subject, digest):
                continue
            gone = server.item_list(subject, digest)
            outputs.append(self.retract(record, gone.key()))
            unused = sorted({full for _, full in gone.items if not server.fleet.uses_item(subject, full)})
            outputs.extend(self.retract(record, ("item", folded.server_id, subject.value, full)) for full in unused)
        return outputs

    def _drop_unused_signatures(self, record: Record, server: ServerBindings, digest: str | None) -> list[Output]:
        if digest is None or server.observations.uses_signatures(digest) or digest not in server.controls.signatures:
            return []
        outputs = [self.retract(record, server.controls.signatures[digest].key())]
        checked = [held.key() for held in server.controls.checked.values() if held.signatures == digest]
        outputs.extend(self.retract(record, key) for key in sorted(checked))
        return outputs

    def merge_rejections(self, record: Record, server: ServerBindings, observer_id: str | None) -> list[Output]:
        """Let the oldest two rejections be one that ends what either did: nothing comes into force again.

        Args:
            observer_id: the observer whose rejections have become more, ``None`` for those that name none.
        """
        outputs: list[Output] = []
        while len(kept := server.endings.rejections_of(observer_id)) > self._limits.rejections_max:
            oldest, second = kept[:2]
            outputs.append(self.retract(record, oldest.key()))
            outputs.append(self.publish(record, replace(second, time_us=oldest.time_us)))
        return outputs

    def fold_unlisted(self, record: Record, server: ServerBindings) -> list[Output]:
        """Where too many observers without a list are remembered, let one rejection stand for the earliest.

        Whoever makes observers up cannot fill the memory, nor bring an observer without a list to be bound.
        """
        endings, outputs = server.endings, list[Output]()
        surplus = len(endings.without_list) - self._limits.unlisted_observers_max
        if surplus <= 0:
            return outputs
        # More than there must be, so that the search for the earliest is rare.
        surplus += self._limits.unlisted_observers_max // 8
        earliest = sorted(endings.without_list, key=lambda name: endings.own[name].last_origin())[:surplus]
        folded = [end for name in earliest for end in endings.own[name]]
        before = endings.unlisted
        times_us = [end.time_us for end in folded] + ([] if before is None else [before.time_us])
        outputs.extend(self.retract(record, end.key()) for end in folded)
        if before is not None:
            outputs.append(self.retract(record, before.key()))
        stands_for_all = Rejection(
            server_id=folded[0].server_id,
            origin=folded[0].origin,
            time_us=min(times_us),
            code="too_many_observers",
            unlisted=True,
        )
        return [*outputs, self.publish(record, stands_for_all)]

    def fold_discoveries(self, record: Record, server: ServerBindings, domain: str) -> list[Output]:
        """Fold away the discoveries of a domain that are too many, and what was held against no key any more.

        First the oldest that stands between two that found the same, which changes no answer; where there is none,
        the oldest.
        """
        outputs: list[Output] = []
        controls = server.controls
        while len(history := controls.discoveries[domain]) > self._limits.discoveries_max:
            outputs.append(self.retract(record, _least_telling(history).key()))
        if outputs:
            known = controls.key_documents()
            checked = [held.key() for held in controls.checked.values() if held.fingerprint not in known]
            outputs.extend(self.retract(record, key) for key in sorted(checked))
        return outputs

    def _drop_unused(self, record: Record, server: ServerBindings, folded: Seen) -> list[Output]:
        if server.observations.uses_catalogue(folded.catalogue):
            return []
        catalogue = server.catalogues[folded.catalogue]
        outputs = [self.retract(record, catalogue.key())]
        unused = {(catalogue.server_scoped, full) for _, full in catalogue.definitions()}
        unused |= self._keep_formers(record, server, catalogue, folded.time_us, outputs)
        used = (place for place in unused if server.fleet.uses_tool(*place) or server.formers.uses(place))
        gone = sorted((unused & server.tools.keys()).difference(used))
        outputs.extend(self.retract(record, ("tool", catalogue.server_id, *place)) for place in gone)
        return outputs

    def _keep_formers(
        self, record: Record, server: ServerBindings, catalogue: Catalogue, time_us: int, outputs: list[Output]
    ) -> set[tuple[bool, str]]:
        """Keep the definitions of names that went with a catalogue, and return those that are former no more."""
        lost = [name for name in sorted(catalogue.tools) if not server.fleet.is_known(name)]
        released: set[tuple[bool, str]] = set()
        for name in lost[: self._limits.former_tools_max]:
            full = catalogue.definitions_of(name)[0]
            older = server.formers.get(name)
            if older is not None:
                released.add(older.place)
            if (catalogue.server_scoped, full) not in server.packed:
                continue
            former = FormerTool(
                server_id=catalogue.server_id,
                tool_name=name,
                server_scoped=catalogue.server_scoped,
                full=full,
                size=len(server.packed[catalogue.server_scoped, full]),
                time_us=time_us,
            )
            outputs.append(self.publish(record, former))
        limits = self._limits
        for tool in list(server.formers.surplus(limits.former_tools_max, limits.former_tools_bytes_max)):
            released.add(tool.place)
            outputs.append(self.retract(record, tool.key()))
        return released


def _least_telling(history: Sequence[Discovery]) -> Discovery:
    for older, found, newer in zip(history, history[1:], history[2:], strict=False):
        if older.says_the_same(found) and found.says_the_same(newer):
            return found
    return history[0]


def fact_output(fact: Fact, *, partition: int, timestamp_ms: int = 0) -> Output:
    """Return a fact as a record for the binding topic."""
    key = fact.key()
    return Output(
        role=Role.BINDINGS,
        key=encode_key(key),
        value=encode_value(fact),
        timestamp_ms=timestamp_ms,
        partition=partition,
        label=f"fact:{key[0]}",
    )


def progress(*, topic: str, partition: int, position: int) -> Output:
    """Return the record that says how far the registry has come in one input partition."""
    return fact_output(Progress(topic=topic, partition=partition, position=position), partition=partition)


def is_redundant(server: ServerBindings, rejection: Rejection) -> bool:
    """Tell whether nothing it may concern was observed since the last one like it, so that it changes no answer."""
    kept = server.endings.rejections_of(rejection.observer_id)
    if not kept or kept[-1].time_us > rejection.time_us:
        return False
    if rejection.observer_id is None:
        return server.observations.all_before(kept[-1])
    return all(kept[-1].is_after(seen) for timeline in server.concerned(rejection) for seen in timeline)
