"""Runs a deployment on a real broker, once, and keeps what its topics hold half-way and in the end, sealed.

python -m tests.golden.make_live
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from deploy.local.kafka import Broker
from tests.golden import store
from tests.golden.histories import History
from tests.golden.live import SEED, STEPS
from tests.golden.outputs import Outputs

TOPICS = {
    "snapshots": "mcp.tools.list",
    "control": "assay.control",
    "calls": "mcp.tools.call",
    "bindings": "assay.tool.binding",
    "definitions": "assay.tool.definition",
    "findings": "assay.tool.finding",
    "alerts": "assay.tool.drift",
    "alert_states": "assay.alert.state",
    "evidence": "assay.tool.decision",
    "changes": "assay.control.change",
    "verdicts": "assay.tool.verdict",
    "rejected": "assay.rejected",
    "checkpoints": "assay.evidence.checkpoint",
}
_QUIET_S = 4.0
_PUBLISH_EVERY_S = 0.08


def main() -> None:
    """Write ``live.tar.xz``."""
    history = History(SEED, STEPS)
    with TemporaryDirectory() as folder, Broker() as broker:
        env = os.environ | {
            "ASSAY_STREAM_BOOTSTRAP_SERVERS": broker.bootstrap,
            "ASSAY_STREAM_INPUT_PARTITIONS": str(history.archive.partitions),
            "ASSAY_STREAM_CALL_PARTITIONS": "2",
            "ASSAY_STREAM_WEB_PORT": "31999",
            # The records are of other days than this one: the clock would have every alert due at once.
            "ASSAY_STREAM_ALERT_TICK_S": "0",
        }
        _run(env, Path(folder), "topics", "apply")
        _run(env, Path(folder), "seal", "keygen", "--out", "seal.pem")
        lines = [json.loads(line) for line in history.archive.lines]
        lines = [line for line in lines if "set_aside" not in line]
        half = len(lines) // 2
        outputs: Outputs = {}
        for name, part in (("half", lines[:half]), ("end", lines[half:])):
            # The worker of the second half restores what the first one wrote.
            with _worker(env, Path(folder) / f"{name}.log"):
                asyncio.run(_publish(broker.bootstrap, part))
                asyncio.run(_until_quiet(broker.bootstrap))
            _run(env, Path(folder), "seal", "--key", "seal.pem", "--once", "--every-records", "8")
            outputs |= asyncio.run(_dump(broker.bootstrap, name))
        _run(env, Path(folder), "archive", "--output", "archive", "--compression", "none")
        _run(env, Path(folder), "seal", "archive", "--output", "sealed")
        outputs |= _files(Path(folder), "archive", "sealed")
        outputs["seal.pub.pem"] = (Path(folder) / "seal.pub.pem").read_bytes()
    store.write("live", outputs)


def _run(env: dict[str, str], folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "assay_stream", *arguments], env=env, cwd=folder, check=True)


@contextmanager
def _worker(env: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-m", "assay_stream", "worker"], env=env, stderr=stderr)
    try:
        time.sleep(8)
        yield
    finally:
        process.terminate()
        if process.wait(30):
            raise RuntimeError(log.read_text(encoding="utf-8")[-2_000:])


async def _publish(bootstrap: str, lines: list[dict[str, Any]]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        for line in lines:
            await producer.send_and_wait(
                line["origin"]["topic"],
                partition=line["origin"]["partition"],
                timestamp_ms=line["timestamp_ms"],
                key=_bytes(line, "key"),
                value=_bytes(line, "value"),
                headers=[(name, value.encode()) for name, value in line["headers"]],
            )
            # One after the other: the registry reads two topics, and what it writes shall follow from the archive.
            await asyncio.sleep(_PUBLISH_EVERY_S)
    finally:
        await producer.stop()


def _bytes(line: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in line:
        return base64.b64decode(line[f"{name}_base64"])
    return None if line[name] is None else line[name].encode()


async def _ends(bootstrap: str, consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        topics = await admin.describe_topics(list(TOPICS.values()))
    finally:
        await admin.close()
    places = [TopicPartition(topic["topic"], each["partition"]) for topic in topics for each in topic["partitions"]]
    ends: dict[TopicPartition, int] = await consumer.end_offsets(sorted(places))
    return ends


async def _until_quiet(bootstrap: str) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        before, since_s = await _ends(bootstrap, consumer), time.monotonic()
        while time.monotonic() - since_s < _QUIET_S:
            await asyncio.sleep(0.5)
            now = await _ends(bootstrap, consumer)
            if now != before:
                before, since_s = now, time.monotonic()
    finally:
        await consumer.stop()


async def _dump(bootstrap: str, folder: str) -> Outputs:
    """Every committed record of every topic as a record line."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    outputs: Outputs = {}
    try:
        ends = await _ends(bootstrap, consumer)
        roles = {topic: role for role, topic in TOPICS.items()}
        for place, end in ends.items():
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            lines: list[bytes] = []
            while end and await consumer.position(place) < end:
                batch = (await consumer.getmany(place, timeout_ms=500)).get(place, [])
                lines.extend(_line(roles[place.topic], message) for message in batch)
            role = roles[place.topic]
            outputs[f"{folder}/{role}-{place.partition}.ndjson"] = b"".join(lines)
    finally:
        await consumer.stop()
    return outputs


def _line(role: str, message: Any) -> bytes:
    line: dict[str, Any] = {
        "origin": {"topic": message.topic, "partition": message.partition, "offset": message.offset},
        "role": role,
        "timestamp_ms": message.timestamp,
    }
    for name in ("key", "value"):
        raw = getattr(message, name)
        try:
            line[name] = None if raw is None else raw.decode()
        except UnicodeDecodeError:
            line[f"{name}_base64"] = base64.b64encode(raw).decode()
    line["headers"] = [[name, value.decode()] for name, value in message.headers]
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _files(folder: Path, *names: str) -> Outputs:
    return {f"{name}/{path.name}": path.read_bytes() for name in names for path in (folder / name).iterdir()}


if __name__ == "__main__":
    main()
