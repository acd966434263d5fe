"""Alerts as syslog messages (RFC 5424), and their frames on a stream (RFC 6587, RFC 5425)."""

from __future__ import annotations

import re

from assay_stream.alerts.formats.view import AlertView
from assay_stream.text.escaping import visible
from assay_stream.text.times import time_ms_text

FACILITY_SECURITY = 4
"""``security/authorization messages`` (RFC 5424, table 1)."""

EXAMPLE_ENTERPRISE = 32473
"""The enterprise number reserved for documentation (RFC 5612); set your own where it matters."""

DATAGRAM_BYTES_MAX = 65_507
"""Capacity of one UDP datagram over IPv4 (RFC 5426, 3.2)."""

_SEVERITY = {1: 6, 2: 5, 3: 4, 4: 3, 5: 2, 6: 1}
"""OCSF severity to syslog's (RFC 5424, table 2): informational, notice, warning, error, critical, alert."""

_BOM = b"\xef\xbb\xbf"
_NOT_PRINTABLE = re.compile(r"[^\x21-\x7e]")
_HOST_CHARACTERS_MAX = 255
_MSGID_CHARACTERS_MAX = 32
_PARAM_SPECIAL = re.compile(r'["\\\]]')


def syslog_message(view: AlertView, body: str, *, host: str, enterprise: int = EXAMPLE_ENTERPRISE) -> bytes:
    """Return one alert as a SYSLOG-MSG (RFC 5424, 6).

    A body beyond US-ASCII is marked as UTF-8 by a byte order mark (6.4). One within it is the same in every
    encoding, and goes without.

    Args:
        body: the alert in the format of the receiver.
        host: HOSTNAME; an invalid one becomes the NILVALUE.
        enterprise: private enterprise number of the structured data's id.
    """
    priority = FACILITY_SECURITY * 8 + _SEVERITY.get(view.severity_id, 5)
    hostname = _header_field(host, _HOST_CHARACTERS_MAX)
    message_id = _header_field(view.kind, _MSGID_CHARACTERS_MAX)
    header = f"<{priority}>1 {time_ms_text(view.time_ms)} {hostname} assay-stream - {message_id} "
    facts = [
        ("uid", view.uid),
        ("kind", view.kind),
        ("count", str(view.count)),
        ("activity", str(view.activity_id)),
        ("severity", str(view.severity_id)),
        ("server", view.fact("mcp_server_id")),
        ("tool", view.fact("mcp_tool_name")),
        ("item", view.fact("mcp_item_name")),
    ]
    # Escaped (6.3.3), and on one line for line-based readers.
    escaped = ((name, _PARAM_SPECIAL.sub(r"\\\g<0>", visible(value))) for name, value in facts if value)
    parameters = "".join(f' {name}="{value}"' for name, value in escaped)
    structured = f"[alert@{enterprise}{parameters}] "
    return (header + structured).encode("utf-8") + (b"" if body.isascii() else _BOM) + body.encode("utf-8")


def octet_counted(message: bytes) -> bytes:
    """Return a message as a frame of a stream: its length, a space, the message (RFC 6587, 3.4.1; RFC 5425, 4.3)."""
    return str(len(message)).encode() + b" " + message


def _header_field(text: str, characters_max: int) -> str:
    return _NOT_PRINTABLE.sub("_", text)[:characters_max] or "-"
