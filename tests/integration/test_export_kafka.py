"""``assay-stream export`` on real Kafka: what the topics hold, once and to the end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from assay_stream.export.input import read_bundle
from assay_stream.model.record import Role
from tests.support.deployment import Deployment
from tests.support.exports import replayed, values

pytestmark = pytest.mark.kafka


async def export(deployment: Deployment, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "assay_stream", "export", *arguments]
    return await asyncio.to_thread(
        subprocess.run, command, env=os.environ | deployment.env, capture_output=True, timeout=60, check=False
    )


async def test_topics_are_exported(deployment: Deployment, tmp_path: Path) -> None:
    """Every record of every partition; with a range of time without one, exit code 1."""
    outputs = replayed()
    for role in (Role.EVIDENCE, Role.ALERTS, Role.DEFINITIONS):
        await deployment.send(role, [(output.key, output.value) for output in outputs if output.role is role])

    bundle = tmp_path / "b.tar.gz"
    done = await export(deployment, "assay-bundle", "--output", str(bundle))
    assert done.returncode == 0, done.stderr
    found = {orjson.loads(line)["assaycontenthash"] for line in read_bundle(bundle)}
    assert found == {orjson.loads(line)["assaycontenthash"] for line in values(outputs, Role.EVIDENCE)}

    done = await export(deployment, "parquet", "--output", str(tmp_path / "datasets"))
    assert done.returncode == 0, done.stderr
    for role in (Role.EVIDENCE, Role.ALERTS, Role.DEFINITIONS):
        rows = pq.read_table(tmp_path / "datasets" / f"{role}.parquet")["record"].to_pylist()
        assert sorted(rows) == sorted({line.decode() for line in values(outputs, role)})

    done = await export(
        deployment, "timesketch", "--output", str(tmp_path / "t.csv"), "--since", "2031-01-01T00:00:00Z"
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["written"] == {"evidence": 0, "alerts": 0}
    assert b"nothing to export" in done.stderr
