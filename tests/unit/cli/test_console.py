"""``assay-stream console`` as a process, and where it refuses to start."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.command import run_command_text
from tests.support.console import a_store
from tests.support.readmodel import history


def test_it_serves_until_told_to_stop(tmp_path: Path) -> None:
    a_store(tmp_path, history())
    command = [sys.executable, "-m", "assay_stream", "console", "--listen", "127.0.0.1:0", "--store", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            address = line.split()[1]
            assert address.startswith("http://127.0.0.1:"), line
            with urllib.request.urlopen(address) as answer:  # noqa: S310 -- ours
                assert b"server-0" in answer.read()
            with urllib.request.urlopen(f"{address}events"):  # noqa: S310 -- an open page does not keep it
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no_store"),
        (("--store", "s", "--listen", "0.0.0.0:0"), "--behind-login"),
        (("--store", "s", "--listen", "0.0.0.0:0", "--behind-login"), "--allow-host"),
        (("--store", "s", "--listen", "8090"), "cannot_listen"),
        (("--store", "s", "--tls-cert", "missing.pem"), "cannot_listen"),
        (("--store", "s", "--decide"), "--decide needs --identity"),
        (("--store", "s", "--identity", "missing.toml"), "cannot read missing.toml"),
        (("--store", "s", "--identity", "empty.toml"), "one of the tables"),
        (("--store", "s", "--identity", "local.toml"), "console user add"),
        (("--store", "s", "--identity", "local.toml", "--listen", "0.0.0.0:0"), "over TLS only"),
    ],
)
def test_it_refuses_to_start(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond this machine unless something in front asks for a login, and without a store or an address."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_STREAM_STORE", raising=False)
    Path("empty.toml").touch()
    Path("local.toml").write_text('[local]\nusers = "missing.users"\n')
    done = run_command_text("console", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
