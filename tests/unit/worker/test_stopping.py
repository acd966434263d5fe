"""Stopping on a signal."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from assay_stream.worker.stopping import Deadline, stopped_by_signals

STUCK = """
import asyncio, sys
from assay_stream.worker.stopping import stopped_by_signals

async def main():
    with stopped_by_signals(lambda: None, limit_s=1):
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_asks_the_block_to_end(number: signal.Signals) -> None:
    """It goes on to its own end, and nothing is cut short afterwards."""
    asked = asyncio.Event()
    with stopped_by_signals(asked.set, limit_s=60):
        os.kill(os.getpid(), number)
        await asyncio.wait_for(asked.wait(), 10)


def test_a_block_that_does_not_end_is_cut_short() -> None:
    """With exit code 3, once the time is up."""
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 3


def test_a_deadline_that_is_called_off_leaves_no_thread() -> None:
    """Whether it was started or not."""
    before = threading.active_count()
    for starts in (False, True):
        deadline = Deadline(60)
        if starts:
            deadline.start()
        deadline.cancel()
    until_s = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until_s:
        time.sleep(0.01)
    assert threading.active_count() <= before


LEFT_BEHIND = """
import sys, threading
from assay_stream.worker.stopping import Deadline

deadline = Deadline(1)
if "start" in sys.argv:
    deadline.start()
if "thread" in sys.argv:
    threading.Thread(target=threading.Event().wait).start()
deadline.settle()
"""


@pytest.mark.parametrize(
    ("arguments", "code"), [(["thread"], 3), (["start", "thread"], 3), (["start"], 0), ([], 0)], ids=str
)
def test_a_thread_that_is_left_behind_does_not_keep_the_process(arguments: list[str], code: int) -> None:
    """Once all is done the deadline is off, unless another thread would keep the process alive."""
    done = subprocess.run([sys.executable, "-c", LEFT_BEHIND, *arguments], check=False, timeout=60)
    assert done.returncode == code
