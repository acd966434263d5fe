"""Commands that a person waits for, where no broker answers."""

import os
import subprocess
import sys
from pathlib import Path

from assay_stream.config import command_settings, load_settings
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


def test_every_command_says_soon_that_no_broker_answers(tmp_path: Path) -> None:
    """It names the address, after the limit of commands and not after that of a worker. They wait side by side."""
    address = f"127.0.0.1:{free_port()}"
    env = os.environ | {
        "ASSAY_STREAM_BOOTSTRAP_SERVERS": address,
        "ASSAY_STREAM_COMMAND_CONNECT_LIMIT_S": "1",
        "ASSAY_STREAM_CONNECT_LIMIT_S": "3600",
    }
    started = []
    for number, command in enumerate(COMMANDS):
        (folder := tmp_path / str(number)).mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", "assay_stream", *command],
            cwd=folder,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append((command, process))
    for command, process in started:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 3, (command, said)
        assert "broker_unreachable" in said, (command, said)
        assert address in said, (command, said)


def test_a_command_gives_up_sooner_than_a_worker() -> None:
    assert load_settings().connect_limit_s == 60
    assert command_settings().connect_limit_s == 10
    assert command_settings(command_connect_limit_s=3).connect_limit_s == 3
