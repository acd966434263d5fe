"""``ingest`` against its own OpenAPI document, by schemathesis, which has an environment of its own."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from assay_stream.model.record import Role
from tests.support.deployment import Deployment
from tests.support.ingest import ingest_of

ROOT = Path(__file__).parents[2]
SCHEMATHESIS = ROOT / ".schemathesis-venv/bin/schemathesis"

pytestmark = pytest.mark.kafka


@pytest.mark.skipif(not SCHEMATHESIS.exists(), reason="make .schemathesis-venv/.ready installs it")
async def test_the_service_does_what_its_document_says(deployment: Deployment, tmp_path: Path) -> None:
    """Statuses, content types and bodies of hundreds of requests, sound and not; none gets 500."""
    with ingest_of(deployment, tmp_path) as ingest:
        token = ingest.add_client("0", ["*"])
        address = await ingest.start()
        command = [str(SCHEMATHESIS), "--config-file", str(ROOT / "tests/data/schemathesis.toml"), "run"]
        command += [
            str(ROOT / "schemas/openapi.json"),
            "--url",
            f"http://127.0.0.1:{address.port}",
            "-H",
            f"Authorization: Bearer {token}",
        ]
        examples = os.environ.get("ASSAY_TEST_EXAMPLES", "25")
        command += ["--max-examples", examples, "--seed", "1", "--continue-on-failure"]
        done = await asyncio.to_thread(subprocess.run, command, cwd=tmp_path, capture_output=True, timeout=240)
        assert done.returncode == 0, done.stdout.decode()[-4_000:]
        assert address.process.get("/healthz")[0] == 200
    assert await deployment.read(Role.CONTROL) == []
