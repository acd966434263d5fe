"""Evidence: one ``assay.tool.decision`` record per call, in the Assay envelope, as JCS bytes.

The record says what was observed and by which rule it was bound. It never says that a tool is safe.
Arguments, results, definitions and messages never enter it: only digests, codes and identifiers do.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from assay_stream.core.binding import Binding, Scope, Unbound, bind
from assay_stream.core.bindings import Bindings
from assay_stream.core.cloudevents import event_time_us
from assay_stream.core.digest import canonicalize
from assay_stream.core.finding import Finding, Kind
from assay_stream.core.observation import CallData, CallEvent
from assay_stream.core.pins import UNPINNED, check_pins
from assay_stream.core.record import Output, Record, Role
from assay_stream.core.redaction import redacted_digest
from assay_stream.schemes import assay

EVIDENCE_TYPE = "assay.tool.decision"
EVIDENCE_SOURCE = "urn:assay-stream"

_COPIED = (
    "observer_id",
    "server_id",
    "tool_call_id",
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
    "tool_id",
    "tool_version",
    "delegated_from",
    "delegation_depth",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """Who writes the evidence, as the envelope names it.

    Args:
        version: version of this software.
        git: commit it was built from, ``unknown`` where the build did not say.
    """

    version: str
    git: str = "unknown"
    name: str = "assay-stream"


def join(bindings: Bindings, record: Record, event: CallEvent, producer: Producer) -> list[Output]:
    """Join one call with what was in force, and return its evidence (first) and call-time findings.

    Args:
        bindings: the view of the whole binding topic.
        record: the call's record.
        event: the call, decoded and checked.
        producer: who writes the evidence.
    """
    data = event.data
    time_us = event_time_us(event)
    server = bindings.servers.get(data.server_id)
    if record.hold_expired and not names_known_snapshot(bindings, event):
        binding = Binding(unbound=Unbound.UNAVAILABLE)
    else:
        binding = bind(
            server,
            tool_name=data.tool_name,
            observer_id=data.observer_id,
            snapshot_id=data.snapshot_id,
            time_us=time_us,
        )
    pin = UNPINNED
    if server is not None and server.pins:
        pin = check_pins(server.pins_as_of(data.tool_name, time_us), binding.fingerprint)
    payload = _payload(record, data, binding)
    payload["pin"] = pin.as_json()
    value = envelope(payload, event, producer)
    verdict = f"unbound:{binding.unbound}" if binding.unbound else f"bound:{binding.scope}"
    outputs = [
        Output(
            role=Role.EVIDENCE,
            key=data.server_id.encode(),
            value=value,
            timestamp_ms=time_us // 1_000,
            partition=record.origin.partition,
            label=verdict,
        )
    ]
    if binding.unbound is Unbound.NOT_LISTED:
        outputs.append(_unlisted(record, data, binding, time_us).output())
    return outputs


def names_known_snapshot(bindings: Bindings, event: CallEvent) -> bool:
    """Tell whether a call names a snapshot that is known already.

    Args:
        bindings: the view of the whole binding topic.
        event: the call.
    """
    server = bindings.servers.get(event.data.server_id)
    return server is not None and event.data.snapshot_id in server.snapshots


def _payload(record: Record, data: CallData, binding: Binding) -> dict[str, Any]:
    given = data.__dict__
    payload: dict[str, Any] = {"tool": data.tool_name, "origin": record.origin.as_json()}
    for name in _COPIED:
        value = given[name]
        if value is not None:
            payload[name] = value
    if data.error is not None:
        payload["error"] = {"code": data.error.code}
    if data.timing is not None:
        payload["timing"] = data.timing.model_dump(exclude_none=True)
    if data.actor is not None:
        payload["actor"] = data.actor.model_dump(exclude_none=True)
    _attach_hash(payload, "args", data.args, data.args_hash, given_inline="args" in data.model_fields_set)
    _attach_hash(
        payload, "result", data.result, data.result_hash, given_inline="result" in data.model_fields_set
    )
    _attach_binding(payload, data, binding)
    return payload


def _attach_hash(
    payload: dict[str, Any], name: str, body: Any, given_hash: str | None, *, given_inline: bool
) -> None:
    if given_inline:
        payload[f"{name}_hash"] = str(redacted_digest(body))
    elif given_hash is not None:
        payload[f"{name}_hash"] = given_hash


def _attach_binding(payload: dict[str, Any], data: CallData, binding: Binding) -> None:
    if binding.unbound is not None:
        payload["unbound_reason"] = binding.unbound.value
    rests_on: dict[str, Any] = {"scope": "none" if binding.scope is None else binding.scope.value}
    if binding.seen is not None:
        seen = binding.seen
        rests_on |= {
            "snapshot_id": seen.snapshot_id,
            "origin": seen.origin.as_json(),
            "catalogue_digest": seen.catalogue,
        }
    found = binding.fingerprint
    if found is not None:
        rests_on["full_digest"] = found.full
        if "assay.schema_hash" in found.schemes:
            payload["tool_identity"] = {
                "server_id": data.server_id,
                "tool_name": data.tool_name,
                "schema_hash": found.schemes["assay.schema_hash"],
                "meta_hash": found.schemes["assay.meta_hash"],
            }
        digest = found.definition_digest()
        if digest is not None:
            payload.update(assay.CLUSTER_CONSTANTS, tool_definition_digest=digest)
    payload["binding"] = rests_on


def envelope(payload: dict[str, Any], event: CallEvent, producer: Producer) -> bytes:
    """Return the evidence record's bytes: JCS of the Assay envelope around a payload.

    Run id and sequence are a bundle's notions and are assigned at export.

    Args:
        payload: the ``data`` of the record.
        event: the call it is about.
        producer: who writes it.
    """
    data = canonicalize(payload)
    subject = canonicalize(payload["tool"])
    covered = (
        b'{"data":' + data + b',"datacontenttype":"application/json","specversion":"1.0","subject":' + subject
    )
    covered += b',"type":"' + EVIDENCE_TYPE.encode() + b'"}'
    rest: dict[str, Any] = {
        "datacontenttype": "application/json",
        "id": sha256(canonicalize([event.source, event.id])).hexdigest(),
        "source": EVIDENCE_SOURCE,
        "specversion": "1.0",
        "subject": payload["tool"],
        "time": event.time,
        "type": EVIDENCE_TYPE,
    }
    if event.traceparent is not None:
        rest["traceparent"] = event.traceparent
    head: dict[str, Any] = {
        "assaycontenthash": "sha256:" + sha256(covered).hexdigest(),
        "assaygit": producer.git,
        "assaypii": False,
        "assayproducer": producer.name,
        "assayproducerversion": producer.version,
        "assaysecrets": False,
    }
    # "assay..." < "data" < "datacontenttype" in JCS order, so the three parts stand one after the other.
    return canonicalize(head)[:-1] + b',"data":' + data + b"," + canonicalize(rest)[1:]


def _unlisted(record: Record, data: CallData, binding: Binding, time_us: int) -> Finding:
    return Finding(
        kind=Kind.CALL_TO_UNLISTED_TOOL,
        server_id=data.server_id,
        tool_name=data.tool_name,
        observer_id=data.observer_id,
        time_us=time_us,
        origin=record.origin,
        snapshot_id=binding.seen.snapshot_id if binding.seen else None,
    )


__all__ = ["EVIDENCE_SOURCE", "EVIDENCE_TYPE", "Producer", "Scope", "envelope", "join", "names_known_snapshot"]
