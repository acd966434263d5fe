"""Control records: one fact per record, effective from its own event time, and what follows from the fact."""

from __future__ import annotations

from assay_stream.model.cloudevents import event_time_us, time_us_of
from assay_stream.model.control import (
    ControlEvent,
    DiscoveryEvent,
    KeyAcceptEvent,
    KeyRevokeEvent,
    PinRejectEvent,
    PinRemoveEvent,
    PinSetData,
    PinSetEvent,
    PolicySetEvent,
    SuppressionRemoveEvent,
    SuppressionSetEvent,
)
from assay_stream.model.control_facts import (
    Discovery,
    DiscoveryStatus,
    KeyDecision,
    Pin,
    PinAct,
    Policy,
    SuppressionDecision,
)
from assay_stream.model.finding_topic import suppression_records
from assay_stream.model.record import Output, Record
from assay_stream.registry.analysis import Analysis
from assay_stream.registry.change_points import start_of
from assay_stream.registry.control_changes import ControlDecision, change_record, says_nothing_new
from assay_stream.registry.controls import Controls
from assay_stream.registry.folding import fold_discoveries
from assay_stream.registry.partition import Registry
from assay_stream.registry.received_signatures import read_document
from assay_stream.registry.resolution import resolved_by_decision
from assay_stream.registry.transition import Transition
from assay_stream.schemes.hangar import UnknownPolicy
from assay_stream.schemes.schemapin import PublicKey


def apply_control(registry: Registry, record: Record, event: ControlEvent) -> list[Output]:
    """Apply a control record, and return what is to be published."""
    fact = fact_of(record, event)
    if isinstance(fact, SuppressionDecision):
        return [
            change_record(record, event, fact, Controls(), registry.producer),
            *suppression_records(fact, registry.partitions or 1),
        ]
    ledger, server = registry.ledger, registry.bindings.server(fact.server_id)
    outputs: list[Output] = []
    is_news = not says_nothing_new(fact, server.controls)
    if is_news:
        outputs.append(change_record(record, event, fact, server.controls, registry.producer))
    analysis = Analysis(registry.limits.work_units_max)
    transition = Transition(registry, record, fact.server_id, server, start_of(fact.time_us), analysis, decision=fact)
    outputs.append(ledger.publish(record, fact))
    if isinstance(fact, Discovery):
        outputs += transition.check_signatures(signed for _, signed in sorted(server.controls.signatures.items()))
        outputs += fold_discoveries(ledger, record, server, fact.domain)
    outputs += transition.revise_first_uses()
    outputs += transition.findings()
    if is_news:
        outputs += [resolution.output() for resolution in resolved_by_decision(server, fact, analysis)]
    return [*outputs, *transition.claims(), *transition.verdicts(), *transition.cut_short(fact.time_us)]


def fact_of(record: Record, event: ControlEvent) -> ControlDecision:
    """Return the fact that follows from a control record.

    Args:
        record: the record.
        event: the event in it, checked.
    """
    time_us = event_time_us(event)
    match event:
        case PinSetEvent():
            return _pin(record, event, "set", time_us)
        case PinRejectEvent():
            return _pin(record, event, "reject", time_us)
        case PinRemoveEvent():
            return _pin(record, event, "remove", time_us)
        case PolicySetEvent():
            return Policy(
                server_id=event.data.server_id,
                origin=record.origin,
                time_us=time_us,
                tool_name=event.data.tool_name,
                enforcement=event.data.enforcement,
                unknown=UnknownPolicy.parse(event.data.unknown).value,
                author=event.data.author,
                reason=event.data.reason,
            )
        case KeyAcceptEvent() | KeyRevokeEvent():
            return _key_decision(record, event, time_us)
        case DiscoveryEvent():
            return _discovery(record, event, time_us)
        case SuppressionSetEvent() | SuppressionRemoveEvent():
            return _suppression(record, event, time_us)


def _suppression(
    record: Record, event: SuppressionSetEvent | SuppressionRemoveEvent, time_us: int
) -> SuppressionDecision:
    given = event.data if isinstance(event, SuppressionSetEvent) else None
    return SuppressionDecision(
        server_id=event.data.server_id,
        origin=record.origin,
        time_us=time_us,
        is_set=given is not None,
        id=event.data.id,
        tool=None if given is None else given.tool,
        kind=None if given is None or given.kind is None else given.kind.value,
        field=None if given is None else given.field,
        until_us=None if given is None or given.until is None else time_us_of(given.until),
        author=event.data.author,
        reason=event.data.reason,
    )


def _pin(record: Record, event: PinSetEvent | PinRejectEvent | PinRemoveEvent, act: PinAct, time_us: int) -> Pin:
    data = event.data
    return Pin(
        server_id=data.server_id,
        origin=record.origin,
        time_us=time_us,
        tool_name=data.tool_name,
        scheme=data.scheme,
        act=act,
        value=data.value,
        author=data.author,
        reason=data.reason,
        upstream=data.upstream if isinstance(data, PinSetData) else None,
    )


def _key_decision(record: Record, event: KeyAcceptEvent | KeyRevokeEvent, time_us: int) -> KeyDecision:
    accepted = event.data if isinstance(event, KeyAcceptEvent) else None
    return KeyDecision(
        server_id=event.data.server_id,
        origin=record.origin,
        time_us=time_us,
        act="revoke" if accepted is None else "accept",
        fingerprint=event.data.fingerprint,
        domain=None if accepted is None else accepted.domain,
        tool_name=None if accepted is None else accepted.tool_name,
        author=event.data.author,
        reason=event.data.reason,
    )


def _discovery(record: Record, event: DiscoveryEvent, time_us: int) -> Discovery:
    data = event.data
    key: PublicKey | None = None
    revoked: tuple[str, ...] = ()
    if data.status == "fetch_failed":
        status: DiscoveryStatus = "fetch_failed"
    else:
        status, key, revoked = read_document(data.document, data.domain, data.revocations)
    return Discovery(
        server_id=data.server_id,
        origin=record.origin,
        time_us=time_us,
        domain=data.domain,
        status=status,
        fingerprint=None if key is None else key.fingerprint,
        public_key_pem=None if key is None else key.pem,
        revoked=revoked,
    )
