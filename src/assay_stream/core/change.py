"""Changes: evidence of what operators set and of the keys that were observed, one record per control record.

The record is an Assay envelope in a topic of its own, in the order of the control log. It says what the change
replaced, and whether a later one by event time stood there already.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import orjson

from assay_stream.core.control_facts import ControlFact, Discovery, KeyDecision, Pin, Policy
from assay_stream.core.controls import Controls
from assay_stream.core.digest import canonicalize
from assay_stream.core.evidence import EVIDENCE_SOURCE, STRUCTURED, Producer
from assay_stream.core.observation import Envelope
from assay_stream.core.record import Output, Record, Role
from assay_stream.core.signing import pinned_key
from assay_stream.schemes import assay

CHANGE_TYPE = "assay.control.change"

ControlDecision = Pin | Policy | KeyDecision | Discovery


def change_record(
    record: Record, event: Envelope, fact: ControlDecision, before: Controls, producer: Producer
) -> Output:
    """Return the evidence of one change.

    Args:
        record: the control record.
        event: the event in it.
        fact: what follows from it.
        before: the control facts of the server before it.
        producer: who writes the evidence.
    """
    payload = {
        "change": event.type.removeprefix("assay.control.") if hasattr(event, "type") else "",
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


def _what(fact: ControlDecision) -> dict[str, Any]:
    match fact:
        case Pin():
            return {
                "tool_name": fact.tool_name,
                "scheme": fact.scheme,
                "value": fact.value,
                "author": fact.author,
                "reason": fact.reason,
            }
        case Policy():
            return {
                "tool_name": fact.tool_name,
                "enforcement": fact.enforcement,
                "unknown": fact.unknown,
                "author": fact.author,
                "reason": fact.reason,
            }
        case KeyDecision():
            return {
                "tool_name": fact.tool_name,
                "domain": fact.domain,
                "key_fingerprint": fact.fingerprint,
                "author": fact.author,
                "reason": fact.reason,
            }
        case Discovery():
            return {
                "domain": fact.domain,
                "status": fact.status,
                "key_fingerprint": fact.fingerprint,
                "revoked_keys": list(fact.revoked),
            }


def _replaced(fact: ControlDecision, before: Controls) -> Any:
    """Return what was in force at the time of the change and is not any more."""
    match fact:
        case Pin():
            return before.pins_as_of(fact.tool_name, fact.time_us).approved.get(fact.scheme)
        case Policy():
            policy = before.policy_as_of(fact.tool_name or "", fact.time_us)
            if policy is None:
                return None
            return {"enforcement": policy.enforcement.value, "unknown": policy.unknown.value}
        case KeyDecision():
            if fact.act == "accept" and fact.domain and fact.tool_name:
                return pinned_key(before, fact.domain, fact.tool_name, fact.time_us)
            return None
        case Discovery():
            earlier = [
                found
                for found in before.discoveries_as_of(fact.domain, fact.time_us)
                if found.status == "observed"
            ]
            return earlier[-1].fingerprint if earlier else None


def _is_superseded(fact: ControlDecision, before: Controls) -> bool:
    """Tell whether the log held a decision on the same thing already that is later by event time."""
    return any(known.position > fact.position for known in _of_same_thing(fact, before))


def _of_same_thing(fact: ControlDecision, before: Controls) -> list[ControlFact]:
    match fact:
        case Pin():
            return [known for known in before.pins.get(fact.tool_name, ()) if known.scheme == fact.scheme]
        case Policy():
            return [known for known in before.policies if known.tool_name == fact.tool_name]
        case KeyDecision():
            return [known for known in before.key_decisions if known.fingerprint == fact.fingerprint]
        case Discovery():
            return list(before.discoveries.get(fact.domain, ()))
