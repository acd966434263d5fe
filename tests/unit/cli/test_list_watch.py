"""``assay-stream list-watch``: its configuration, and one round without a broker."""

import json
import re
import subprocess
import sys
from pathlib import Path

from assay_stream.files.local import config_of
from assay_stream.observe import Vantage
from assay_stream.observe.list_transport import listed_servers
from tests.support.command import run_command_text
from tests.support.toml import toml_of

ROOT = Path(__file__).parents[3]
SCRIPTED = [sys.executable, str(ROOT / "tests" / "support" / "scripted_lister_server.py")]


def a_config(tmp_path: Path, *behaviours: str) -> str:
    file = tmp_path / "servers.toml"
    servers = [{"server_id": each, "command": [*SCRIPTED, each]} for each in behaviours]
    file.write_text(toml_of({"servers": servers}), encoding="utf-8")
    return str(file)


def test_one_round_lists_every_server_and_says_which_failed(tmp_path: Path) -> None:
    """Exit code 1 for the one that fails; the other is published, under a name of the lister's own."""
    output = tmp_path / "observations.ndjson"
    command = [sys.executable, "-m", "assay_stream", "list-watch", "--config", a_config(tmp_path, "good", "failing")]
    done = subprocess.run([*command, "--once", "--output", str(output)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "assay-stream list-watch: failing: cannot be listed: refused\n"
    [event] = [json.loads(line) for line in output.read_bytes().splitlines()]
    assert event["data"]["server_id"] == "good"
    assert event["data"]["observer_id"].endswith("-lister")


def test_one_round_of_servers_that_can_be_listed_is_a_success(tmp_path: Path) -> None:
    """So that a build can check a configuration."""
    output = tmp_path / "observations.ndjson"
    done = run_command_text("list-watch", "--config", a_config(tmp_path, "good"), "--once", "--output", str(output))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_round_whose_lists_cannot_be_written_fails(tmp_path: Path) -> None:
    done = run_command_text("list-watch", "--config", a_config(tmp_path, "good"), "--once", "--output", "/dev/full")
    assert done.returncode == 1
    assert "dropped 1 observation" in done.stderr


def test_the_configuration_of_the_documentation_can_be_used() -> None:
    page = (ROOT / "docs" / "list-watch.md").read_text(encoding="utf-8")
    [written] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    content = config_of(written.encode(), "servers.toml", "bad_servers")
    servers = listed_servers(content, "servers.toml", Vantage(server_id="-", observer_id="lister"))
    assert [(each.vantage.server_id, each.interval_s, each.listen) for each in servers] == [
        ("docs", 3_600, True),
        ("tickets", 600, False),
        ("time", 3_600, True),
    ]
