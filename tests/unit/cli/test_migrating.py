"""``topics plan`` and ``topics migrate`` as they are called. On real Kafka: tests/integration/test_keyed.py."""

from __future__ import annotations

import pytest

from tests.support.command import run_command_text


@pytest.mark.parametrize("command", ["plan", "migrate"])
def test_without_brokers_it_says_so(command: str) -> None:
    """One line, and the exit code of what a retry may help."""
    done = run_command_text(
        "topics", command, ASSAY_STREAM_BOOTSTRAP_SERVERS="127.0.0.1:1", ASSAY_STREAM_COMMAND_CONNECT_LIMIT_S="1"
    )
    assert done.returncode == 3
    assert "broker_unreachable" in done.stderr


def test_room_cannot_be_negative() -> None:
    """A slip of the pen is refused before anything is asked."""
    assert run_command_text("topics", "migrate", "--disk-free-bytes", "-1").returncode == 2
