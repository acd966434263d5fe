"""Assay (Rul1an/assay): the stable payload of ``assay.tool.decision``, and the envelope around it."""

from collections.abc import Mapping
from typing import Any

from assay_stream.errors import InputError
from assay_stream.schemes.assay.tool import check_definition_cluster, check_policy_cluster, content_hash, trim

DECISION_TYPE = "assay.tool.decision"
DECISIONS = ("allow", "deny", "requires_approval", "error")
"""The contract's decisions, and ``error``, which runtime logs have."""


def check_payload(payload: Mapping[str, Any], *, at: str = "$") -> None:
    """Check the payload of one tool decision.

    Args:
        at: JSON path of the payload in the received event.

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


def check_envelope(event: Mapping[str, Any]) -> None:
    """Check one evidence record: its content hash, if present, and the payload of a tool decision.

    Raises:
        InputError: ``content_hash_mismatch``, or as ``check_payload`` and ``content_hash``.
    """
    if event.get("specversion") != "1.0":
        raise InputError("unknown_value", "must be 1.0", path="$.specversion")
    claimed = event.get("assaycontenthash")
    if claimed is not None and claimed != str(content_hash(event)):
        raise InputError(
            "content_hash_mismatch",
            "the hash does not belong to this content: one of them was altered",
            path="$.assaycontenthash",
        )
    if event.get("type") != DECISION_TYPE and claimed is None:
        raise InputError(
            "unknown_value", f"must be {DECISION_TYPE}, or a record with a content hash to check", path="$.type"
        )
    if event.get("type") == DECISION_TYPE:
        data = event.get("data")
        if not isinstance(data, Mapping):
            raise InputError("wrong_type", "must be an object", path="$.data")
        check_payload(data, at="$.data")
