"""Shared by the rows of all reports."""

from datetime import UTC, datetime, timedelta
from typing import Any

from assay_stream.model.control_facts import KeyDecision, Pin, Policy

Row = dict[str, Any]
OperatorDecision = Pin | Policy | KeyDecision

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(time_us: int) -> str:
    """Format an event time, microseconds since the epoch."""
    return (_EPOCH + timedelta(microseconds=time_us)).isoformat().replace("+00:00", "Z")


def present(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def decision_row(fact: OperatorDecision) -> Row:
    return {"author": fact.author, "reason": fact.reason, "since": time_text(fact.time_us)}
