"""What the demo is played with: servers of ours, one poisoned, and a worker that may die."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.demo_processes import DemoError, Running, wait_for_interrupt
from deploy.local.demo_servers import POISON, SERVERS, poisoned

ROOT = Path(__file__).resolve().parents[2]


def answer(**result: object) -> bytes:
    """A line of a server."""
    return json.dumps({"jsonrpc": "2.0", "id": 2, "result": result}).encode() + b"\n"


def test_one_tool_is_poisoned_and_nothing_else() -> None:
    """Its description and a parameter; the tool beside it, and lines that hold no list, pass as they are."""
    before = SERVERS["notes"][1]
    after = json.loads(poisoned(answer(tools=before), "search_notes"))["result"]["tools"]
    assert after[0]["description"] == before[0]["description"] + POISON
    assert after[0]["inputSchema"]["properties"].keys() - before[0]["inputSchema"]["properties"] == {"context"}
    assert after[1] == before[1]
    assert poisoned(answer(content=[]), "search_notes") == answer(content=[])


def test_the_rug_pull_stands_before_any_server() -> None:
    """Requests go in, and the poisoned list comes out of the process."""
    requests = "".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {"protocolVersion": "2025-11-25"}})
        + "\n"
        for number, method in enumerate(("initialize", "tools/list"))
    )
    own = [sys.executable, "-m", "deploy.local.demo_servers"]
    done = subprocess.run(
        [*own, "rug-pull", "get_forecast", "--", *own, "weather", "1"],
        cwd=ROOT,
        input=requests,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    [_, listed] = map(json.loads, done.stdout.splitlines())
    assert POISON in listed["result"]["tools"][0]["description"]


def test_a_process_that_dies_is_noticed_and_named(tmp_path: Path) -> None:
    """With its exit code, and what its log says last: `make run` would go on without it."""
    log = tmp_path / "console.log"
    log.write_text("last words")
    forever = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(forever) as worker, subprocess.Popen([sys.executable, "-c", "raise SystemExit(4)"]) as dying:
        try:
            with pytest.raises(DemoError, match=r"(?s)the console died with exit code 4.*last words"):
                wait_for_interrupt(
                    [Running(name="worker", process=worker, log=log), Running(name="console", process=dying, log=log)]
                )
        finally:
            worker.kill()
