"""``assay-stream alerts acknowledge|assign|comment|close|reopen``, and the list that shows it."""

import json
from pathlib import Path

import orjson
import pytest

from tests.support.alerts import alert_of
from tests.support.command import run_command_text


@pytest.fixture
def alerts(tmp_path: Path) -> Path:
    path = tmp_path / "alerts.ndjson"
    told = [alert_of("tool", server_id=f"server-{number}") for number in range(4)] + [alert_of("other", after=None)]
    path.write_bytes(b"".join(orjson.dumps(alert) + b"\n" for alert in told))
    return path


def uid_of(alerts: Path) -> str:
    uid: str = json.loads(alerts.read_text().splitlines()[0])["finding_info"]["uid"]
    return uid


@pytest.mark.parametrize(
    ("act", "options", "more"),
    [
        ("acknowledge", ("--reason", "on it"), {"reason": "on it"}),
        ("assign", ("--to", "bob", "--reason", "knows it"), {"reason": "knows it", "assignee": "bob"}),
        ("comment", ("--reason", "asked the vendor"), {"reason": "asked the vendor"}),
        ("close", ("--reason", "a test"), {"reason": "a test"}),
        ("reopen", ("--reason", "it was none"), {"reason": "it was none"}),
    ],
)
def test_each_act_is_a_control_record(
    tmp_path: Path, alerts: Path, act: str, options: tuple[str, ...], more: dict[str, str]
) -> None:
    """With the whole uid, the alert's server, author and reason."""
    path = tmp_path / "decisions.ndjson"
    arguments = (uid_of(alerts)[:10], *options, "--author", "ann", "--input", str(alerts), "--output", str(path))
    done = run_command_text("alerts", act, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"assay-stream: {act.removesuffix('e')}ed: {uid_of(alerts)[:12]} (")
    event = json.loads(path.read_text())
    assert event["type"] == f"assay.control.alert.{act}"
    assert event["data"] == {"server_id": "server-0", "alert": uid_of(alerts), "author": "ann", **more}


def test_an_alert_that_nobody_knows_is_refused(tmp_path: Path, alerts: Path) -> None:
    path = tmp_path / "decisions.ndjson"
    arguments = ("--reason", "x", "--input", str(alerts), "--output", str(path))
    done = run_command_text("alerts", "close", "0" * 12, *arguments)
    assert (done.returncode, path.exists()) == (2, False)
    assert "unknown_uid" in done.stderr


def test_one_change_on_many_servers_is_one_line(alerts: Path) -> None:
    """It names the first servers and counts the others; ``--each`` shows every alert."""
    lines = run_command_text("alerts", "list", "--input", str(alerts)).stdout.splitlines()
    [line] = [line for line in lines if "server-0" in line]
    assert "server-0, server-1, server-2 and 1 more" in " ".join(line.split())
    each = run_command_text("alerts", "list", "--input", str(alerts), "--each").stdout
    assert sum(f"server-{number}" in each for number in range(4)) == 4


def test_json_has_every_alert_with_its_group(alerts: Path) -> None:
    done = run_command_text("alerts", "list", "--input", str(alerts), "--format", "json")
    groups = [json.loads(line)["group"] for line in done.stdout.splitlines()]
    assert len(groups) == 5
    assert len(set(groups)) == 2
