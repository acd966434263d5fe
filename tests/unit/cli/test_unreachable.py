"""Commands that a person waits for, where no broker answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay_stream.cli.app import app
from assay_stream.config import command_settings, load_settings
from assay_stream.errors import OperatingError
from tests.support.deployment import free_port

COMMANDS = [
    ("topics", "show"),
    ("topics", "apply"),
    ("pins", "list"),
    ("policy", "list"),
    ("asof", "--server-id", "s", "--at", "2026-03-01T10:00:00Z"),
    ("timeline", "--server-id", "s"),
    ("trace", "--tool-call-id", "c"),
    ("verify", "--from-kafka"),
    ("compare", "--from-kafka"),
    ("replay", "--from-kafka", "--output", "out"),
    ("replay", "--from-kafka", "--compare", "--output", "out"),
    ("archive", "--output", "out"),
    ("export", "assay-bundle", "--output", "out.tar.gz"),
    ("alerts", "list"),
    ("servers", "list"),
    ("tools", "list"),
    ("evidence", "list"),
    ("evidence", "tail"),
    ("policy", "plan", "--server-id", "s", "--enforcement", "block"),
    ("policy", "set", "--server-id", "s", "--enforcement", "block", "--reason", "r"),
    ("alerts", "export"),
    ("pins", "approve", "--server-id", "s", "--tool", "t", "--reason", "r"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_says_soon_that_no_broker_answers(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the address, after the limit of commands and not after that of a worker."""
    monkeypatch.chdir(tmp_path)
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("ASSAY_STREAM_BOOTSTRAP_SERVERS", address)
    monkeypatch.setenv("ASSAY_STREAM_COMMAND_CONNECT_LIMIT_S", "1")
    monkeypatch.setenv("ASSAY_STREAM_CONNECT_LIMIT_S", "3600")
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, OperatingError), result.output
    assert result.exception.code == "broker_unreachable"
    assert address in result.exception.message


def test_a_command_gives_up_sooner_than_a_worker() -> None:
    assert load_settings().connect_limit_s == 60
    assert command_settings().connect_limit_s == 10
    assert command_settings(command_connect_limit_s=3).connect_limit_s == 3
