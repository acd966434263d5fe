"""Where two records of one alert differ, and what of it follows from the order of reading and not from the logs.

A worker reads partitions side by side, and ticks by its clock. Three things rest on that alone:

1. **Kinds whose findings come from several partitions.** Calls have partitions of their own; a finding about pins,
   signatures or keys appears with the list or the decision, whichever is read second; two servers whose names look
   alike may be in two partitions. Which finding is the last, and how many there were when a record was written, follow
   from which was read first. What was found, how severe it is and whether it is open do not.
2. **The time of an end** by a decision or by a list: that of whichever was read second.
3. **A count that was held back** and written when its interval was over: a finding that arrives just then may or may
   not be in it.
4. **Which shadowed names are folded**, where several servers held the names: the first that are found stand alone.
5. **When a reason of such a kind joined** an alert about the same definition: a record on the way may lack it. Which
   reasons there are at the end does not follow from the order.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from assay_stream.alerts.life_cycle import is_round
from assay_stream.model.alert import Activity, AlertStatus
from assay_stream.model.finding import PIN_FIELDS
from assay_stream.model.finding_topic import LIST_MARK
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

_FOLDED = frozenset(
    {"$.message", "$.finding_info.related_events", "$.finding_info.related_events_count", "$.severity", "$.severity_id"}
).union(f"$.unmapped.mcp_folded{part}" for part in ("", "_by_severity"))

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


_PIN_NAMES = frozenset(f"mcp_pin_{name}" for name in PIN_FIELDS)


def reasons_in(alert: Mapping[str, Any]) -> list[str]:
    reasons = alert["unmapped"].get("mcp_reasons")
    return reasons.split(",") if isinstance(reasons, str) else []


def is_name_fold(alert: Mapping[str, Any]) -> bool:
    """Tell whether an alert is what shadowed names were folded into."""
    return alert["finding_info"]["types"] == [Kind.ALERTS_FOLDED] and LIST_MARK in str(
        alert["unmapped"].get("mcp_reason")
    )


def _from_several(reasons: Iterable[str]) -> list[str]:
    return [reason for reason in reasons if reason.partition(":")[0] in FROM_SEVERAL_PARTITIONS]


def differing_members(one: Mapping[str, Any], replayed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the members in which a decoded alert record differs from one of a replay, as JSON paths, sorted."""
    ours = _PLACE | _PACE | _AT_TIMES
    found = differing(one, replayed, split=_SPLIT, is_ours=lambda parent, name: f"{parent}.{name}" in ours)
    return tuple(sorted(found))


def what_it_says(alert: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decoded alert record without counts, times, places and what may join it later: what was found."""
    alert = _without_joined(alert)
    left_out = _PLACE | _PACE | _AT_TIMES | {"$.severity", "$.severity_id", "$.unmapped.mcp_pin_observed"}
    left_out |= _FOLDED if is_name_fold(alert) else frozenset()
    said: dict[str, Any] = {name: value for name, value in alert.items() if f"$.{name}" not in left_out}
    for name in ("finding_info", "unmapped"):
        if isinstance(alert.get(name), dict):
            said[name] = {k: v for k, v in alert[name].items() if f"$.{name}.{k}" not in left_out}
    return said


def _without_joined(alert: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record without the reasons of kinds that come from several partitions, where it is at one about them."""
    info, reasons = alert["finding_info"], reasons_in(alert)
    joined = _from_several(reasons)
    message, left = alert.get("message"), [reason for reason in reasons if reason not in joined]
    if not joined or not isinstance(message, str) or info["types"] != _types(info["types"][0], reasons):
        return alert
    for reason in joined:
        if f"; {reason}" not in message:
            return alert
        message = message.replace(f"; {reason}", "", 1)
    flat = {name: value for name, value in alert["unmapped"].items() if name not in {"mcp_reasons", *_PIN_NAMES}}
    bare = {"message": message, "finding_info": info | {"types": _types(info["types"][0], left)}}
    return {**alert, **bare, "unmapped": flat | ({"mcp_reasons": ",".join(left)} if left else {})}


def _types(kind: str, reasons: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([kind, *(reason.partition(":")[0] for reason in reasons)]))


def is_on_the_way(alert: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    """Tell whether the counts of a record can precede those of the last one of its alert: they only grow.

    Where findings come from several partitions, which of them are counted when is no matter.
    """
    info, info_at_end = alert["finding_info"], end["finding_info"]
    try:
        if alert["severity_id"] > end["severity_id"] or alert["count"] < 1:
            return False
        return bool(_members_of_order(alert, end)) or bool(
            alert["count"] <= end["count"]
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
    of_order = _members_of_order(alert, end)
    if of_order:
        return differing <= of_order
    if end["activity_id"] == Activity.CLOSE and differing <= {"$.time"}:
        return True
    held_back = not is_round(end["count"]) and is_on_the_way(alert, end)
    return held_back and differing <= _COUNTED | _PLACE


def _members_of_order(alert: Mapping[str, Any], end: Mapping[str, Any]) -> frozenset[str]:
    """Return which members of an alert follow the order of reading; none where all findings stand in one partition."""
    kind = end["finding_info"]["types"][0]
    if is_name_fold(end):
        return _PLACE | _PACE | _FOLDED
    if kind in FROM_SEVERAL_PARTITIONS:
        return FROM_SEVERAL_PARTITIONS[Kind(kind)]
    if not _from_several([*reasons_in(alert), *reasons_in(end)]):
        return frozenset()
    # What is said of a pin stands while its reason does; another value is another decision.
    flats = alert["unmapped"], end["unmapped"]
    absent = {f"$.unmapped.{name}" for name in _PIN_NAMES if any(flat.get(name) is None for flat in flats)}
    return _PLACE | _PACE | absent


def with_version(alert: Mapping[str, Any], version: str) -> dict[str, Any]:
    changed = dict(alert)
    metadata = alert.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("product"), dict):
        changed["metadata"] = metadata | {"product": metadata["product"] | {"version": version}}
    return changed


def _stands(alert: Mapping[str, Any]) -> tuple[bool, bool]:
    return alert.get("activity_id") == Activity.CLOSE, alert.get("status_id") == AlertStatus.SUPPRESSED
