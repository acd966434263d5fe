"""``assay-stream console`` as a process, and where it refuses to start."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

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
