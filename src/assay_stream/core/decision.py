"""Evidence: one ``assay.tool.decision`` record per call, in the Assay envelope, as JCS bytes.

The record says what was observed and by which rule it was bound. It never says that a tool is safe.
Arguments, results, definitions and messages never enter it: only digests, codes and identifiers do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from assay_stream.core.binding import Binding, Scope, Unbound, bind
from assay_stream.core.bindings import Bindings, ServerBindings
from assay_stream.core.cloudevents import event_time_us
from assay_stream.core.digest import canonicalize
from assay_stream.core.evidence import STRUCTURED, Producer, envelope
from assay_stream.core.finding import Finding
from assay_stream.core.kinds import Kind
from assay_stream.core.observation import CallData, CallEvent
from assay_stream.core.pins import UNPINNED
from assay_stream.core.record import Headers, Output, Record, Role
from assay_stream.core.redaction import DEFAULT_REDACTION, Redaction, redacted_digest
from assay_stream.core.standing import Standing, pin_fields, standing_of
from assay_stream.schemes import assay
from assay_stream.schemes.hangar import Action

_UNPINNED = orjson.Fragment(canonicalize(UNPINNED.as_json()))
_LABELS: dict[Scope | Unbound | None, str] = {scope: f"bound:{scope.value}" for scope in Scope} | {
    reason: f"unbound:{reason.value}" for reason in Unbound
}

_COPIED = frozenset(
    (
        "observer_id",
        "server_id",
        "tool_call_id",
        "profile",
        "trace_id",
        "decision",
        "reason_code",
        "args_schema_hash",
        "policy_digest",
        "policy_snapshot_digest",
        "policy_snapshot_digest_alg",
        "policy_snapshot_canonicalization",
        "policy_snapshot_schema",
        "ok",
        "side_effect",
        "idempotency",
        "idempotency_key",
        "transport",
        "tool_id",
        "tool_version",
        "delegated_from",
        "delegation_depth",
        "args_hash",
        "args_ref",
        "result_hash",
        "result_ref",
    )
)
_NOT_COPIED = CallData.__annotations__.keys() - _COPIED


def join(
    bindings: Bindings,
    record: Record,
    event: CallEvent,
    producer: Producer,
    redaction: Redaction = DEFAULT_REDACTION,
) -> list[Output]:
    """Join one call with what was in force, and return its evidence (first) and call-time findings.

    Args:
        bindings: the view of the whole binding topic.
        record: the call's record.
        event: the call, decoded and checked.
        producer: who writes the evidence.
        redaction: what leaves arguments and results before they are hashed.
    """
    data = event.data
    time_us = event_time_us(event)
    server_id, tool_name = data["server_id"], data["tool_name"]
    server = bindings.servers.get(server_id)
    if record.hold_expired and not names_known_snapshot(bindings, event):
        binding = Binding(unbound=Unbound.UNAVAILABLE)
    else:
        binding = bind(
            server,
            tool_name=tool_name,
            observer_id=data["observer_id"],
            snapshot_id=data.get("snapshot_id"),
            time_us=time_us,
        )
    payload = _payload(record, data, redaction)
    payload.update(_binding_part(server, data, binding))
    standing = None
    if server is not None and server.controls:
        standing = standing_of(server, binding.seen, binding.fingerprint, tool_name, time_us)
        payload["pin"] = standing.pin_fragment
        if standing.signature_fragment is not None:
            payload["signature"] = standing.signature_fragment
    else:
        payload["pin"] = _UNPINNED
    value = envelope(payload, event, producer)
    outputs = [
        Output(
            role=Role.EVIDENCE,
            key=server_id.encode(),
            value=value,
            headers=_headers(event),
            timestamp_ms=time_us // 1_000,
            partition=record.origin.partition,
            label=_LABELS[binding.unbound or binding.scope],
        )
    ]
    if binding.unbound is Unbound.NOT_LISTED:
        outputs.append(_call_finding(Kind.CALL_TO_UNLISTED_TOOL, record, data, binding, time_us).output())
    if standing is not None and standing.pin.action is Action.BLOCK and data["decision"] == "allow":
        outputs.append(_call_finding(Kind.BLOCKED_TOOL_CALLED, record, data, binding, time_us, standing).output())
    return outputs


def _headers(event: CallEvent) -> Headers:
    if event.traceparent is None:
        return STRUCTURED
    return (*STRUCTURED, ("traceparent", event.traceparent.encode()))


def names_known_snapshot(bindings: Bindings, event: CallEvent) -> bool:
    """Tell whether a call names a snapshot that is known already.

    Args:
        bindings: the view of the whole binding topic.
        event: the call.
    """
    server = bindings.servers.get(event.data["server_id"])
    return server is not None and event.data.get("snapshot_id") in server.snapshots


def _payload(record: Record, data: CallData, redaction: Redaction) -> dict[str, Any]:
    # The model has dropped what it does not name. To copy all and drop a little is what is fast.
    payload: dict[str, Any] = {**data}
    for name in _NOT_COPIED & payload.keys():
        del payload[name]
    if None in payload.values():
        payload = _present(payload)
    payload["tool"] = data["tool_name"]
    payload["origin"] = record.origin.as_json()
    error = data.get("error")
    if error is not None:
        payload["error"] = {"code": error["code"]}
    timing, actor = data.get("timing"), data.get("actor")
    if timing is not None:
        payload["timing"] = _present(timing)
        duration_ms = timing.get("duration_ms")
        if duration_ms is not None:
            whole = duration_ms.is_integer()
            payload["timing"]["duration_ms"] = (
                int(duration_ms) if whole else orjson.Fragment(canonicalize(duration_ms))
            )
    if actor is not None:
        payload["actor"] = _present(actor)
    # What is given inline is hashed here, and wins over a hash that somebody else computed.
    if "args" in data:
        payload["args_hash"] = str(redacted_digest(data["args"], redaction))
    if "result" in data:
        payload["result_hash"] = str(redacted_digest(data["result"], redaction))
    if not redaction.is_default and ("args" in data or "result" in data):
        payload["redaction"] = redaction.id
    return payload


def _present(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if value is not None}


def _binding_part(server: ServerBindings | None, data: CallData, binding: Binding) -> dict[str, Any]:
    """Return what evidence says of a binding, worked out once per tool and observation."""
    if server is None or binding.seen is None or binding.fingerprint is None:
        return _describe(server, data["server_id"], data["tool_name"], binding)
    question = ("described", binding.seen.origin, data["tool_name"], binding.scope, binding.unbound)
    part: dict[str, Any] | None = server.memo.get(question)
    if part is None:
        part = server.memo[question] = _describe(server, data["server_id"], data["tool_name"], binding)
    return part


def _describe(server: ServerBindings | None, server_id: str, tool_name: str, binding: Binding) -> dict[str, Any]:
    part: dict[str, Any] = {}
    if binding.unbound is not None:
        part["unbound_reason"] = binding.unbound.value
    rests_on: dict[str, Any] = {"scope": "none" if binding.scope is None else binding.scope.value}
    if binding.seen is not None:
        seen = binding.seen
        rests_on |= {
            "snapshot_id": seen.snapshot_id,
            "origin": seen.origin.as_json(),
            "catalogue_digest": seen.catalogue,
        }
        if server is not None:
            rests_on["server_scoped"] = server.catalogue_of(seen).server_scoped
    found = binding.fingerprint
    if found is not None:
        rests_on["full_digest"] = found.full
        if "assay.schema_hash" in found.schemes:
            identity = {
                "server_id": server_id,
                "tool_name": tool_name,
                "schema_hash": found.schemes["assay.schema_hash"],
                "meta_hash": found.schemes["assay.meta_hash"],
            }
            part["tool_identity"] = orjson.Fragment(canonicalize(identity))
        digest = found.definition_digest()
        if digest is not None:
            part.update(assay.CLUSTER_CONSTANTS, tool_definition_digest=digest)
    part["binding"] = orjson.Fragment(canonicalize(rests_on))
    return part


def _call_finding(
    kind: Kind,
    record: Record,
    data: CallData,
    binding: Binding,
    time_us: int,
    standing: Standing | None = None,
) -> Finding:
    return Finding(
        kind=kind,
        server_id=data["server_id"],
        tool_name=data["tool_name"],
        observer_id=data["observer_id"],
        time_us=time_us,
        origin=record.origin,
        snapshot_id=binding.seen.snapshot_id if binding.seen else None,
        after=binding.fingerprint.full if standing and binding.fingerprint else None,
        **(pin_fields(standing.pin) if standing else {}),
    )
