"""Where two records of one alert differ, and what of it no log decides: the order of reading does.

A worker reads partitions side by side, and ticks by its clock. Three things rest on that, and on nothing else:

1. **Kinds whose findings come from several partitions.** Calls have partitions of their own; what is found of
   pins, signatures and keys shows in the list or in the decision, whichever is read second; two servers whose
   names look alike may stand in two partitions. Which finding is the last one, and how many there were when a
   record was written, follow from which was read first. What was found, how grave it is and whether it is open
   do not.
2. **The time of an end** by a decision or by a list: that of whichever was read second.
3. **A count that was held back** and written when its interval was over: a finding that arrives just then may be
   in it or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay_stream.alerts.life_cycle import is_round
from assay_stream.canonical.digest import canonicalize
from assay_stream.model.alert import Activity, Status
from assay_stream.model.kinds import Kind

_PLACE = frozenset(
    f"$.unmapped.{name}"
    for name in (
        "mcp_origin_topic",
        "mcp_origin_partition",
        "mcp_origin_offset",
        "mcp_observer_id",
        "mcp_snapshot_id",
    )
)
_PACE = frozenset(
    {
        "$.activity_id",
        "$.activity_name",
        "$.type_uid",
        "$.type_name",
        "$.time",
        "$.count",
        "$.status",
        "$.status_id",
        "$.finding_info.first_seen_time",
        "$.finding_info.last_seen_time",
        "$.unmapped.mcp_observers",
        "$.unmapped.mcp_observers_active",
        "$.unmapped.mcp_repeats",
    }
)
_COUNTED = frozenset(
    {"$.count", "$.finding_info.last_seen_time", "$.unmapped.mcp_observers", "$.unmapped.mcp_observers_active"}
)
_SPLIT = frozenset({"$.finding_info", "$.unmapped"})
_AT_TIMES = frozenset({"$.unmapped.mcp_resolved_by", "$.unmapped.mcp_suppressed_by"})

FROM_SEVERAL_PARTITIONS = {
    Kind.TOOL_SHADOWED: _PLACE | _PACE | {"$.unmapped.mcp_pin_observed"},
    Kind.PIN_MISMATCH: _PLACE | _PACE,
    Kind.UNPINNED_TOOL: _PLACE | _PACE,
    Kind.SIGNATURE_INVALID: _PLACE | _PACE,
    Kind.SIGNATURE_MISSING: _PLACE | _PACE,
    Kind.KEY_CHANGED: _PLACE | _PACE,
    Kind.KEY_REVOKED: _PLACE | _PACE,
    Kind.CALL_TO_UNLISTED_TOOL: _PLACE | _PACE,
    Kind.BLOCKED_TOOL_CALLED: _PLACE | _PACE,
}
"""Of the kinds whose findings come from several partitions, the members that follow the order of reading."""


def differing_members(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the members in which two alert records differ, as JSON paths, sorted.

    A member that ours do not have is named by the object that it stands in: its name is whatever somebody wrote.

    Args:
        one: a decoded alert record.
        other: that of the replay.
    """
    return tuple(sorted(set(_differing(one, other, "$"))))


def what_it_says(alert: Mapping[str, Any]) -> dict[str, Any]:
    """Return an alert record without its numbers, its moment and its place: what it says of what was found.

    Args:
        alert: a decoded alert record.
    """
    left_out = _PLACE | _PACE | _AT_TIMES | {"$.severity", "$.severity_id", "$.unmapped.mcp_pin_observed"}
    said: dict[str, Any] = {name: value for name, value in alert.items() if f"$.{name}" not in left_out}
    for name in ("finding_info", "unmapped"):
        if isinstance(alert.get(name), dict):
            said[name] = {k: v for k, v in alert[name].items() if f"$.{name}.{k}" not in left_out}
    return said


def is_on_the_way(alert: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    """Tell whether the numbers of a record can stand before those of the last one: they only grow.

    Args:
        alert: a decoded alert record.
        end: the last one of the same alert.
    """
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
    """Tell whether all that differs between two last records of an alert follows the order of reading.

    Args:
        alert: the recorded one.
        end: the replay's.
        paths: the members that differ.
    """
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
    """Return an alert record as another version of the software would have written it.

    Args:
        alert: a decoded alert record.
        version: that version.
    """
    changed = dict(alert)
    metadata = alert.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("product"), dict):
        changed["metadata"] = metadata | {"product": metadata["product"] | {"version": version}}
    return changed


def _stands(alert: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether an alert is closed, and whether it is suppressed."""
    return alert.get("activity_id") == Activity.CLOSE, alert.get("status_id") == Status.SUPPRESSED


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], path: str) -> Iterator[str]:
    for name in one.keys() | other.keys():
        member = f"{path}.{name}"
        mine, theirs = one.get(name), other.get(name)
        if name in one and name in other and canonicalize(mine) == canonicalize(theirs):
            continue
        if member in _SPLIT and isinstance(mine, dict) and isinstance(theirs, dict):
            yield from _differing(mine, theirs, member)
        elif name in other or member in _PLACE | _PACE | _AT_TIMES:
            yield member
        else:
            yield path
