"""Names of fields before 0.1.0: readers accept them, so that archives and topics written under them stay readable."""

from typing import Any

OLD_NAMES: dict[str, dict[str, str]] = {
    "AlertFlat": {"mcp_signs": "mcp_indicators"},
    "AlertState": {"told": "reported"},
    "FoldedMembers": {"gravest": "most_severe"},
    "Finding": {"signs": "indicators"},
}
"""By class of records: old name to the name of today."""


def renamed(record: str, content: dict[str, Any]) -> dict[str, Any]:
    old_names = OLD_NAMES.get(record)
    if old_names is None or old_names.keys().isdisjoint(content):
        return content
    return {old_names.get(name, name): value for name, value in content.items()}


def renamed_alert(alert: dict[str, Any]) -> dict[str, Any]:
    """Return a decoded alert under the names of today."""
    flat = alert.get("unmapped")
    if not isinstance(flat, dict) or OLD_NAMES["AlertFlat"].keys().isdisjoint(flat):
        return alert
    return alert | {"unmapped": renamed("AlertFlat", flat)}


def has_old_names(alert: bytes) -> bool:
    """Return whether an alert, as it was written, may hold names that have changed since."""
    return any(f'"{name}":'.encode() in alert for name in OLD_NAMES["AlertFlat"])
