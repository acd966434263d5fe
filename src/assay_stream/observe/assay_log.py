"""Assay's runtime decision log (NDJSON) as call observations.

A line is the stable payload of ``assay.tool.decision`` by itself, or a CloudEvents envelope around it.
Whatever definition digest the log carries is not copied: a digest comes from an observed list or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, cast

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.redaction import redacted_digest
from assay_stream.errors import InputError
from assay_stream.model.cloudevents import read_event
from assay_stream.model.record import Origin, Record
from assay_stream.observe.events import CallFields, Observation, call_event
from assay_stream.observe.jsonrpc import trace_of
from assay_stream.observe.recorded import OnError, StableIds, numbered, parse_rfc3339, report, stable_id
from assay_stream.observe.vantage import Vantage
from assay_stream.schemes import assay

DECISION_TYPE = "assay.tool.decision"

_TIME_FIELDS = ("time", "ts", "timestamp")
_COPIED = (
    "snapshot_id",
    "args_schema_hash",
    "policy_digest",
    "policy_snapshot_digest",
    "policy_snapshot_digest_alg",
    "policy_snapshot_canonicalization",
    "policy_snapshot_schema",
    "args_hash",
    "result_hash",
    "ok",
    "timing",
    "actor",
    "side_effect",
    "idempotency",
    "tool_id",
    "tool_version",
    "delegated_from",
    "delegation_depth",
)


def from_assay_log(
    lines: Iterable[bytes],
    *,
    server_id: str,
    observer_id: str,
    on_error: OnError | None = None,
) -> Iterator[Observation]:
    """Yield a call observation for every decision of a log. Events of other types have nothing to say here.

    Args:
        lines: the log's lines.
        server_id: the operator's name for the server that the calls went to.
        observer_id: whose log it is.
        on_error: collects the errors of lines that are left out.

    Raises:
        InputError: the first bad line, where nobody collects errors.
        ConfigurationError: ``bad_identifier``.
    """
    vantage = Vantage(server_id=server_id, observer_id=observer_id)
    new_id = StableIds(vantage)
    for number, raw in numbered(iter(lines)):
        new_id.line(raw)
        try:
            observation = _observation(vantage, raw, new_id)
            if observation is not None:
                _validate(observation)
        except InputError as error:
            report(error, number, on_error)
            continue
        if observation is not None:
            yield observation


def _observation(vantage: Vantage, raw: bytes, new_id: StableIds) -> Observation | None:
    line = decode_json(raw)
    if not isinstance(line, dict):
        raise InputError("not_an_event", "the line must be one decision as a JSON object", path="$")
    enveloped = "specversion" in line
    if enveloped and line.get("type") != DECISION_TYPE:
        return None
    payload, path = (line.get("data"), "$.data") if enveloped else (line, "$")
    if not isinstance(payload, dict):
        raise InputError("wrong_type", "the decision must be a JSON object", path=path)
    assay.check_definition_cluster(payload)
    event_id = new_id()
    if enveloped and isinstance(line.get("source"), str) and isinstance(line.get("id"), str):
        # The same decision in another copy of the log is the same observation.
        event_id = stable_id(vantage.server_id, vantage.observer_id, line["source"], line["id"])
    trace = trace_of(line.get("traceparent", payload.get("traceparent")))
    return call_event(
        vantage,
        event_id=event_id,
        observed_at=_time(line, payload),
        tool_name=_required(payload, "tool", path),
        tool_call_id=payload.get("tool_call_id", event_id),
        decision=_required(payload, "decision", path),
        reason_code=_required(payload, "reason_code", path),
        traceparent=None if trace is None else trace[0],
        **_fields(payload, trace),
    )


def _fields(payload: Mapping[str, Any], trace: tuple[str, str] | None) -> CallFields:
    copied: dict[str, Any] = {name: payload[name] for name in _COPIED if name in payload}
    copied["trace_id"] = payload.get("trace_id", None if trace is None else trace[1])
    for name in ("args", "result"):
        if name in payload and f"{name}_hash" not in payload:
            copied[f"{name}_hash"] = str(redacted_digest(payload[name]))
    error = payload.get("error")
    if isinstance(error, dict) and "code" in error:
        copied["error"] = {"code": error["code"]}  # a message may quote arguments
    return cast("CallFields", copied)  # the event's model has the last word, see _validate


def _time(line: Mapping[str, Any], payload: Mapping[str, Any]) -> datetime:
    for place, path in ((line, "$"), (payload, "$.data")):
        for name in _TIME_FIELDS:
            if name in place:
                return parse_rfc3339(place[name], path=f"{path}.{name}")
    raise InputError("missing_field", "the decision has no time: add it in RFC 3339", path="$.time")


def _required(payload: Mapping[str, Any], name: str, path: str) -> Any:
    if name not in payload:
        raise InputError("missing_field", "the field is required: add it", path=f"{path}.{name}")
    return payload[name]


def _validate(observation: Observation) -> None:
    """Refuse here what the join would refuse, while the line's number is still known."""
    read_event(
        Record(
            role=observation.role,
            origin=Origin(topic="", partition=0, offset=0),
            key=observation.key,
            value=observation.value,
            headers=observation.headers,
            timestamp_ms=observation.timestamp_ms,
        )
    )
