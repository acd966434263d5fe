"""Definition records: what lets a reviewer see a definition."""

from __future__ import annotations

from typing import Any

from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.model.record import Output, Record, Role
from assay_stream.schemes import assay


def definition_record(record: Record, full: str, definition: dict[str, Any]) -> Output:
    """Return the record of a definition: the same bytes whoever observed it, and as whatever it was listed.

    Args:
        record: the input record that it was seen in.
        full: its full digest.
        definition: a tool, a prompt or a resource template as received.
    """
    value: dict[str, Any] = {"full_digest": full, "definition": definition}
    try:
        value["projection"] = assay.definition_projection(definition, server_id=None)
        label = "definition"
    except InputError:
        label = "definition:not_digestible"
    return Output(
        role=Role.DEFINITIONS,
        key=full.encode(),
        value=canonicalize(value),
        timestamp_ms=record.timestamp_ms,
        label=label,
    )
