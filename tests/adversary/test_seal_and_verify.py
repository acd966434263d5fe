"""What somebody who runs the brokers can take away afterwards, tried on the evidence of a real run.

Checkpoints that are cut off in Kafka itself: ``tests/integration/test_seal.py``. Calls whose evidence is missing
there: ``tests/integration/test_forensics.py``. Lines without end: ``tests/acceptance/test_archive_memory.py``.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay_stream.model.record import Role
from tests.support.deployment import Deployment
from tests.support.fleet import Fleet

pytestmark = pytest.mark.kafka

CALLS = 180
DELETED = 3
KEYS = ("--key", "seal.pub.pem")


class Desk:
    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self._env = os.environ | deployment.env | {"PYTHONPATH": str(Path("src").resolve())}
        self.folder = folder

    async def run(self, *arguments: str) -> tuple[int, str]:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "assay_stream", *arguments],
            cwd=self.folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    async def does(self, *arguments: str) -> None:
        code, output = await self.run(*arguments)
        assert code == 0, output

    async def seal_holds(self, archive: str, *options: str) -> tuple[int, str]:
        files = ("--evidence", archive, "--checkpoints", archive)
        return await self.run("seal", "verify", *KEYS, *files, *options)

    def copied(self, archive: str, name: str) -> Path:
        copy = self.folder / name
        shutil.copytree(self.folder / archive, copy)
        return copy


@pytest.fixture
async def desk(deployment: Deployment, tmp_path: Path) -> Desk:
    """A run of a fleet, sealed and archived half-way (``old``) and at its end (``kept``, with ``head.json``)."""
    desk = Desk(deployment, tmp_path)
    await desk.does("seal", "keygen", "--out", "seal.pem")
    worker = await deployment.ready_worker()
    history = list(Fleet(servers=12, observers=1, calls=CALLS, changes=0, seed=3).history())
    lists = [one for one in history if one[0] is Role.SNAPSHOTS]
    calls = [one for one in history if one[0] is Role.CALLS]
    for _, key, value in lists:
        await deployment.send(Role.SNAPSHOTS, [(key, value)])
    for name, part in (("old", calls[: CALLS // 2]), ("kept", calls[CALLS // 2 :])):
        await deployment.send(Role.CALLS, [(key, value) for _, key, value in part])
        count = CALLS if name == "kept" else CALLS // 2
        await deployment.wait_for(Role.EVIDENCE, lambda records, count=count: len(records) == count)  # type: ignore[misc]
        await desk.does("seal", "--key", "seal.pem", "--once")
        await desk.does("seal", "archive", "--output", name)
    assert worker.terminate() == 0
    await desk.does("seal", "verify", *KEYS, "--write-head", "head.json")
    await desk.does("archive", "--output", "input")
    return desk


def without_some(path: Path, numbers: set[int]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for number, line in enumerate(lines) if number not in numbers))


def evidence_of(archive: Path) -> list[Path]:
    return sorted(archive.glob("evidence-*"), key=lambda path: -path.stat().st_size)


async def test_what_is_taken_away_is_missed(desk: Desk) -> None:
    """An old archive, a cut tail, a partition that is gone, three of 180 records: each exits non-zero."""
    assert (await desk.seal_holds("kept", "--expect", "head.json"))[0] == 0

    assert (await desk.seal_holds("old"))[0] == 0, "nothing in an old archive says that there is a newer one"
    code, output = await desk.seal_holds("old", "--expect", "head.json")
    assert code == 1, output

    cut = desk.copied("kept", "cut")
    longest = evidence_of(cut)[0]
    without_some(longest, {len(longest.read_bytes().splitlines()) - 1})
    code, output = await desk.seal_holds("cut")
    assert code == 1, output

    gone = desk.copied("kept", "gone")
    partition = evidence_of(gone)[0].name.removeprefix("evidence-")
    for what in ("evidence", "checkpoints"):
        (gone / f"{what}-{partition}").unlink()
    code, output = await desk.seal_holds("gone")
    assert (code, "partition_missing" in output) == (1, True), output

    fewer = desk.copied("kept", "fewer")
    without_some(evidence_of(fewer)[0], {2, 9, 17})
    code, output = await desk.seal_holds("fewer")
    assert code == 1, output
    await verify_misses(desk, fewer)


async def verify_misses(desk: Desk, archive: Path) -> None:
    """``verify`` names each call whose evidence was deleted, with what the join had committed as its measure."""
    files = sorted(path for path in (desk.folder / "input").iterdir() if path.name != "archive.json")
    given = [option for path in files for option in ("--input", str(path))]
    given += [option for path in evidence_of(archive) for option in ("--evidence", str(path))]
    code, output = await desk.run("verify", *given, "--format", "json")
    summary = json.loads(output.splitlines()[-1])["summary"]
    assert (code, summary["missing"], summary["records"]) == (1, DELETED, CALLS - DELETED), output
