"""``assay-stream seal`` on real Kafka: sealed, sealed on, verified, archived, and proven."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from assay_stream.kafka.connection import open_admin
from assay_stream.model.record import Record, Role
from tests.support.deployment import Deployment

pytestmark = pytest.mark.kafka


class Seals:
    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.deployment = deployment
        self.folder = folder

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "assay_stream", "seal", *arguments]

    async def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = await asyncio.to_thread(
            subprocess.run,
            self.command(*arguments),
            cwd=self.folder,
            env=os.environ | self.deployment.env,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    async def verify(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        done = await self.run("verify", "--format", "json", *arguments, code=code)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / name).open("wb") as log:
            return subprocess.Popen(
                self.command(*arguments), cwd=self.folder, env=os.environ | self.deployment.env, stderr=log
            )

    def log(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")


@pytest.fixture
def seals(deployment: Deployment, tmp_path: Path) -> Seals:
    deployment.env["PYTHONPATH"] = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    return Seals(deployment, tmp_path)


async def write_evidence(deployment: Deployment, first: int, count: int) -> None:
    await deployment.send_with_headers(
        Role.EVIDENCE,
        [
            (b"server-%d" % (number % 5), b'{"number":"n%d"}' % number, (("content-type", b"application/json"),))
            for number in range(first, first + count)
        ],
    )


def sums(answer: dict[str, Any], *names: str) -> list[int]:
    return [sum(log[name] for log in answer["logs"]) for name in names]


async def checkpoints(deployment: Deployment) -> list[Record]:
    return await deployment.read(Role.CHECKPOINTS)


async def until_sealed(deployment: Deployment, count: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while len(await checkpoints(deployment)) < count:
        assert process.poll() is None
        assert time.monotonic() < deadline
        await asyncio.sleep(0.3)


async def test_the_life_of_a_seal(deployment: Deployment, seals: Seals) -> None:
    """Sealed, sealed on, a key rotated; verified from Kafka and files; proven; a flipped byte has its offset."""
    keys = ("--key", "seal.pub.pem")
    await seals.run("keygen", "--out", "seal.pem")
    assert (await seals.verify(*keys, code=3))["result"] == "nothing_verified"

    await write_evidence(deployment, 0, 300)
    await seals.run("--key", "seal.pem", "--once", "--every-records", "50")
    first = await checkpoints(deployment)
    assert sums(await seals.verify(*keys), "verified", "unsealed", "faults_count") == [300, 0, 0]
    await write_evidence(deployment, 300, 100)
    assert sums(await seals.verify(*keys), "verified", "unsealed") == [300, 100]
    await seals.run("--key", "seal.pem", "--once")
    second = await checkpoints(deployment)
    assert len(first) < len(second)
    assert sums(await seals.verify(*keys), "verified", "unsealed", "faults_count") == [400, 0, 0]
    await seals.run("--key", "seal.pem", "--once")
    assert await checkpoints(deployment) == second

    await seals.run("keygen", "--out", "new.pem")
    await write_evidence(deployment, 400, 100)
    done = await seals.run("--key", "new.pem", "--once", code=2)
    assert "checkpoint_not_continued" in done.stderr
    await seals.run("--key", "new.pem", "--also-trust", "seal.pub.pem", "--once")
    both = (*keys, "--key", "new.pub.pem")
    assert sums(await seals.verify(*both), "verified", "faults_count") == [500, 0]
    alone = await seals.verify(*keys, code=1)
    assert {fault["code"] for log in alone["logs"] for fault in log["faults"]} == {"seal_key_unknown"}

    told = json.loads((await seals.run("archive", "--output", "kept")).stdout)
    assert told == {"written": {"checkpoints": len(await checkpoints(deployment)), "evidence": 500}, "log_start": {}}
    files = ("--evidence", "kept", "--checkpoints", "kept")
    deployment.env["ASSAY_STREAM_BOOTSTRAP_SERVERS"] = "127.0.0.1:1"
    assert sums(await seals.verify(*both, *files), "verified", "unsealed", "faults_count") == [500, 0, 0]
    file = max((seals.folder / "kept").glob("evidence-*"), key=lambda path: path.stat().st_size)
    lines = file.read_bytes().splitlines(keepends=True)
    origin = json.loads(lines[10])["origin"]
    await prove(seals, both, origin, lines[10])
    at = lines[10].index(b"n", lines[10].index(b"number"))
    lines[10] = lines[10][:at] + bytes([lines[10][at] ^ 1]) + lines[10][at + 1 :]
    file.write_bytes(b"".join(lines))
    broken = await seals.verify(*both, *files, code=1)
    assert [
        (log["partition"], fault["kind"], fault["offset"]) for log in broken["logs"] for fault in log["faults"]
    ] == [(origin["partition"], "altered", origin["offset"])]


async def prove(seals: Seals, keys: tuple[str, ...], origin: dict[str, Any], line: bytes) -> None:
    (seals.folder / "record.ndjson").write_bytes(line)
    place = (*keys, "--checkpoints", "kept", "--partition", str(origin["partition"]))
    await seals.run("prove", *place, "--offset", str(origin["offset"]), "--output", "in.json")
    done = await seals.run("check-proof", "in.json", *keys, "--record", "record.ndjson")
    answer = json.loads(done.stdout)
    assert (answer["valid"], answer["offset"], answer["record_checked"]) == (True, origin["offset"], True)
    await seals.run("prove", *place, "--consistency", "0", "1", "--output", "con.json")
    assert json.loads((await seals.run("check-proof", "con.json", *keys)).stdout)["first_checkpoint"] == 0


async def test_one_of_two_sealers_is_shut_out(deployment: Deployment, seals: Seals) -> None:
    """It ends with an error that says so; the chain goes on without a fork. SIGTERM seals what was read.

    It is the first, unless that one lost its broker for a moment and came back, as on a machine that is very busy.
    """
    await seals.run("keygen", "--out", "seal.pem")
    await write_evidence(deployment, 0, 60)
    first = seals.start("first.log", "--key", "seal.pem", "--every-s", "0.5")
    second = None
    try:
        await until_sealed(deployment, 3, first)
        before = len(await checkpoints(deployment))
        second = seals.start("second.log", "--key", "seal.pem", "--every-s", "0.5")
        deadline = time.monotonic() + 120
        number = 60
        while first.poll() is None and second.poll() is None:
            assert time.monotonic() < deadline
            await write_evidence(deployment, number, 30)
            number += 30
            await asyncio.sleep(0.5)
        ended, left, log = (first, second, "first.log") if second.poll() is None else (second, first, "second.log")
        assert ended.returncode == 2
        assert "sealer_fenced" in seals.log(log)
        await until_sealed(deployment, before + 3, left)
        await write_evidence(deployment, number, 30)
        await asyncio.sleep(1.0)
        left.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(left.wait, 30) == 0
    finally:
        for process in (first, second):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(10)
    answer = await seals.verify("--key", "seal.pub.pem")
    assert sums(answer, "verified", "unsealed", "faults_count") == [number + 30, 0, 0]


async def rewrite(deployment: Deployment, records: list[Record]) -> None:
    """Delete the checkpoint topic and write it anew, as somebody might who runs the brokers."""
    topic = deployment.topics[Role.CHECKPOINTS]
    async with open_admin(deployment.settings) as admin:
        await admin.delete_topics([topic])
        while topic in await admin.list_topics():
            await asyncio.sleep(0.2)
    await deployment.apply_topics()
    async with AIOKafkaProducer(bootstrap_servers=deployment.bootstrap, max_request_size=2 * 1024 * 1024) as producer:
        for record in records:
            await producer.send_and_wait(topic, record.value, partition=record.origin.partition)


async def test_checkpoints_that_are_cut_off_are_missed(deployment: Deployment, seals: Seals) -> None:
    """By siblings, by the sealer's own offset, by a kept head, and by the sealer, which does not go on."""
    keys = ("--key", "seal.pub.pem")
    await seals.run("keygen", "--out", "seal.pem")
    await write_evidence(deployment, 0, 200)
    await seals.run("--key", "seal.pem", "--once")
    await write_evidence(deployment, 200, 200)
    await seals.run("--key", "seal.pem", "--once")
    await seals.verify(*keys, "--write-head", "head.json")
    assert (await seals.verify(*keys, "--expect", "head.json"))["result"] == "holds"
    told = json.loads((await seals.run("archive", "--output", "kept")).stdout)
    assert told["written"]["evidence"] == 400
    files = ("--evidence", "kept", "--checkpoints", "kept")
    assert (await seals.verify(*keys, *files, "--expect", "head.json"))["result"] == "holds"
    for path in (seals.folder / "kept").glob("checkpoints-*"):
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert (await seals.verify(*keys, *files))["result"] == "holds"
    old = await seals.verify(*keys, *files, "--expect", "head.json", code=1)
    assert {fault["code"] for log in old["logs"] for fault in log["faults"]} == {"tail_cut"}

    everything = await checkpoints(deployment)
    lost = max(record.origin.partition for record in everything)
    await rewrite(deployment, [record for record in everything if record.origin.partition != lost])
    cut = await seals.verify(*keys, code=1)
    found = {(log["partition"], fault["code"]) for log in cut["logs"] for fault in log["faults"]}
    assert found == {(lost, "partition_missing"), (lost, "sealed_offset_ahead")}
    done = await seals.run("--key", "seal.pem", "--once", code=4)
    assert "checkpoints_cut_off" in done.stderr


async def test_a_sealer_without_its_topic_says_which(deployment: Deployment, seals: Seals) -> None:
    deployment.env["ASSAY_STREAM_TOPIC_PREFIX"] = "nowhere."
    await seals.run("keygen", "--out", "seal.pem")
    for arguments in (("--key", "seal.pem", "--once"), ("verify", "--key", "seal.pub.pem")):
        done = await seals.run(*arguments, code=2)
        assert "topic_missing" in done.stderr
        assert "nowhere.assay" in done.stderr


async def test_the_walk_on_the_page_runs_as_it_stands(deployment: Deployment, seals: Seals) -> None:
    """Every command of docs/seal.md, one block after the other, with exit code 0."""
    page = (Path(__file__).parents[2] / "docs" / "seal.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    await write_evidence(deployment, 0, 100)
    checked = 0
    for line in "".join(blocks).splitlines():
        if line.startswith("assay-stream seal "):
            done = await seals.run(*shlex.split(line)[2:])
            checked += done.stdout.count('"record_checked":true')
        else:
            await asyncio.to_thread(
                subprocess.run, ["bash", "-euo", "pipefail", "-c", line], cwd=seals.folder, check=True
            )
    assert checked == 2
