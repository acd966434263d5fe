"""The columns of an export: their names, their types, and where in a record each value stands.

A column is only ever added, at the end. The last one holds the whole record as it was, so nothing is lost.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from assay_stream.canonical.digest import canonicalize
from assay_stream.export.input import Item, Kind, time_us_of

INT64_MAX = 2**63 - 1


class ColumnType(StrEnum):
    """What a column holds; everything may be null."""

    TEXT = "text"
    TIME = "time"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"
    JSON = "json"


class Column(NamedTuple):
    """One column.

    Args:
        name: its name.
        type: what it holds. A time is microseconds since the epoch; of JSON the canonical text.
        path: the members that lead to its value in a record; empty for the record itself.
    """

    name: str
    type: ColumnType
    path: tuple[str, ...]


def _columns(type_: ColumnType, prefix: str, *names: str) -> tuple[Column, ...]:
    """Columns that are named as the member they come from, or ``name=member.member``."""
    made = []
    for text in names:
        name, _, path = text.partition("=")
        made.append(Column(name, type_, tuple(f"{prefix}{path or name}".split("."))))
    return tuple(made)


_T, _I, _F = ColumnType.TEXT, ColumnType.INTEGER, ColumnType.FLAG

COLUMNS: dict[Kind, tuple[Column, ...]] = {
    Kind.EVIDENCE: (
        *_columns(ColumnType.TIME, "", "time"),
        *_columns(_T, "", "type", "id", "source", "run_id=assayrunid"),
        *_columns(_I, "", "run_seq=assayseq"),
        *_columns(_T, "", "content_hash=assaycontenthash", "producer=assayproducer"),
        *_columns(_T, "", "producer_version=assayproducerversion", "producer_git=assaygit", "traceparent"),
        *_columns(_T, "data.", "server_id", "observer_id", "tool_name=tool", "tool_call_id", "trace_id", "profile"),
        *_columns(_T, "data.", "decision", "reason_code", "unbound_reason", "tool_definition_digest"),
        *_columns(_T, "data.", "binding_scope=binding.scope", "binding_snapshot_id=binding.snapshot_id"),
        *_columns(_T, "data.", "full_digest=binding.full_digest", "catalogue_digest=binding.catalogue_digest"),
        *_columns(_F, "data.", "server_scoped=binding.server_scoped"),
        *_columns(_T, "data.", "pin_status=pin.status", "pin_scheme=pin.scheme", "pin_expected=pin.expected"),
        *_columns(_T, "data.", "pin_observed=pin.observed", "pin_enforcement=pin.enforcement"),
        *_columns(_T, "data.", "pin_action=pin.action"),
        *_columns(_F, "data.", "signature_valid=signature.valid"),
        *_columns(_T, "data.", "signature_error_code=signature.error_code", "signature_domain=signature.domain"),
        *_columns(_T, "data.", "policy_digest", "tool_id", "tool_version", "side_effect", "idempotency"),
        *_columns(_T, "data.", "transport", "actor_kind=actor.kind", "args_hash", "result_hash"),
        *_columns(_F, "data.", "ok"),
        *_columns(_T, "data.", "error_code=error.code"),
        *_columns(ColumnType.NUMBER, "data.", "duration_ms=timing.duration_ms"),
        *_columns(_T, "data.", "origin_topic=origin.topic"),
        *_columns(_I, "data.", "origin_partition=origin.partition", "origin_offset=origin.offset"),
        Column("record", ColumnType.JSON, ()),
    ),
    Kind.ALERTS: (
        *_columns(ColumnType.TIME, "", "time"),
        *_columns(_T, "finding_info.", "uid"),
        *_columns(_T, "unmapped.mcp_", "kind=finding_kind"),
        *_columns(_T, "finding_info.", "title"),
        *_columns(_T, "", "message", "severity"),
        *_columns(_I, "", "severity_id"),
        *_columns(_T, "", "activity=activity_name", "status"),
        *_columns(_I, "", "count"),
        *_columns(ColumnType.TIME, "finding_info.", "first_seen=first_seen_time", "last_seen=last_seen_time"),
        *_columns(_T, "unmapped.mcp_", "server_id", "tool_name", "observer_id", "snapshot_id", "digest_before"),
        *_columns(_T, "unmapped.mcp_", "digest_after", "changed_fields", "change_codes", "signs", "reason"),
        *_columns(_T, "unmapped.mcp_", "renamed_to", "pin_scheme", "pin_expected", "pin_observed"),
        *_columns(_T, "unmapped.mcp_", "pin_enforcement", "pin_action", "resolved_by", "suppressed_by"),
        *_columns(_I, "unmapped.mcp_", "observers", "observers_active"),
        *_columns(_T, "unmapped.mcp_", "origin_topic"),
        *_columns(_I, "unmapped.mcp_", "origin_partition", "origin_offset"),
        Column("record", ColumnType.JSON, ()),
    ),
    Kind.DEFINITIONS: (
        *_columns(_T, "", "full_digest"),
        *_columns(_T, "definition.", "name", "title", "description"),
        *_columns(ColumnType.JSON, "definition.", "input_schema=inputSchema", "output_schema=outputSchema"),
        *_columns(ColumnType.JSON, "definition.", "annotations"),
        *_columns(ColumnType.JSON, "", "projection", "definition"),
        Column("record", ColumnType.JSON, ()),
    ),
}
"""The columns of each dataset, in order."""

Value = str | int | float | bool | None


def row_of(item: Item) -> dict[str, Value]:
    """Return a record as a row. A value of another type than its column's is null; the record has it.

    Args:
        item: the record.
    """
    return {column.name: _value(item, column) for column in COLUMNS[item.kind]}


def _value(item: Item, column: Column) -> Value:
    if not column.path:
        return item.raw.decode()
    value: Any = item.content
    for name in column.path:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return _READ[column.type](value)


def _text(value: Any) -> Value:
    return value if isinstance(value, str) else None


def _time(value: Any) -> Value:
    # Alerts have milliseconds since the epoch, envelopes a text.
    whole = _integer(value)
    time_us = whole * 1_000 if isinstance(whole, int) else time_us_of(value)
    return time_us if time_us is not None and abs(time_us) <= INT64_MAX else None


def _integer(value: Any) -> Value:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and abs(value) <= INT64_MAX else None


def _number(value: Any) -> Value:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _flag(value: Any) -> Value:
    return value if isinstance(value, bool) else None


def _json(value: Any) -> Value:
    return canonicalize(value).decode()


_READ = {
    ColumnType.TEXT: _text,
    ColumnType.TIME: _time,
    ColumnType.INTEGER: _integer,
    ColumnType.NUMBER: _number,
    ColumnType.FLAG: _flag,
    ColumnType.JSON: _json,
}
