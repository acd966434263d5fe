"""The registry: snapshots and control records in; facts, definitions, findings, changes and verdicts out.

1. A record is decoded and checked as a whole before any state changes.
2. State changes only by applying the facts that are published: a restart restores what was there.
3. A digest is computed once per distinct definition; equal bytes are never canonicalised twice.
4. A refused record of the snapshots topic ends the force of what its observer saw before on the server that its key
   names; without a header that names the observer, of what every observer that sends none saw.
5. Findings about pins and signatures follow from what both logs hold, not from which was read first.

A control record gives one fact, effective from its own event time, and what follows from the fact. It is also evidence:
a change, as an Assay envelope in a topic of its own, in the order of the control log. The change holds what it
replaced, and whether the log already held a later one by event time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, get_args

import orjson

from assay_stream.bindings.checks import pinned_key
from assay_stream.bindings.controls import Controls, digest_policy, pins_in_force
from assay_stream.bindings.erasures import ScopeAct, act_of
from assay_stream.bindings.server import ServerBindings
from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.model.cloudevents import (
    check_observer,
    event_time_us,
    identifier_of,
    log_time_us,
    observer_in_header,
    read_event,
)
from assay_stream.model.control import (
    ALERT_TYPE,
    DISCOVERY_TYPE,
    KEY_ACCEPT_TYPE,
    KEY_REVOKE_TYPE,
    PIN_REJECT_TYPE,
    PIN_REMOVE_TYPE,
    PIN_SET_TYPE,
    POLICY_REMOVE_TYPE,
    POLICY_SET_TYPE,
    SUPPRESSION_REMOVE_TYPE,
    SUPPRESSION_SET_TYPE,
    ControlDecision,
    ControlEvent,
    ControlFact,
    Discovery,
    HoldRemoveData,
    KeyDecision,
    Pin,
    Policy,
)
from assay_stream.model.evidence import CHANGE_TYPE, EVIDENCE_SOURCE, STRUCTURED, Producer
from assay_stream.model.facts import Rejection
from assay_stream.model.fields import TriageAct
from assay_stream.model.finding import AlertAct, Finding, FloodEnd, Suppression, SuppressionRule, alone_max
from assay_stream.model.kinds import RELEASE_KINDS, Kind
from assay_stream.model.observation import ListChangedEvent, LossEvent, SnapshotEvent
from assay_stream.model.record import Output, Record, Role, rejected
from assay_stream.model.rejected import refusal
from assay_stream.registry.analysis import Analysis, finding_in
from assay_stream.registry.resolution import resolved_by_decision
from assay_stream.registry.retention import (
    evict,
    evict_observers,
    fold_discoveries,
    fold_unlisted,
    is_redundant,
    merge_rejections,
)
from assay_stream.registry.snapshot_step import apply_announcement, apply_snapshot
from assay_stream.registry.step import Registry, Step, Transition, policy_text, read_document
from assay_stream.schemes import assay_tool as assay
from assay_stream.text.times import time_us_of
from assay_stream.work import Work

__all__ = ["Registry", "process"]

_RELEASE_LABELS = frozenset(f"finding:{kind.value}" for kind in RELEASE_KINDS)
_Decision = ControlDecision | Suppression | AlertAct | ScopeAct


def process(registry: Registry, record: Record) -> list[Output]:
    """Apply one snapshot or control record.

    Args:
        registry: the state of the record's partition; it changes only by the returned facts.
        record: the next record of the snapshots or the control topic.

    Returns:
        Facts, definitions, findings, changes and verdicts to publish, or the rejected copy. Bad input never raises.
    """
    step = Step(registry, record)
    try:
        event = read_event(record, limits=registry.limits)
        if not isinstance(event, SnapshotEvent | ListChangedEvent | LossEvent | ControlEvent):
            raise AssertionError(f"no handler for {type(event).__name__}")
        server_id = event.data.server_id
        _check_key(record, server_id)
        known = registry.bindings.find(server_id)
        observers = 0 if known is None else len(known.observers)
        match event:
            case SnapshotEvent():
                apply_snapshot(step, event)
            case ListChangedEvent():
                apply_announcement(step, event)
            case LossEvent():
                check_observer(record, event.data.observer_id, limits=registry.limits)
                _find_loss(step, event)
            case _:
                apply_control(step, event)
    except InputError as error:
        return _refuse(step, error)
    now_known = registry.bindings.find(server_id)
    if now_known is not None and len(now_known.observers) > observers:
        evict_observers(step, event_time_us(event))
    return _finish(step, server_id, event_time_us(event))


def _find_loss(step: Step, event: LossEvent) -> None:
    """Publish the finding of a loss. State does not change: nothing follows from what was not observed."""
    data = event.data
    if not data.lists and not data.calls:
        return
    finding = Finding(
        kind=Kind.OBSERVATIONS_LOST,
        server_id=data.server_id,
        observer_id=data.observer_id,
        # One alert per observer, so that the losses of a second one show.
        item_name=data.observer_id,
        time_us=event_time_us(event),
        origin=step.record.origin,
    )
    step.outputs.append(finding.output())


def _check_key(record: Record, server_id: str) -> None:
    if record.key is None:
        raise InputError("key_missing", "the record's key must be the event's server_id, and there is none")
    if record.key != server_id.encode():
        raise InputError("key_mismatch", "the record's key must be the event's server_id", path="$.data.server_id")


def _refuse(step: Step, error: InputError) -> list[Output]:
    registry, record = step.registry, step.record
    server_id = identifier_of(record.key, limits=registry.limits)
    if record.role is not Role.SNAPSHOTS or server_id is None:
        return refusal(record, error)
    rejection = Rejection(
        server_id=server_id,
        origin=record.origin,
        time_us=log_time_us(record, registry.limits),
        code=error.code,
        observer_id=observer_in_header(record.headers, limits=registry.limits),
    )
    step.outputs = [rejected(record, error)]
    server = registry.bindings.server(server_id)
    # The next good list will resolve a refusal for a reason that is known.
    is_known = any(known.code == error.code for known in server.endings.rejections_of(rejection.observer_id))
    if not (is_known and is_redundant(server, rejection)):
        _publish_rejection(step, server, rejection)
    step.outputs.append(finding_in(rejection, Kind.SNAPSHOT_REJECTED, reason=error.code).output())
    return _finish(step, server_id, rejection.time_us)


def _publish_rejection(step: Step, server: ServerBindings, rejection: Rejection) -> None:
    analysis = Analysis(Work(step.limits.work_units_max))
    # An observer without a list has no findings, and no verdict depends on it.
    concerns_lists = any(True for _ in server.concerned(rejection))
    transition = Transition(step, server, rejection, analysis) if concerns_lists else None
    step.publish(rejection)
    merge_rejections(step, server, rejection.observer_id)
    fold_unlisted(step, server)
    if transition is not None:
        transition.revise_first_uses()
        step.outputs += transition.findings()
        transition.publish_verdicts()
        transition.publish_cut()


def _finish(step: Step, server_id: str, time_us: int) -> list[Output]:
    """Evict what exceeds the bounds, and add an end mark if the record's findings are alerted together."""
    server = step.bindings.find(server_id)
    if server is not None:
        server.drop_small_indexes()
    evict(step, server_id, time_us)
    outputs = step.outputs
    findings = sum(output.label.startswith("finding:") for output in outputs)
    is_release = sum(output.label in _RELEASE_LABELS for output in outputs) > 1
    groups = Counter(output.key or b"" for output in outputs if output.label == "name_claim:come")
    ends = [
        FloodEnd(server_id=server_id, group=group, findings=number, time_us=time_us, origin=step.record.origin)
        for group, number in ((None, findings), *((key.decode(), number) for key, number in sorted(groups.items())))
        if number > alone_max(group) or (group is None and is_release)
    ]
    return [*outputs, *(end.output() for end in ends)]


def apply_control(step: Step, event: ControlEvent) -> None:
    record, registry = step.record, step.registry
    fact = fact_of(record, event)
    if isinstance(fact, Suppression | AlertAct | ScopeAct):
        # What is deleted is up to commands, and the other two are for the alert stage alone.
        step.outputs.append(change_record(record, event, fact, Controls(), registry.producer))
        step.outputs += () if isinstance(fact, ScopeAct) else fact.outputs(registry.partitions or 1)
        return
    server, analysis = step.bindings.server(fact.server_id), Analysis(Work(step.limits.work_units_max))
    is_news = not says_nothing_new(fact, server.controls)
    if is_news:
        step.outputs.append(change_record(record, event, fact, server.controls, registry.producer))
    transition = Transition(step, server, fact, analysis)
    step.publish(fact)
    if isinstance(fact, Discovery):
        transition.check_signatures(signed for _, signed in sorted(server.controls.signatures.items()))
        fold_discoveries(step, server, fact.domain)
    transition.revise_first_uses()
    step.outputs += transition.findings()
    if is_news:
        step.outputs += [resolution.output() for resolution in resolved_by_decision(server, fact, analysis)]
    step.outputs += transition.claims()
    transition.publish_verdicts()
    transition.publish_cut()


def fact_of(record: Record, event: ControlEvent) -> _Decision:
    data, time_us = event.data, event_time_us(event)
    if isinstance(data, HoldRemoveData):
        return act_of(record, event)
    # What operators state of a decision goes into its fact as it is, under the same names.
    given: dict[str, Any] = {name: value for name, value in data if name not in _NOT_IN_FACTS}
    if event.type == SUPPRESSION_SET_TYPE:
        given["kind"] = None if data.kind is None else data.kind.value
        given["until_us"] = None if data.until is None else time_us_of(data.until)
    if event.type in (SUPPRESSION_SET_TYPE, SUPPRESSION_REMOVE_TYPE):
        is_set = event.type == SUPPRESSION_SET_TYPE
        return Suppression(rule=SuppressionRule(**given), is_set=is_set, time_us=time_us)
    given |= {"origin": record.origin, "time_us": time_us}
    if event.type == DISCOVERY_TYPE:
        if data.status == "fetch_failed":
            return Discovery(status="fetch_failed", **given)
        status, key, revoked = read_document(data.document, data.domain, data.revocations)
        if key is not None:
            given |= {"fingerprint": key.fingerprint, "public_key_pem": key.pem}
        return Discovery(status=status, revoked=revoked, **given)
    fact, fixed = _FACTS[event.type]
    return fact(**given, **fixed)


_NOT_IN_FACTS = frozenset(("until", "status", "document", "revocations", "error_code", "detail", "fetched_from"))
_FACTS: dict[str, tuple[type[_Decision], dict[str, Any]]] = {
    PIN_SET_TYPE: (Pin, {"act": "set"}),
    PIN_REJECT_TYPE: (Pin, {"act": "reject"}),
    PIN_REMOVE_TYPE: (Pin, {"act": "remove"}),
    POLICY_SET_TYPE: (Policy, {}),
    POLICY_REMOVE_TYPE: (Policy, {}),
    KEY_ACCEPT_TYPE: (KeyDecision, {"act": "accept"}),
    KEY_REVOKE_TYPE: (KeyDecision, {"act": "revoke", "domain": None, "tool_name": None}),
    **{ALERT_TYPE + act: (AlertAct, {"act": act}) for act in get_args(TriageAct)},
}


def change_record(record: Record, event: ControlEvent, fact: _Decision, before: Controls, producer: Producer) -> Output:
    decided = fact.rule if isinstance(fact, Suppression) else fact
    payload = {
        "change": event.type.removeprefix("assay.control."),
        "server_id": fact.server_id,
        "origin": record.origin.as_json(),
        **{_CALLED.get(name, name): getattr(decided, name) for name in _WHAT[type(decided)]},
        "replaces": _replaced(fact, before),
        "superseded": _is_superseded(fact, before),
    }
    payload = {name: value for name, value in payload.items() if value is not None}
    body: dict[str, Any] = {
        "specversion": "1.0",
        "type": CHANGE_TYPE,
        "source": EVIDENCE_SOURCE,
        "id": sha256(orjson.dumps([event.source, event.id])).hexdigest(),
        "time": event.time,
        "datacontenttype": "application/json",
        "subject": fact.server_id,
        **producer.attributes(),
        "data": payload,
    }
    body["assaycontenthash"] = str(assay.content_hash(body))
    return Output(
        role=Role.CHANGES,
        key=fact.server_id.encode(),
        value=canonicalize(body),
        headers=STRUCTURED,
        timestamp_ms=fact.time_us // 1_000,
        partition=record.origin.partition,
        label=f"change:{payload['change']}",
    )


_BY_OPERATOR = ("author", "reason")
_WHAT: dict[type, tuple[str, ...]] = {
    Pin: ("tool_name", "scheme", "value", "upstream", *_BY_OPERATOR),
    Policy: ("tool_name", "enforcement", "unknown", *_BY_OPERATOR),
    KeyDecision: ("tool_name", "domain", "fingerprint", *_BY_OPERATOR),
    Discovery: ("domain", "status", "fingerprint", "revoked"),
    AlertAct: ("alert", "assignee", *_BY_OPERATOR),
    ScopeAct: ("scope_id", "scope", "records", *_BY_OPERATOR),
    SuppressionRule: ("id", "tool", "kind", "field", "detection", "until_us", *_BY_OPERATOR),
}
"""The fields of a change, by the class of its fact."""

_CALLED = {"fingerprint": "key_fingerprint", "revoked": "revoked_keys", "id": "rule_id", "alert": "alert_uid"}
"""Names in the change that differ from those in the fact."""


def says_nothing_new(fact: ControlDecision, before: Controls) -> bool:
    """Return True for a discovery that repeats the last one before it: no change, and no evidence."""
    if not isinstance(fact, Discovery):
        return False
    history = before.discoveries_as_of(fact.domain, fact.position)
    return bool(history) and history[-1].says_the_same(fact)


def _replaced(fact: _Decision, before: Controls) -> Any:
    """Return what was in force at the time of the change and no longer is."""
    was: Any = None
    now: Any = None
    match fact:
        case Pin():
            acts = [act for act in before.pins.get(fact.tool_name, ()) if act.position < fact.position]
            was = pins_in_force(acts).approved.get(fact.scheme)
            now = pins_in_force([*acts, fact]).approved.get(fact.scheme)
        case Policy():
            policy, now = before.own_policy_as_of(fact.tool_name, fact.position), policy_text(digest_policy(fact))
            if now is not None:
                policy = before.policy_as_of(fact.tool_name or "", fact.position)
            was = policy_text(policy)
        case KeyDecision() if fact.act == "accept" and fact.domain is not None:
            # An acceptance for all tools replaces one for all tools; which key each of them used first stands with it.
            was = pinned_key(before, fact.domain, fact.tool_name or "", fact.position)
            now = fact.fingerprint
        case Discovery() if fact.status != "fetch_failed":  # else what was observed last stays in force
            found = before.discoveries_as_of(fact.domain, fact.position)
            was = next((old.fingerprint for old in reversed(found) if old.status != "fetch_failed"), None)
            now = fact.fingerprint
    return None if was == now else was


def _is_superseded(fact: _Decision, before: Controls) -> bool:
    """Return True if the log already held a decision on the same subject that is later by event time."""
    same: Iterable[ControlFact]
    match fact:
        case Pin():
            same = [known for known in before.pins.get(fact.tool_name, ()) if _is_about_same_pin(fact, known)]
        case Policy():
            same = before.policies.get(fact.tool_name, ())
        case KeyDecision():
            same = [known for known in before.key_decisions if _is_about_same_key(fact, known)]
        case Discovery():
            same = before.discoveries.get(fact.domain, ())
        case _:
            # Rules and alerts are the alert stage's; what is read last counts there.
            return False
    return any(known.position > fact.position for known in same)


def _is_about_same_pin(fact: Pin, known: Pin) -> bool:
    """Return True if both decide on one value, or both on which value is the scheme's pin."""
    if fact.scheme != known.scheme:
        return False
    return fact.value == known.value or (_decides_on_pin(fact) and _decides_on_pin(known))


def _decides_on_pin(pin: Pin) -> bool:
    return pin.act == "set" or pin.value is None


def _is_about_same_key(fact: KeyDecision, known: KeyDecision) -> bool:
    """Return True if both decide on one key, or both on which key is accepted for the same tools."""
    accepted = fact.act == known.act == "accept"
    same_place = (fact.domain, fact.tool_name) == (known.domain, known.tool_name)
    return fact.fingerprint == known.fingerprint or (accepted and same_place)
