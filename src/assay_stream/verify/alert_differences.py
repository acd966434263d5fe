"""Where two records of one alert differ, and what of it follows from the order of reading and not from the logs.

A worker reads partitions side by side, and ticks by its clock. Three things rest on that alone:

1. **Kinds whose findings come from several partitions.** Calls have partitions of their own; a finding about pins,
   signatures or keys appears with the list or the decision, whichever is read second; two servers whose names look
   alike may be in two partitions. Which finding is the last, and how many there were when a record was written, follow
   from which was read first. What was found, how severe it is and whether it is open do not.
2. **The time of an end** by a decision or by a list: that of whichever was read second.
3. **A count that was held back** and written when its interval was over: a finding that arrives just then may or may
   not be in it.
"""

from collections.abc import Mapping
from typing import Any

from assay_stream.alerts.life_cycle import is_round
from assay_stream.model.alert import Activity, Status
from assay_stream.model.kinds import Kind
from assay_stream.verify.differences import differing

_PLACE = frozenset(
    f"$.unmapped.mcp_{name}"
    for name in ("origin_topic", "origin_partition", "origin_offset", "observer_id", "snapshot_id")
)
_PACE = frozenset(
    f"$.{name}"
    for name in (
        *("activity_id", "activity_name", "type_uid", "type_name", "time", "count", "status", "status_id"),
        *("finding_info.first_seen_time", "finding_info.last_seen_time"),
        *("unmapped.mcp_observers", "unmapped.mcp_observers_active", "unmapped.mcp_repeats"),
    )
)
_COUNTED = frozenset(
    {"$.count", "$.finding_info.last_seen_time", "$.unmapped.mcp_observers", "$.unmapped.mcp_observers_active"}
)
_SPLIT = frozenset({"$.finding_info", "$.unmapped"})
_AT_TIMES = frozenset({"$.unmapped.mcp_resolved_by", "$.unmapped.mcp_suppressed_by"})

FROM_SEVERAL_PARTITIONS = {
    **dict.fromkeys(
        (
            Kind.PIN_MISMATCH,
            Kind.UNPINNED_TOOL,
            Kind.SIGNATURE_INVALID,
            Kind.SIGNATURE_MISSING,
            Kind.KEY_CHANGED,
            Kind.KEY_REVOKED,
            Kind.CALL_TO_UNLISTED_TOOL,
            Kind.BLOCKED_TOOL_CALLED,
        ),
        _PLACE | _PACE,
    ),
    Kind.TOOL_SHADOWED: _PLACE | _PACE | {"$.unmapped.mcp_pin_observed"},
}
"""The members that follow the order of reading, of kinds whose findings come from several partitions."""


def differing_members(one: Mapping[str, Any], replayed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the members in which a decoded alert record differs from one of a replay, as JSON paths, sorted."""
    ours = _PLACE | _PACE | _AT_TIMES
    found = differing(one, replayed, split=_SPLIT, is_ours=lambda parent, name: f"{parent}.{name}" in ours)
    return tuple(sorted(found))


def what_it_says(alert: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decoded alert record without its counts, times and places: what was found."""
    left_out = _PLACE | _PACE | _AT_TIMES | {"$.severity", "$.severity_id", "$.unmapped.mcp_pin_observed"}
    said: dict[str, Any] = {name: value for name, value in alert.items() if f"$.{name}" not in left_out}
    for name in ("finding_info", "unmapped"):
        if isinstance(alert.get(name), dict):
            said[name] = {k: v for k, v in alert[name].items() if f"$.{name}.{k}" not in left_out}
    return said


def is_on_the_way(alert: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    """Tell whether the counts of a record can precede those of the last one of its alert: they only grow."""
    info, info_at_end = alert["finding_info"], end["finding_info"]
    try:
        return bool(
            1 <= alert["count"] <= end["count"]
            and alert["severity_id"] <= end["severity_id"]
            and info_at_end["first_seen_time"] <= info["first_seen_time"] <= info["last_seen_time"]
            and info["last_seen_time"] <= info_at_end["last_seen_time"]
            and alert["unmapped"]["mcp_observers"] <= end["unmapped"]["mcp_observers"]
        )
    except (KeyError, TypeError):
        return False


def follows_order(alert: Mapping[str, Any], end: Mapping[str, Any], paths: tuple[str, ...]) -> bool:
    """Tell whether all that differs between two last records of an alert follows the order of reading."""
    differing = set(paths)
    if not differing or _stands(alert) != _stands(end):
        return False
    kind = end["finding_info"]["types"][0]
    if kind in FROM_SEVERAL_PARTITIONS:
        return differing <= FROM_SEVERAL_PARTITIONS[Kind(kind)]
    if end["activity_id"] == Activity.CLOSE and differing <= {"$.time"}:
        return True
    held_back = not is_round(end["count"]) and is_on_the_way(alert, end)
    return held_back and differing <= _COUNTED | _PLACE


def with_version(alert: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return a decoded alert record as another version of the software would have written it."""
    changed = dict(alert)
    metadata = alert.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("product"), dict):
        changed["metadata"] = metadata | {"product": metadata["product"] | {"version": version}}
    return changed


def _stands(alert: Mapping[str, Any]) -> tuple[bool, bool]:
    return alert.get("activity_id") == Activity.CLOSE, alert.get("status_id") == Status.SUPPRESSED
