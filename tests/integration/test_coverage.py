"""The coverage report over a deployment's topics, beside the one over the same records in files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from assay_stream.model.record import Role
from tests.support.command import run_command_text
from tests.support.deployment import Deployment
from tests.support.events import SERVER, TOOL, Story

pytestmark = pytest.mark.kafka


async def test_topics_and_an_archive_of_them_give_one_report(deployment: Deployment, tmp_path: Path) -> None:
    """A gateway that shows calls only, a server that nobody lists, and one that is covered."""
    story = Story().lists(TOOL).calls().calls(observer_id="gateway").calls(observer_id="gateway", server_id="dark")
    for role in (Role.SNAPSHOTS, Role.CALLS):
        await deployment.send(role, [(each.key, each.value) for each in story.records if each.role is role])
    await deployment.start_worker().wait_ready()
    await deployment.wait_until_written(Role.EVIDENCE, 3)
    archive = tmp_path / "archive"
    await asyncio.to_thread(lambda: run_command_text("archive", "--output", str(archive), stdin=b"", **deployment.env))
    files = [argument for file in sorted(archive.glob("*.ndjson*")) for argument in ("--input", str(file))]
    reports = [
        await asyncio.to_thread(lambda given: run_command_text("coverage", *given, stdin=b"", **deployment.env), source)
        for source in (["--from-kafka", "--format", "json"], [*files, "--format", "json"])
    ]
    assert [report.returncode for report in reports] == [1, 1], reports[0].stderr + reports[1].stderr
    assert reports[0].stdout == reports[1].stdout
    rows = [json.loads(line) for line in reports[0].stdout.splitlines()]
    assert {(row["name"], *row["gaps"]) for row in rows} == {
        ("dark", "never_listed", "calls_unlisted"),
        (SERVER,),
        ("gateway", "calls_only", "calls_unlisted"),
        ("proxy-1",),
    }
