"""Control records: one fact per record, effective from its own event time, and what follows from the fact."""

from __future__ import annotations

from typing import Any

from assay_stream.model.cloudevents import event_time_us, time_us_of
from assay_stream.model.control import (
    ControlEvent,
    DiscoveryData,
    DiscoveryEvent,
    KeyAcceptEvent,
    KeyRevokeEvent,
    PinRejectEvent,
    PinRemoveEvent,
    PinSetEvent,
    PolicySetEvent,
    SuppressionRemoveEvent,
    SuppressionSetEvent,
)
from assay_stream.model.control_facts import Discovery, KeyDecision, Pin, Policy, SuppressionDecision
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


def apply_control(registry: Registry, record: Record, event: ControlEvent) -> list[Output]:
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
    data = event.data
    # What operators state of a decision goes into its fact as it is, under the same names.
    given: dict[str, Any] = {name: value for name, value in data if name not in _NOT_IN_FACTS}
    given |= {"origin": record.origin, "time_us": event_time_us(event)}
    match event:
        case PinSetEvent():
            return Pin(act="set", **given)
        case PinRejectEvent():
            return Pin(act="reject", **given)
        case PinRemoveEvent():
            return Pin(act="remove", **given)
        case PolicySetEvent():
            return Policy(**given | {"unknown": UnknownPolicy.parse(event.data.unknown).value})
        case KeyAcceptEvent():
            return KeyDecision(act="accept", **given)
        case KeyRevokeEvent():
            return KeyDecision(act="revoke", domain=None, tool_name=None, **given)
        case SuppressionSetEvent():
            kind, until = event.data.kind, event.data.until
            given |= {"kind": None if kind is None else kind.value}
            return SuppressionDecision(is_set=True, until_us=None if until is None else time_us_of(until), **given)
        case SuppressionRemoveEvent():
            return SuppressionDecision(is_set=False, tool=None, kind=None, field=None, until_us=None, **given)
        case DiscoveryEvent():
            return _discovery(event.data, given)


_NOT_IN_FACTS = frozenset(("until", "status", "document", "revocations", "error_code", "detail", "fetched_from"))


def _discovery(data: DiscoveryData, given: dict[str, Any]) -> Discovery:
    if data.status == "fetch_failed":
        return Discovery(status="fetch_failed", **given)
    status, key, revoked = read_document(data.document, data.domain, data.revocations)
    if key is None:
        return Discovery(status=status, revoked=revoked, **given)
    return Discovery(status=status, fingerprint=key.fingerprint, public_key_pem=key.pem, revoked=revoked, **given)
