"""The distribution that ``docs/plugins.md`` shows, built and installed as a reader would, and used by the commands."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay_stream.model.record import Role
from tests.support.alerts import alert_records, finding_of
from tests.support.deployment import Deployment, free_port
from tests.support.receivers import WebhookServer
from tests.support.strangers import installed_from_the_page
from tests.support.toml import toml_of

# The installed command: a process that tests start from a warm one would not look at PYTHONPATH.
COMMAND = [str(Path(sys.executable).with_name("assay-stream"))]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(installed_from_the_page(tmp_path_factory.mktemp("stranger")))}


@pytest.mark.kafka
async def test_a_stranger_s_receiver_delivers(
    deployment: Deployment, environment: dict[str, str], tmp_path: Path
) -> None:
    """Named in the file of receivers, checked by its own settings, and sent what ours would be sent."""
    written = alert_records(finding_of("tool-1"))
    await deployment.send_with_headers(Role.ALERTS, [(out.key, out.value, out.headers) for out in written])
    (tmp_path / "token").write_text("hidden-5\n")
    entry = {"name": "phone", "type": "ntfy", "start": "oldest", "token_file": str(tmp_path / "token")}
    file = tmp_path / "receivers.toml"
    command = [*COMMAND, "alerts", "forward", "--config", str(file)]
    file.write_text(toml_of({"receivers": [entry]}))
    refused = subprocess.run(command, env=environment | deployment.env, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "ntfy lacks url; it takes ca_file, kinds, min_severity, name, servers, start, tag" in refused.stderr
    with WebhookServer(free_port()) as server:
        file.write_text(toml_of({"receivers": [entry | {"url": server.url}]}))
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environment | deployment.env, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not server.taken and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        process.terminate()
        process.wait(30)
    assert server.taken, (tmp_path / "log").read_text()
    _, body, headers = server.taken[0]
    assert "tool-1" in body.decode()
    assert (headers["authorization"], headers["priority"]) == ("Bearer hidden-5", "4")
    assert "hidden-5" not in (tmp_path / "log").read_text()


@pytest.mark.servers
def test_a_stranger_s_format_and_log_reader_are_offered(environment: dict[str, str], tmp_path: Path) -> None:
    def run(*arguments: str | Path) -> str:
        done = subprocess.run([*COMMAND, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (alert,) = alert_records(finding_of("tool-1"))
    (tmp_path / "alerts.ndjson").write_bytes((alert.value or b"") + b"\n")
    line = run("alerts", "export", "--format", "logfmt", "--input", tmp_path / "alerts.ndjson")
    assert 'severity="High"' in line
    assert "logfmt" in run("alerts", "export", "--help")
    (tmp_path / "acme.log").write_text(
        '{"at": "2026-11-22T10:00:00Z", "server": "s", "tool": "t", "ms": 3, "ok": true}\n'
    )
    run("publish", "--from", "acme", "--dry-run", "--output", tmp_path / "out.ndjson", tmp_path / "acme.log")
    (event,) = (json.loads(each) for each in (tmp_path / "out.ndjson").read_text().splitlines())
    assert (event["data"]["server_id"], event["data"]["tool_name"]) == ("s", "t")
