"""Changes: evidence of what operators set and of the keys that were observed, one record per control record.

The record is an Assay envelope in a topic of its own, in the order of the control log. It says what the change
replaced, and whether a later one by event time stood there already.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import orjson

from assay_stream.canonical.digest import canonicalize
from assay_stream.model.control import ControlEvent
from assay_stream.model.control_facts import ControlFact, Discovery, KeyDecision, Pin, Policy, SuppressionDecision
from assay_stream.model.envelope import EVIDENCE_SOURCE, STRUCTURED, Producer
from assay_stream.model.evidence import CHANGE_TYPE
from assay_stream.model.record import Output, Record, Role
from assay_stream.registry.controls import Controls, digest_policy
from assay_stream.registry.pins import pins_in_force
from assay_stream.registry.signatures import pinned_key
from assay_stream.schemes.assay import tool as assay

ControlDecision = Pin | Policy | KeyDecision | Discovery | SuppressionDecision


def change_record(
    record: Record, event: ControlEvent, fact: ControlDecision, before: Controls, producer: Producer
) -> Output:
    payload = {
        "change": event.type.removeprefix("assay.control."),
        "server_id": fact.server_id,
        "origin": record.origin.as_json(),
        **_what(fact),
    }
    replaces = _replaced(fact, before)
    if replaces is not None:
        payload["replaces"] = replaces
    payload["superseded"] = _is_superseded(fact, before)
    payload = {name: value for name, value in payload.items() if value is not None}
    body: dict[str, Any] = {
        "specversion": "1.0",
        "type": CHANGE_TYPE,
        "source": EVIDENCE_SOURCE,
        "id": sha256(orjson.dumps([event.source, event.id])).hexdigest(),
        "time": event.time,
        "datacontenttype": "application/json",
        "subject": fact.server_id,
        "assayproducer": producer.name,
        "assayproducerversion": producer.version,
        "assaygit": producer.git,
        "assaypii": False,
        "assaysecrets": False,
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
    SuppressionDecision: ("id", "tool", "kind", "field", "until_us", *_BY_OPERATOR),
}
"""What a change says of its fact."""

_CALLED = {"fingerprint": "key_fingerprint", "revoked": "revoked_keys", "id": "rule_id"}
"""Names in the change that differ from those in the fact."""


def _what(fact: ControlDecision) -> dict[str, Any]:
    return {_CALLED.get(name, name): getattr(fact, name) for name in _WHAT[type(fact)]}


def says_nothing_new(fact: ControlDecision, before: Controls) -> bool:
    """Tell whether a fact is a discovery that repeats what was found last before it: no change, and no evidence."""
    if not isinstance(fact, Discovery):
        return False
    history = before.discoveries_as_of(fact.domain, fact.position)
    return bool(history) and history[-1].says_the_same(fact)


def _replaced(fact: ControlDecision, before: Controls) -> Any:
    """Return what was in force at the time of the change and is not any more."""
    match fact:
        case Pin():
            return _replaced_pin(fact, before)
        case Policy():
            policy = before.policy_as_of(fact.tool_name or "", fact.position)
            if policy is None or policy == digest_policy(fact):
                return None
            return {"enforcement": policy.enforcement.value, "unknown": policy.unknown.value}
        case KeyDecision():
            return _replaced_key(fact, before)
        case Discovery():
            return _replaced_document(fact, before)
        case SuppressionDecision():
            return None


def _replaced_pin(fact: Pin, before: Controls) -> str | None:
    acts = [act for act in before.pins.get(fact.tool_name, ()) if act.position < fact.position]
    was = pins_in_force(acts).approved.get(fact.scheme)
    return None if was == pins_in_force([*acts, fact]).approved.get(fact.scheme) else was


def _replaced_key(fact: KeyDecision, before: Controls) -> str | None:
    if fact.act != "accept" or fact.domain is None:
        return None
    # An acceptance for all tools replaces one for all tools; which key each of them used first stands with it.
    was = pinned_key(before, fact.domain, fact.tool_name or "", fact.position)
    return None if was == fact.fingerprint else was


def _replaced_document(fact: Discovery, before: Controls) -> str | None:
    if fact.status == "fetch_failed":
        # What was observed last stays in force.
        return None
    documents = [
        found for found in before.discoveries_as_of(fact.domain, fact.position) if found.status != "fetch_failed"
    ]
    was = documents[-1].fingerprint if documents else None
    return None if was == fact.fingerprint else was


def _is_superseded(fact: ControlDecision, before: Controls) -> bool:
    """Tell whether the log held a decision on the same thing already that is later by event time."""
    return any(known.position > fact.position for known in _of_same_thing(fact, before))


def _of_same_thing(fact: ControlDecision, before: Controls) -> Iterable[ControlFact]:
    match fact:
        case Pin():
            return [known for known in before.pins.get(fact.tool_name, ()) if _is_about_same_pin(fact, known)]
        case Policy():
            return [known for known in before.policies if known.tool_name == fact.tool_name]
        case KeyDecision():
            return [known for known in before.key_decisions if _is_about_same_key(fact, known)]
        case Discovery():
            return before.discoveries.get(fact.domain, ())
        case SuppressionDecision():
            # The rules are the alert stage's; the one read last counts there.
            return ()


def _is_about_same_pin(fact: Pin, known: Pin) -> bool:
    """Both decide on one value, or both on which value is the scheme's pin."""
    if fact.scheme != known.scheme:
        return False
    return fact.value == known.value or (_decides_on_pin(fact) and _decides_on_pin(known))


def _decides_on_pin(pin: Pin) -> bool:
    return pin.act == "set" or pin.value is None


def _is_about_same_key(fact: KeyDecision, known: KeyDecision) -> bool:
    """Both decide on one key, or both on which key is accepted for the same tools."""
    accepted = fact.act == known.act == "accept"
    same_place = (fact.domain, fact.tool_name) == (known.domain, known.tool_name)
    return fact.fingerprint == known.fingerprint or (accepted and same_place)
