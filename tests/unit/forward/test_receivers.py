"""Who alerts are sent to, as the command line names them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from assay_stream.errors import ConfigurationError
from assay_stream.forward.receivers import SyslogTarget, WebhookTarget, parse_target, secret_from, tls_context


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("webhook:https://soc.example.com/a?b=c", WebhookTarget(url="https://soc.example.com/a?b=c")),
        ("webhook:http://127.0.0.1:8080/", WebhookTarget(url="http://127.0.0.1:8080/")),
        ("syslog:soc.example.com:514", SyslogTarget(host="soc.example.com", port=514, transport="tcp")),
        ("syslog:10.0.0.1:514,udp", SyslogTarget(host="10.0.0.1", port=514, transport="udp")),
        ("syslog:[::1]:6514,tls", SyslogTarget(host="::1", port=6514, transport="tls")),
    ],
)
def test_a_receiver_is_named(text: str, expected: WebhookTarget | SyslogTarget) -> None:
    """Webhooks by URL, syslog by host, port and transport; TCP where none is named."""
    assert parse_target(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "webhook:", "webhook:ftp://h/", "webhook:https://", "webhook:http://h:99999/", "webhook:http://[/"),
        *("syslog:h", "syslog:h:0", "syslog:h:65536", "syslog:h:1,sctp", "syslog:::1:514", "syslog:[x]:1"),
        *("syslog::514", "syslog:h:x", "syslog:h:1,", "mail:a@example.com"),
        *("webhook:https://a..b/", f"webhook:https://{'a' * 64}.example/", "syslog:a..b:514", "syslog:.h:514,udp"),
    ],
)
def test_nothing_else_is_one(text: str) -> None:
    """With the form that would be."""
    with pytest.raises(ConfigurationError) as caught:
        parse_target(text)
    assert caught.value.code == "bad_receiver"


def test_a_secret_comes_from_the_environment() -> None:
    """Never from the command line, where every user of the machine can read it."""
    assert secret_from("KEY", {"KEY": "value"}) == "value"
    for environment in ({}, {"KEY": ""}):
        with pytest.raises(ConfigurationError) as caught:
            secret_from("KEY", environment)
        assert caught.value.code == "secret_missing"


def test_a_file_that_holds_no_certificates_is_refused(tmp_path: Path) -> None:
    """Before anything is sent."""
    assert isinstance(tls_context(None), ssl.SSLContext)
    for file in (tmp_path / "none.pem", tmp_path / "text.pem"):
        (tmp_path / "text.pem").write_text("no certificate")
        with pytest.raises(ConfigurationError) as caught:
            tls_context(file)
        assert caught.value.code == "bad_tls_file"


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    """``KEY_FILE`` names it; the variable itself goes first."""
    path = tmp_path / "key"
    path.write_text("of the file\n")
    assert secret_from("KEY", {"KEY_FILE": str(path)}) == "of the file"
    assert secret_from("KEY", {"KEY_FILE": str(path), "KEY": "value"}) == "value"
    with pytest.raises(ConfigurationError, match="KEY_FILE"):
        secret_from("KEY", {"KEY_FILE": str(tmp_path / "missing")})
