"""OCSF, class 2004: the record with techniques, evidence and resources beside it, in canonical form, on one line.

1.8.0 is the default. In 1.9.0 the profile ``record_integrity`` carries the fingerprint of the event.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from assay_stream.alerts.view import object_in, view_of
from assay_stream.canonical.digest import canonicalize
from assay_stream.plugins import Format

_EVIDENCE = (
    "mcp_digest_before",
    "mcp_digest_after",
    "mcp_changed_fields",
    "mcp_change_codes",
    "mcp_indicators",
    "mcp_origin_topic",
    "mcp_origin_partition",
    "mcp_origin_offset",
)


def to_ocsf(alert: dict[str, Any]) -> str:
    """Return the alert as one line of OCSF 1.8.0, every member of the record kept.

    Raises:
        InputError: ``not_canonicalizable`` if a member cannot be written (RFC 8785).
    """
    return canonicalize(_completed(alert)).decode()


def to_ocsf_1_9(alert: dict[str, Any]) -> str:
    """Return the alert as one line of OCSF 1.9.0 with ``record_integrity``.

    The fingerprint is of the event's canonical form (JCS) without the fingerprint itself, as ``attestation`` has it.
    There is no signature: it shows accidental alteration, not authorship. The seal proves the record.

    Raises:
        InputError: ``not_canonicalizable`` if a member cannot be written (RFC 8785).
    """
    event = _completed(alert)
    event["metadata"] = object_in(alert, "metadata") | {"version": "1.9.0", "profiles": ["record_integrity"]}
    attestation: dict[str, Any] = {"authority_uid": "assay-stream"}
    event["attestation_list"] = [attestation]
    attestation["fingerprint"] = {
        "algorithm": "SHA-256",
        "algorithm_id": 3,
        "encoding": "Hex",
        "encoding_id": 1,
        "serialization": "JCS",
        "serialization_id": 2,
        "value": sha256(canonicalize(event)).hexdigest(),
    }
    return canonicalize(event).decode()


def _completed(alert: dict[str, Any]) -> dict[str, Any]:
    view = view_of(alert)
    added: dict[str, Any] = {}
    server, (what, name) = view.server_id, view.subject
    if server:
        added["resources"] = [{"type": "MCP server", "uid": server, "name": server}]
    if server and name:
        added["resources"].append({"type": f"MCP {what}", "uid": f"{server}/{name}", "name": name})
    data = {name.removeprefix("mcp_"): view.flat[name] for name in _EVIDENCE if name in view.flat}
    if data:
        named = {"uid": view.fact("mcp_snapshot_id")} if view.fact("mcp_snapshot_id") else {}
        added["evidences"] = [{"name": "mcp." + view.kind, "data": data} | named]
    completed = added | alert
    if view.attacks:
        completed["finding_info"] = {"attacks": view.attacks} | alert["finding_info"]
    if "mcp_attacks" in view.flat:
        completed["unmapped"] = object_in(alert, "unmapped") | {"mcp_attacks": view.flat["mcp_attacks"]}
    return completed


OCSF = Format(media_type="application/json", write=to_ocsf)
OCSF_1_9 = Format(media_type="application/json", write=to_ocsf_1_9)
