r"""ArcSight Common Event Format, version 0 (Implementing ArcSight CEF, revision 25).

"Character Encoding" there says: the text is UTF-8; in the header ``|`` and ``\`` are escaped with a backslash, and
line ends are not allowed; in the extension ``=`` and ``\`` are escaped, a pipe is not, and line ends within a
value are written ``\n`` or ``\r``.
"""

from __future__ import annotations

import re
from typing import Any

from assay_stream.alerts.view import AlertView, view_of
from assay_stream.plugins import Format
from assay_stream.text.escaping import visible

_HEADER_CHARACTERS_MAX = {"version": 31, "kind": 1_023, "name": 512}
_MESSAGE_CHARACTERS_MAX = 1_023
_STRING_CHARACTERS_MAX = 4_000
"""Lengths of the CEF dictionary, of the text before it is escaped."""

_SEVERITY = {1: "1", 2: "3", 3: "5", 4: "8", 5: "10", 6: "10"}
"""OCSF severity to CEF's 0 to 10, which reads 0-3 low, 4-6 medium, 7-8 high, 9-10 very high."""

_OWN_KEYS = {"Indicators": "mcp_indicators", "ChangeCodes": "mcp_change_codes", "Attacks": "mcp_attacks"}

_SEVERITY_UNKNOWN = "Unknown"

_LINE_ENDS = re.compile("[\r\n]")


def to_cef(alert: dict[str, Any]) -> str:
    """Return the alert as one CEF line. ``cn1`` carries the OCSF severity, which has more levels than CEF's."""
    view = view_of(alert)
    header = "|".join(
        [
            "CEF:0",
            "assay-stream",
            "assay-stream",
            _header(view.version, _HEADER_CHARACTERS_MAX["version"]),
            _header(view.kind, _HEADER_CHARACTERS_MAX["kind"]),
            _header(view.title or view.kind, _HEADER_CHARACTERS_MAX["name"]),
            _SEVERITY.get(view.severity_id, _SEVERITY_UNKNOWN),
        ]
    )
    extension = " ".join(f"{key}={value}" for key, value in _extension(view))
    return f"{header}|{extension}"


def _extension(view: AlertView) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = [
        ("rt", str(view.time_ms)),
        ("start", str(view.first_seen_ms)),
        ("end", str(view.last_seen_ms)),
        ("cnt", str(view.count)),
        ("cat", _value(view.kind, _MESSAGE_CHARACTERS_MAX)),
        ("act", _value(view.activity, _MESSAGE_CHARACTERS_MAX)),
        ("outcome", _value(view.status, _MESSAGE_CHARACTERS_MAX)),
        ("msg", _value(view.message, _MESSAGE_CHARACTERS_MAX)),
        ("cn1", str(view.severity_id)),
        ("cn1Label", "severityId"),
        ("cn2", str(view.status_id)),
        ("cn2Label", "statusId"),
        ("cn3", str(view.activity_id)),
        ("cn3Label", "activityId"),
    ]
    if reason := view.fact("mcp_reason"):
        pairs.append(("reason", _value(reason, _MESSAGE_CHARACTERS_MAX)))
    if why := view.fact("mcp_why"):
        # A long name leaves no room for it in the message.
        pairs += [("flexString1", _value(why, _MESSAGE_CHARACTERS_MAX)), ("flexString1Label", "why")]
    strings = [
        ("uid", view.uid),
        ("serverId", view.fact("mcp_server_id")),
        # No alert is about both.
        ("itemName", item) if (item := view.fact("mcp_item_name")) else ("toolName", view.fact("mcp_tool_name")),
        ("digestBefore", view.fact("mcp_digest_before")),
        ("digestAfter", view.fact("mcp_digest_after")),
        ("observerId", view.fact("mcp_observer_id")),
    ]
    for number, (label, text) in enumerate(strings, start=1):
        if text:
            pairs += [(f"cs{number}", _value(text, _STRING_CHARACTERS_MAX)), (f"cs{number}Label", label)]
    # Revision 25, "User-Defined Extensions": vendor, product and what it is, as one word.
    for label, name in _OWN_KEYS.items():
        if view.fact(name):
            pairs.append((f"AssaystreamAlert{label}", _value(view.fact(name), _STRING_CHARACTERS_MAX)))
    return pairs


def _header(text: str, characters_max: int) -> str:
    one_line = visible(_LINE_ENDS.sub(" ", text))[:characters_max]
    return one_line.replace("\\", "\\\\").replace("|", "\\|")


def _value(text: str, characters_max: int) -> str:
    escaped = visible(text, keep="\r\n")[:characters_max].replace("\\", "\\\\").replace("=", "\\=")
    return escaped.replace("\n", "\\n").replace("\r", "\\r")


CEF = Format(media_type="text/plain; charset=utf-8", write=to_cef)
