"""The join as a developer would write it first: parse, look up, build, hash, serialise. No checks, no history.

It does what our join does for calls that carry hashes of their arguments, on servers without pins, with the last
definition listed in place of the one in force at the time. What it leaves out: strict decoding, the check of the
call against its model, as-of binding, redaction, pins and signatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

HEADERS = [("content-type", b"application/cloudevents+json")]
_SORTED = orjson.OPT_SORT_KEYS


class Evidence(NamedTuple):
    """One record to be written."""

    key: bytes
    value: bytes
    timestamp_ms: int


def binding_key(server_id: str, tool_name: str) -> str:
    """Return the key of the binding topic's record that tells of a tool.

    Args:
        server_id: the server.
        tool_name: one of its tools.
    """
    return f"{server_id}/{tool_name}"


def evidence_of(
    raw: bytes, bindings: Mapping[str, dict[str, Any]], *, topic: str, partition: int, offset: int, version: str
) -> Evidence:
    """Return the evidence of one call.

    Args:
        raw: the call's bytes.
        bindings: what is known of each tool, by ``binding_key``.
        topic: topic of the call.
        partition: its partition.
        offset: its offset.
        version: version that the envelope names.
    """
    event = orjson.loads(raw)
    payload = event["data"]
    tool = payload.pop("tool_name")
    named = payload.pop("snapshot_id", None)
    payload["tool"] = tool
    payload["origin"] = {"topic": topic, "partition": partition, "offset": offset}
    payload["pin"] = {"status": "unpinned"}
    binding = bindings.get(binding_key(payload["server_id"], tool))
    if binding is None:
        payload["unbound_reason"] = "definition_not_observed"
        payload["binding"] = {"scope": "none"}
    else:
        seen = binding["seen"][payload["observer_id"]]
        scope = "exact" if seen["snapshot_id"] == named else "observer"
        payload["binding"] = {**binding["binding"], **seen, "scope": scope}
        payload["tool_identity"] = binding["tool_identity"]
        payload.update(binding["cluster"])
    covered = {
        "data": orjson.Fragment(orjson.dumps(payload, option=_SORTED)),
        "datacontenttype": "application/json",
        "specversion": "1.0",
        "subject": tool,
        "type": "assay.tool.decision",
    }
    content_hash = sha256(orjson.dumps(covered, option=_SORTED)).hexdigest()
    envelope = covered | {
        "assaycontenthash": f"sha256:{content_hash}",
        "assaygit": "unknown",
        "assaypii": False,
        "assayproducer": "assay-stream",
        "assayproducerversion": version,
        "assaysecrets": False,
        "id": sha256(orjson.dumps([event["source"], event["id"]])).hexdigest(),
        "source": "urn:assay-stream",
        "time": event["time"],
    }
    timestamp_ms = int(datetime.fromisoformat(event["time"]).timestamp() * 1_000)
    return Evidence(payload["server_id"].encode(), orjson.dumps(envelope, option=_SORTED), timestamp_ms)
