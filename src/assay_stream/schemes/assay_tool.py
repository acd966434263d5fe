"""Assay (Rul1an/assay): tool definition digest v1, identity hashes, payload of ``assay.tool.decision``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from assay_stream.canonical.digest import Digest, jcs_digest
from assay_stream.errors import InputError

Tool = Mapping[str, Any]

CLUSTER_CONSTANTS = {
    "tool_definition_digest_alg": "sha256",
    "tool_definition_canonicalization": "jcs:mcp_tool_definition.v1",
    "tool_definition_schema": "assay.mcp.tool-definition.snapshot.v1",
    "tool_definition_source": "mcp.tools/list",
}
"""The closed values of the tool definition cluster (P56b)."""

POLICY_CLUSTER_CONSTANTS = {
    "policy_snapshot_digest_alg": "sha256",
    "policy_snapshot_canonicalization": "jcs:mcp_policy",
    "policy_snapshot_schema": "assay.mcp.policy.snapshot.v1",
}
"""The closed values of the policy snapshot cluster (P56a)."""

CLUSTER_DIGEST = r"sha256:(?:[0-9a-f]{64}|(?![0-9A-Fa-f]{64}$)[0-9A-Za-z._-]+)"
"""How a digest in a cluster is written: Assay's own contract test has ``sha256:policy123`` beside real ones.

So a label is let through, of characters that no body is made of; 64 hexadecimal digits are a digest, in lowercase
only.
"""

_CLUSTER_DIGEST = re.compile(CLUSTER_DIGEST)

TOOL_DRIFT = "P_TOOL_DRIFT"
"""Assay's reason code for a call to a tool whose identity is not the pinned one."""

TOOL_UNOBSERVED = "P_TOOL_UNOBSERVED"
"""Assay's reason code for a call to a pinned tool of which no observation is in force."""

# Unicode White_Space, which is what Rust's str::trim takes. Python's str.strip() also takes U+001C..U+001F.
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def trim(text: str) -> str:
    """Strip white space as Rust's ``str::trim`` does."""
    return text.strip(_WHITE_SPACE)


def definition_projection(tool: Tool, *, server_id: str | None) -> dict[str, Any]:
    """Return the bounded projection of a tool that the definition digest v1 covers (P56b).

    Raises:
        InputError: ``tool_name_missing`` or ``input_schema_not_object``; there is no digest then.
    """
    projection: dict[str, Any] = {"name": name_of(tool)}
    description = tool.get("description")
    if isinstance(description, str) and (trimmed := trim(description)):
        projection["description"] = trimmed
    present, schema = first_present(tool, "inputSchema", "input_schema")
    if present:
        if not isinstance(schema, dict):
            raise InputError("input_schema_not_object", "the input schema must be a JSON object", path="$.inputSchema")
        projection["input_schema"] = schema
    if server_id is not None and (scope := trim(server_id)):
        projection["server_id"] = scope
    return projection


def definition_digest(tool: Tool, *, server_id: str | None) -> Digest:
    """Return the tool definition digest v1 (scheme ``assay.v1``).

    Raises:
        InputError: as ``definition_projection``.
    """
    return jcs_digest(definition_projection(tool, server_id=server_id))


def check_definition_cluster(payload: Mapping[str, Any]) -> str | None:
    """Check a tool definition cluster and return its digest, or ``None`` if it is absent.

    Raises:
        InputError: ``half_definition_cluster`` or ``bad_definition_cluster``.
    """
    return _check_cluster(payload, "tool_definition_digest", CLUSTER_CONSTANTS, "definition")


def check_policy_cluster(payload: Mapping[str, Any]) -> str | None:
    """Check a policy snapshot cluster and return its digest, or ``None`` if it is absent.

    A ``policy_digest`` alone is legal; with the cluster it must be the cluster's digest.

    Raises:
        InputError: ``half_policy_cluster`` or ``bad_policy_cluster``.
    """
    digest = _check_cluster(payload, "policy_snapshot_digest", POLICY_CLUSTER_CONSTANTS, "policy")
    if digest is None:
        return None
    if payload.get("policy_digest") is None:
        raise InputError("half_policy_cluster", "policy_digest must go with the policy snapshot cluster")
    if payload["policy_digest"] != digest:
        raise InputError("bad_policy_cluster", "policy_snapshot_digest must equal policy_digest")
    return digest


def _check_cluster(
    payload: Mapping[str, Any], digest_field: str, constants: Mapping[str, str], name: str
) -> str | None:
    fields = (digest_field, *constants)
    missing = [field for field in fields if payload.get(field) is None]
    if len(missing) == len(fields):
        return None
    if missing:
        raise InputError(
            f"half_{name}_cluster", f"the cluster is whole or absent: add {', '.join(missing)} or drop the rest"
        )
    for field, wanted in constants.items():
        if payload[field] != wanted:
            raise InputError(f"bad_{name}_cluster", f"{field} must be {wanted}", path=f"$.{field}")
    digest = payload[digest_field]
    if not isinstance(digest, str) or not _CLUSTER_DIGEST.fullmatch(digest):
        raise InputError(
            f"bad_{name}_cluster",
            f"{digest_field} is written sha256:<64 lowercase hexadecimal digits>",
            path=f"$.{digest_field}",
        )
    return digest


def schema_hash(tool: Tool) -> str:
    """Return the schema hash of the tool identity, bare hexadecimal.

    Raises:
        InputError: ``tool_name_missing``.
    """
    name_of(tool)
    _, schema = first_present(tool, "inputSchema", "input_schema")
    return jcs_digest(schema).hex


def meta_hash(tool: Tool) -> str:
    """Return the description hash of the tool identity, bare hexadecimal.

    Raises:
        InputError: ``tool_name_missing`` or ``lone_surrogate``.
    """
    name_of(tool)
    description = tool.get("description")
    text = description if isinstance(description, str) else ""
    try:
        return sha256(text.encode()).hexdigest()
    except UnicodeEncodeError:
        raise InputError("lone_surrogate", "an unpaired surrogate is not valid Unicode", path="$.description") from None


def content_hash(event: Mapping[str, Any]) -> Digest:
    """Return the content hash of an evidence envelope.

    Raises:
        InputError: ``missing_field``, or as ``canonicalize``.
    """
    required = ("specversion", "type", "datacontenttype", "data")
    for name in required:
        if name not in event:
            raise InputError("missing_field", "the content hash covers this field: add it", path=f"$.{name}")
    return jcs_digest({name: event[name] for name in (*required, "subject") if name in event})


def name_of(tool: Tool) -> str:
    """Return a tool's name, untrimmed.

    Raises:
        InputError: ``tool_name_missing`` if it is absent, blank or not a string.
    """
    name = tool.get("name")
    if not isinstance(name, str) or not trim(name):
        raise InputError("tool_name_missing", "a tool needs a name that is not blank", path="$.name")
    return name


def first_present(tool: Tool, *spellings: str) -> tuple[bool, Any]:
    """Return whether a field is present under any of its spellings, and its value (``None`` if absent)."""
    for spelling in spellings:
        if spelling in tool:
            return True, tool[spelling]
    return False, None


DECISION_TYPE = "assay.tool.decision"
DECISIONS = ("allow", "deny", "requires_approval", "error")
"""The contract's decisions, and ``error``, which runtime logs have."""


def check_payload(payload: Mapping[str, Any], *, at: str = "$") -> None:
    """Check the payload of one tool decision, which stands at a JSON path of the received event.

    Raises:
        InputError: for a missing or invalid field, or a cluster that is only partly present.
    """
    for name in ("tool", "decision", "reason_code"):
        value = payload.get(name)
        if value is None:
            raise InputError("missing_field", "the field is required: add it", path=f"{at}.{name}")
        if not isinstance(value, str):
            raise InputError("wrong_type", "must be a string", path=f"{at}.{name}")
        if not trim(value):
            raise InputError("empty_value", "the text must not be blank", path=f"{at}.{name}")
    if payload["decision"] not in DECISIONS:
        raise InputError("unknown_value", f"must be one of {', '.join(DECISIONS)}", path=f"{at}.decision")
    try:
        check_policy_cluster(payload)
        check_definition_cluster(payload)
    except InputError as error:
        path = at + error.path.removeprefix("$")
        raise InputError(error.code, error.message, path=path) from None


def hash_mismatch() -> InputError:
    text = "the hash does not belong to this content: one of them was altered"
    return InputError("content_hash_mismatch", text, path="$.assaycontenthash")


def check_envelope(event: Mapping[str, Any]) -> None:
    """Check one evidence record: its content hash, if present, and the payload of a tool decision.

    Raises:
        InputError: ``content_hash_mismatch``, or as ``check_payload`` and ``content_hash``.
    """
    if event.get("specversion") != "1.0":
        raise InputError("unknown_value", "must be 1.0", path="$.specversion")
    claimed = event.get("assaycontenthash")
    if claimed is not None and claimed != str(content_hash(event)):
        raise hash_mismatch()
    if event.get("type") != DECISION_TYPE and claimed is None:
        raise InputError(
            "unknown_value", f"must be {DECISION_TYPE}, or a record with a content hash to check", path="$.type"
        )
    if event.get("type") == DECISION_TYPE:
        data = event.get("data")
        if not isinstance(data, Mapping):
            raise InputError("wrong_type", "must be an object", path="$.data")
        check_payload(data, at="$.data")
