"""The registry: snapshots and control records in; facts, definitions, findings, changes and verdicts out.

Rules:

1. A record is decoded and checked as a whole before any state changes.
2. State changes only by applying the facts that are published: what a restart restores is what was there.
3. A digest is computed once per distinct definition; equal bytes are never canonicalised twice.
4. A record of the snapshots topic that must be refused ends the force of what its observer saw before on the
   server that its key names; without a header that names the observer, of what every observer saw who sends none.
5. What is found about pins and signatures follows from what stands in both logs, not from which was read first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from assay_stream.canonical.digest import Canonicalized, jcs_digest
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.cloudevents import check_observer, event_time_us, observer_in_header, read_event
from assay_stream.model.control import ControlEvent
from assay_stream.model.control_facts import Discovery, Pin, Policy, Signatures, SuppressionDecision
from assay_stream.model.definition import definition_record
from assay_stream.model.envelope import Producer
from assay_stream.model.facts import Announcement, Catalogue, Rejection, Seen, ToolFact
from assay_stream.model.fields import LeftOut, Subject
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import FloodEnd, suppression_records
from assay_stream.model.kinds import Kind
from assay_stream.model.observation import ListChangedEvent, SnapshotEvent
from assay_stream.model.partition import murmur2_partition
from assay_stream.model.record import Output, Position, Record, Role, rejected
from assay_stream.registry import list_drift
from assay_stream.registry.analysis import Analysis, Cut
from assay_stream.registry.announcements import announce
from assay_stream.registry.baseline import Baseline, baselines_for
from assay_stream.registry.change_points import start_of
from assay_stream.registry.control_changes import change_record, says_nothing_new
from assay_stream.registry.control_step import fact_of
from assay_stream.registry.controls import Controls
from assay_stream.registry.incompleteness import never_complete, resolved_by_complete_list
from assay_stream.registry.item_drift import compare_items
from assay_stream.registry.item_offer import ItemOffer, ItemOffers
from assay_stream.registry.lateness import late_finding
from assay_stream.registry.ledger import Ledger, is_redundant
from assay_stream.registry.name_claim import claims_between, claims_by_snapshot, offered, offers_the_same
from assay_stream.registry.offer import Offer, Offers
from assay_stream.registry.packed import pack
from assay_stream.registry.pin_evaluation import StandingChange
from assay_stream.registry.rationing import Ration, change_of
from assay_stream.registry.refusal import refusal, server_named_by_key
from assay_stream.registry.resolution import decided_before, resolved_by_decision, resolved_by_snapshot
from assay_stream.registry.signature_return import resolved_by_signature
from assay_stream.registry.signatures import revised_first_uses
from assay_stream.registry.snapshot_signatures import check_against, signatures_of
from assay_stream.registry.state import ServerBindings
from assay_stream.registry.verdicts import Verdicts, changed_verdicts, standing_verdicts
from assay_stream.work import WorkExhaustedError

_UNITS_PER_SIGNATURE = 1_000
"""Units for a signature that is held against a key."""


class Registry:
    """The state of one registry partition.

    Args:
        producer: who writes the evidence of changes.
        limits: bounds on what is accepted and kept.
        partitions: how many partitions the snapshot topic has, ``None`` where there is no such topic.
    """

    def __init__(self, *, producer: Producer, limits: Limits = DEFAULT_LIMITS, partitions: int | None = None) -> None:
        self._ledger = Ledger(limits)
        self.bindings = self._ledger.bindings
        self._producer = producer
        self._verdicts: dict[str, Verdicts] = {}
        """What the verdict topic holds of each server, as far as it was asked for; the bindings say it all."""
        self._limits = limits
        self._partitions = partitions
        self._offers = Offers(limits)
        self._item_offers = ItemOffers(limits)

    def step(self, record: Record) -> list[Output]:
        try:
            event = read_event(record, limits=self._limits)
            if isinstance(event, SnapshotEvent):
                self._check_key(record, event.data.server_id)
                return self._snapshot(record, event)
            if isinstance(event, ListChangedEvent):
                self._check_key(record, event.data.server_id)
                return self._list_changed(record, event)
            if isinstance(event, ControlEvent):
                self._check_key(record, event.data.server_id)
                return self._control(record, event)
            raise AssertionError(f"no handler for {type(event).__name__}")
        except InputError as error:
            return self._reject(record, error)

    def _check_key(self, record: Record, server_id: str) -> None:
        if record.key is None:
            raise InputError("key_missing", "the record's key must be the event's server_id, and there is none")
        if record.key != server_id.encode():
            raise InputError("key_mismatch", "the record's key must be the event's server_id", path="$.data.server_id")

    def _snapshot(self, record: Record, event: SnapshotEvent) -> list[Output]:
        data = event.data
        attributed = check_observer(record, data.observer_id, limits=self._limits)
        offer = self._offers.of(data)
        lists = self._item_offers.of(data)
        signatures = signatures_of(data, offer, self._limits)
        server = self.bindings.server(data.server_id)
        seen = Seen(
            server_id=data.server_id,
            observer_id=data.observer_id,
            origin=record.origin,
            time_us=event_time_us(event),
            snapshot_id=data.snapshot_id,
            catalogue=offer.digest,
            completeness=data.completeness,
            auth_context=None if data.auth_context is None else jcs_digest(data.auth_context).hex,
            signatures=None if signatures is None else signatures.digest,
            prompts=lists[Subject.PROMPT].digest if Subject.PROMPT in lists else None,
            templates=lists[Subject.TEMPLATE].digest if Subject.TEMPLATE in lists else None,
            attributed=attributed,
        )
        if _is_repetition(server, seen):
            return []
        catalogue = Catalogue(
            server_id=data.server_id,
            digest=offer.digest,
            server_scoped=data.server_scoped,
            tools=offer.tools,
            ambiguous=offer.ambiguous,
        )
        baseline, analysed = baselines_for(server, seen)
        findings, ration = self._compared(record, server, analysed, catalogue, seen, offer, lists)
        analysis = ration.analysis
        seen = replace(seen, rationed=ration.is_cut_short)
        ended = [
            *resolved_by_snapshot(server, baseline, catalogue, seen, analysis),
            *resolved_by_complete_list(server, seen, self._limits),
        ]
        is_same = offers_the_same(server, catalogue, seen)
        server.fleet.forget_changes()
        held = self._standing_verdicts(data.server_id, server)
        in_force = server.fleet.catalogues_in_force()
        since = start_of(seen.time_us)
        observer_id = None if _concerns_others(server, since) else data.observer_id
        standing = StandingChange(server, since, analysis, own=seen, observer_id=observer_id)
        outputs = self._publish_offer(record, server, catalogue, offer)
        for items in lists.values():
            outputs.extend(self._publish_items(record, server, data.server_id, items))
        if signatures is not None and signatures.digest not in server.controls.signatures:
            outputs.append(self._ledger.publish(record, signatures))
            outputs.extend(self._check_signatures(record, server, [signatures], analysis))
        outputs.append(self._ledger.publish(record, seen))
        outputs.extend(self._first_uses(record, server, since, analysis, seen))
        stands = standing.outputs()
        outputs.extend(self._ledger.fold(record, server, seen))
        outputs.extend(finding.output() for finding in findings)
        outputs.extend(stands)
        ended += decided_before(server, baseline, catalogue, seen)
        ended += resolved_by_signature(server, catalogue, seen, analysis)
        outputs.extend(resolution.output() for resolution in ended)
        if not is_same:
            had_complete = baseline is not None and baseline.complete
            claims = claims_by_snapshot(server, seen, analysis, had_complete=had_complete)
            outputs.extend(claim.output() for claim in claims)
        if server.fleet.catalogues_in_force() != in_force:
            outputs.extend(self._changed_verdicts(record, data.server_id, server, held))
        outputs.extend(finding.output() for finding in ration.findings())
        left = ration.charge()
        if left is not None:
            outputs.append(self._ledger.publish(record, left))
        return _with_end(record, data.server_id, seen.time_us, outputs)

    def _list_changed(self, record: Record, event: ListChangedEvent) -> list[Output]:
        check_observer(record, event.data.observer_id, limits=self._limits)
        announcement = Announcement(
            server_id=event.data.server_id,
            observer_id=event.data.observer_id,
            origin=record.origin,
            time_us=event_time_us(event),
        )
        return announce(self._ledger, record, announcement, self._limits)

    def _compared(
        self,
        record: Record,
        server: ServerBindings,
        analysed: Baseline | None,
        catalogue: Catalogue,
        seen: Seen,
        offer: Offer,
        lists: Mapping[Subject, ItemOffer],
    ) -> tuple[list[Finding], Ration]:
        """Return what a snapshot shows that was not analysed before, and what that cost."""
        change = change_of(server, analysed, catalogue, seen, lists.values())
        ration = Ration(server, seen, record.timestamp_ms, change, self._limits)
        compared = chain(
            list_drift.compare(server, analysed, catalogue, seen, offer, ration.analysis),
            *(compare_items(server, items, seen, ration.analysis) for items in lists.values()),
        )
        findings = [
            *self._misrouted(record, seen),
            *never_complete(server, seen, self._limits),
            *ration.reported(compared),
        ]
        ration.compared()
        late = late_finding(server, seen, self._limits)
        return findings if late is None else [*findings, late], ration

    def _publish_offer(
        self, record: Record, server: ServerBindings, catalogue: Catalogue, offer: Offer
    ) -> list[Output]:
        outputs: list[Output] = []
        for full, print_ in offer.fingerprints.items():
            if (catalogue.server_scoped, full) not in server.tools:
                definition = Canonicalized(offer.definitions[full])
                fact = ToolFact.of(
                    server_id=catalogue.server_id,
                    server_scoped=catalogue.server_scoped,
                    fingerprint=print_,
                    packed=pack(definition),
                )
                outputs.append(self._ledger.publish(record, fact))
                outputs.append(definition_record(record, full, definition))
        if catalogue.digest not in server.catalogues:
            outputs.extend(definition_record(record, full, tool) for full, tool in offer.nameless.items())
            outputs.append(self._ledger.publish(record, catalogue))
        return outputs

    def _publish_items(
        self, record: Record, server: ServerBindings, server_id: str, items: ItemOffer
    ) -> Iterator[Output]:
        if (items.subject, items.digest) in server.item_lists:
            return
        for fact in items.item_facts(server_id):
            if (fact.subject, fact.full) not in server.items:
                yield self._ledger.publish(record, fact)
                if fact.packed is not None:
                    yield definition_record(record, fact.full, items.definitions[fact.full])
        yield self._ledger.publish(record, items.as_fact(server_id))

    def _control(self, record: Record, event: ControlEvent) -> list[Output]:
        fact = fact_of(record, event)
        if isinstance(fact, SuppressionDecision):
            return [
                change_record(record, event, fact, Controls(), self._producer),
                *suppression_records(fact, self._partitions or 1),
            ]
        server = self.bindings.server(fact.server_id)
        since = start_of(fact.time_us)
        outputs: list[Output] = []
        is_news = not says_nothing_new(fact, server.controls)
        if is_news:
            outputs.append(change_record(record, event, fact, server.controls, self._producer))
        held = self._standing_verdicts(fact.server_id, server)
        # A decision on one tool says nothing of the others.
        tool_name = fact.tool_name if isinstance(fact, Pin | Policy) else None
        analysis = Analysis(self._limits.work_units_max)
        standing = StandingChange(server, since, analysis, tool_name=tool_name)
        claimed = offered(server, fact.tool_name) if isinstance(fact, Pin) else None
        outputs.append(self._ledger.publish(record, fact))
        if isinstance(fact, Discovery):
            signed = sorted(server.controls.signatures.items())
            outputs.extend(self._check_signatures(record, server, (signatures for _, signatures in signed), analysis))
            outputs.extend(self._ledger.fold_discoveries(record, server, fact.domain))
        outputs.extend(self._first_uses(record, server, since, analysis))
        outputs.extend(standing.outputs())
        if is_news:
            outputs.extend(resolution.output() for resolution in resolved_by_decision(server, fact, analysis))
        if isinstance(fact, Pin) and claimed is not None:
            outputs.extend(
                claim.output()
                for claim in claims_between(
                    claimed,
                    offered(server, fact.tool_name),
                    fact.server_id,
                    time_us=fact.time_us,
                    origin=record.origin,
                )
            )
        outputs.extend(self._changed_verdicts(record, fact.server_id, server, held))
        outputs.extend(_cut_short(analysis, fact.server_id, record, fact.time_us))
        return _with_end(record, fact.server_id, fact.time_us, outputs)

    def _standing_verdicts(self, server_id: str, server: ServerBindings) -> Verdicts:
        held = self._verdicts.get(server_id)
        if held is None:
            held = self._verdicts[server_id] = standing_verdicts(server_id, server)
        return held

    def _changed_verdicts(
        self, record: Record, server_id: str, server: ServerBindings, held: Verdicts
    ) -> Iterable[Output]:
        standing = self._verdicts[server_id] = standing_verdicts(server_id, server)
        return changed_verdicts(record, server_id, held, standing)

    def _check_signatures(
        self, record: Record, server: ServerBindings, signed: Iterable[Signatures], analysis: Analysis
    ) -> list[Output]:
        """Hold sets of signatures against every key of the server that they were not held against yet."""
        outputs: list[Output] = []
        documents = sorted(server.controls.key_documents().items())
        for signatures in list(signed):
            for key, document in documents:
                if (signatures.digest, key) in server.controls.checked:
                    continue
                try:
                    analysis.work.spend(_UNITS_PER_SIGNATURE * len(signatures.tools))
                except WorkExhaustedError:
                    # The next discovery goes on where this one ends.
                    analysis.left_out.add(LeftOut.SIGNATURES)
                    return outputs
                outputs.append(self._ledger.publish(record, check_against(signatures, document)))
        return outputs

    def _first_uses(
        self, record: Record, server: ServerBindings, since: Position, analysis: Analysis, own: Seen | None = None
    ) -> list[Output]:
        if not server.controls.discoveries:
            return []
        try:
            undone, revised = revised_first_uses(server, since, analysis.work, own)
        except WorkExhaustedError:
            analysis.left_out.add(LeftOut.SIGNATURES)
            return []
        outputs = [self._ledger.retract(record, key) for key in undone]
        return outputs + [self._ledger.publish(record, use) for use in revised]

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

    def _reject(self, record: Record, error: InputError) -> list[Output]:
        server_id = server_named_by_key(record, self._limits)
        if record.role is not Role.SNAPSHOTS or server_id is None:
            return refusal(record, error)
        outputs = [rejected(record, error)]
        observer_id = observer_in_header(record.headers, limits=self._limits)
        time_us = record.timestamp_ms * 1_000
        rejection = Rejection(
            server_id=server_id, origin=record.origin, time_us=time_us, code=error.code, observer_id=observer_id
        )
        server = self.bindings.server(server_id)
        if not is_redundant(server, rejection) or not _is_known_refusal(server, rejection):
            outputs.extend(self._publish_rejection(record, server, rejection))
        finding = Finding(
            kind=Kind.SNAPSHOT_REJECTED,
            server_id=server_id,
            observer_id=observer_id,
            time_us=time_us,
            origin=record.origin,
            reason=error.code,
        )
        outputs.append(finding.output())
        return _with_end(record, server_id, time_us, outputs)

    def _publish_rejection(self, record: Record, server: ServerBindings, rejection: Rejection) -> Iterator[Output]:
        held = self._standing_verdicts(rejection.server_id, server)
        since = start_of(rejection.time_us)
        # Of an observer that never had a list nothing is found, and no verdict rests on it.
        concerns_lists = any(True for _ in server.concerned(rejection))
        analysis = Analysis(self._limits.work_units_max)
        standing = StandingChange(server, since, analysis) if concerns_lists else None
        yield self._ledger.publish(record, rejection)
        yield from self._ledger.merge_rejections(record, server, rejection.observer_id)
        yield from self._ledger.fold_unlisted(record, server)
        if standing is not None:
            yield from self._first_uses(record, server, since, analysis)
            yield from standing.outputs()
            yield from self._changed_verdicts(record, rejection.server_id, server, held)
            yield from _cut_short(analysis, rejection.server_id, record, rejection.time_us)


def process(registry: Registry, record: Record) -> list[Output]:
    """Apply one snapshot or control record.

    Args:
        registry: the state of the record's partition; it changes by the facts that are returned, and by nothing else.
        record: the next record of the snapshots or the control topic.

    Returns:
        Facts, definitions, findings, changes and verdicts to publish, or the rejected copy. Bad input never raises.
    """
    return registry.step(record)


def _cut_short(analysis: Analysis, server_id: str, record: Record, time_us: int) -> Iterator[Output]:
    for finding in analysis.finding(server_id, record.origin, time_us, catalogue=None, cut=Cut.BUDGET):
        yield finding.output()


def _with_end(record: Record, server_id: str, time_us: int, outputs: list[Output]) -> list[Output]:
    """Return what a record leads to, and that it ends, where more is found than is alerted one by one."""
    findings = sum(output.label.startswith("finding:") for output in outputs)
    if findings > DEFAULT_LIMITS.alerts_per_record_max:
        end = FloodEnd(server_id=server_id, findings=findings, time_us=time_us, origin=record.origin)
        outputs.append(end.output())
    return outputs


def _concerns_others(server: ServerBindings, since: Position) -> bool:
    """Tell whether an observation can change what is found elsewhere: by a first use, or by its being late."""
    return bool(server.controls.discoveries or server.controls.positions_between(since, None))


def _is_repetition(server: ServerBindings, seen: Seen) -> bool:
    """Tell whether a snapshot was published before: same observer, id, time and content.

    It counts again where an announcement of the same time was published again before it.
    """
    own = server.observers.get(seen.observer_id)
    return own is not None and any(
        replace(old, origin=seen.origin, rationed=False) == seen
        and server.endings.announced(seen.observer_id, old, old.time_us) is None
        for old in own.at(seen.time_us)
    )


def _is_known_refusal(server: ServerBindings, rejection: Rejection) -> bool:
    """Tell whether the next good list will know that it puts an end to a refusal for this reason."""
    return any(known.code == rejection.code for known in server.endings.rejections_of(rejection.observer_id))
