"""Alerts as syslog messages (RFC 5424) and as frames of a stream (RFC 6587, RFC 5425)."""

from typing import Any

import pytest

from assay_stream.alerts.formats import view_of
from assay_stream.alerts.formats.syslog import octet_counted, syslog_message
from assay_stream.model.kinds import Kind
from tests.support.alerts import alert_of, finding_of


def message(body: str = "body", *, host: str = "soc.example.com", tool: str | None = "tool", **members: Any) -> bytes:
    return syslog_message(view_of(alert_of(tool) | members), body, host=host)


def test_the_header_and_the_structured_data() -> None:
    """RFC 5424, 6: PRI and version, time, host, application, no process id, the kind; then one element."""
    uid = finding_of().uid()
    assert message().decode() == (
        "<35>1 2026-03-01T00:00:00.123Z soc.example.com assay-stream - tool_changed "
        f'[alert@32473 uid="{uid}" kind="tool_changed" count="1" activity="1" severity="4" server="server" '
        'tool="tool"] body'
    )


def test_a_prompt_has_a_parameter_of_its_own() -> None:
    alert = alert_of(None, kind=Kind.PROMPT_CHANGED, item_name="ask")
    written = syslog_message(view_of(alert), "body", host="h")
    assert b' server="server" item="ask"] body' in written
    assert b"tool=" not in written


@pytest.mark.parametrize(
    ("severity_id", "priority"), [(1, 38), (2, 37), (3, 36), (4, 35), (5, 34), (6, 33), (0, 37), (99, 37)]
)
def test_the_priority_is_facility_times_eight_and_severity(severity_id: int, priority: int) -> None:
    """RFC 5424, 6.2.1: facility 4, and severities 6 informational to 1 alert; never emergency."""
    assert message(severity_id=severity_id).startswith(f"<{priority}>1 ".encode())


def test_a_body_beyond_ascii_has_a_byte_order_mark() -> None:
    """RFC 5424, 6.4: UTF-8 must start with the BOM; what is ASCII needs no telling."""
    assert message("tööl").endswith(b"] \xef\xbb\xbft\xc3\xb6\xc3\xb6l")
    assert b"\xef\xbb\xbf" not in message("tool")


def test_parameter_values_are_escaped() -> None:
    r"""RFC 5424, 6.3.3: ``"``, ``\`` and ``]`` are escaped with a backslash, and nothing else is."""
    assert b'tool="a\\"b\\\\c\\]d[=e"' in message(tool='a"b\\c]d[=e')


def test_a_name_cannot_make_a_line() -> None:
    assert b"\n" not in message(tool="a\n<0>1 - - - - - forged")


def test_structured_data_is_inert() -> None:
    written = message(tool='a\x1b[2J\x9b\x7f\u202e\u2028\U000e0041]"b').decode()
    assert 'tool="a\\\\u{1b}[2J\\\\u{9b}\\\\u{7f}\\\\u{202e}\\\\u{2028}\\\\u{e0041}\\]\\"b"' in written
    assert written.isprintable()


@pytest.mark.parametrize(("host", "field"), [("", "-"), ("h ö", "h__"), ("h" * 300, "h" * 255)])
def test_the_host_is_printable_ascii_or_nil(host: str, field: str) -> None:
    """RFC 5424, 6.2.4: 255 printable characters at most, or the NILVALUE."""
    assert message(host=host).split(b" ")[2] == field.encode()


def test_the_message_id_keeps_to_its_length() -> None:
    """RFC 5424, 6.2.7: 32 characters at most."""
    alert = alert_of()
    alert["finding_info"]["types"] = ["k" * 40]
    assert b" - " + b"k" * 32 + b" [" in syslog_message(view_of(alert), "", host="h")


def test_a_frame_starts_with_the_length_in_octets() -> None:
    """RFC 6587, 3.4.1: the length counts octets, not characters."""
    assert octet_counted("ö".encode()) == b"2 \xc3\xb6"
