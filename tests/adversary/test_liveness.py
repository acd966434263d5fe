"""Records that hang, kill or starve their worker: who else suffers, for how long, and what becomes of them."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from assay_stream.files.lines import record_line
from assay_stream.model.record import Record, Role, murmur2_partition
from tests.support.deployment import Deployment, Worker, payload
from tests.support.faulty_worker import FINISH_VARIABLE, SLOW_S, TAKES_LONG
from tests.support.fleet import START, a_call_by, a_listing, server_name

pytestmark = pytest.mark.kafka

DEATHS_MAX = 8
"""Unmarked, in a batch, in a few, twice by itself; and once or twice more where two owners took turns."""


def faulty(deployment: Deployment) -> Deployment:
    deployment.program = ("-m", "tests.support.faulty_worker")
    return deployment


async def put(deployment: Deployment, role: Role, key: bytes, value: bytes, partition: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=deployment.bootstrap) as producer:
        await producer.send_and_wait(deployment.topics[role], value, key=key, partition=partition)


def neighbour(partition: int, partitions: int = 2) -> int:
    return next(n for n in range(100) if murmur2_partition(server_name(n).encode(), partitions) == partition)


async def is_served(deployment: Deployment, server: int, number: int) -> None:
    """Publish a list and a call of a server, and wait for the evidence."""
    await deployment.put(
        a_listing(server, 0, 0, number, START + timedelta(seconds=number)),
        a_call_by(server, 0, number, START + timedelta(seconds=number, milliseconds=500), None),
    )

    def is_there(records: list[Record]) -> bool:
        return any(
            payload(record)["tool_call_id"] == f"call-{number}" and "tool_definition_digest" in payload(record)
            for record in records
        )

    await deployment.wait_for(Role.EVIDENCE, is_there, limit_s=120)


def assignments(worker: Worker) -> int:
    return worker.log.read_text(errors="replace").count('"partitions_assigned"')


async def has_begun(worker: Worker) -> None:
    async with asyncio.timeout(60):
        while TAKES_LONG not in worker.log.read_text(errors="replace"):
            await asyncio.sleep(0.05)


async def test_everything_else_lives_while_one_record_takes_long(deployment: Deployment, tmp_path: Path) -> None:
    """Heartbeats, pages and the other partition: longer than five sessions, and nobody else suffers.

    The record is not done before the test says so: everything up to that is seen while it is worked on.
    """
    finish = tmp_path / "finish"
    worker = faulty(deployment).start_worker(**{FINISH_VARIABLE: str(finish)})
    await worker.wait_ready()
    assigned = assignments(worker)
    await put(deployment, Role.SNAPSHOTS, b"takes-long", b"{}", 0)
    await has_begun(worker)
    begun_s = time.monotonic()
    await is_served(deployment, neighbour(1), 1)
    while time.monotonic() - begun_s < SLOW_S:
        assert (await asyncio.to_thread(worker.get, "/healthz"))[0] == 200
        await asyncio.sleep(0.2)
    assert await deployment.read(Role.REJECTED) == []
    finish.touch()
    await deployment.wait_for(Role.REJECTED, lambda records: len(records) == 1, limit_s=SLOW_S + 30)
    assert assignments(worker) == assigned


async def until_set_aside(deployment: Deployment, *arguments: str, **env: str) -> tuple[Record, list[int]]:
    """Restart a worker each time it ends, until a record is set aside; returns that and the exit codes."""
    codes: list[int] = []
    deadline_s = time.monotonic() + 240.0
    worker = deployment.start_worker(*arguments, **env)
    while time.monotonic() < deadline_s:
        if (code := worker.process.poll()) is not None:
            codes.append(code)
            assert len(codes) <= DEATHS_MAX, (codes, worker.tail())
            worker = deployment.start_worker(*arguments, **env)
        for record in await deployment.read(Role.REJECTED):
            if dict(record.headers).get("error.code") == b"record_kills_worker":
                return record, codes
        await asyncio.sleep(0.2)
    raise AssertionError(f"nothing is set aside: {codes}\n{worker.tail()}")


async def test_a_list_that_kills_its_worker_is_set_aside(deployment: Deployment, tmp_path: Path) -> None:
    """After a bounded number of attempts, with an alert; its neighbours in the partition are done once each.

    A replay refuses it too, and one that does not know of it names the cause.
    """
    server = neighbour(0)
    for number in range(40):
        role, key, value = a_listing(server, 0, number, number, START + timedelta(seconds=number))
        await deployment.put((role, key, value))
        if number == 20:
            # Its lists belong in partition 0: one in another would bind no call, set aside or not.
            hostile = value.replace(server_name(server).encode(), b"ends")
            await put(deployment, Role.SNAPSHOTS, b"ends", hostile, 0)
    record, codes = await until_set_aside(faulty(deployment))
    assert set(codes) == {-9}
    headers = dict(record.headers)
    assert (headers["error.topic"], headers["error.partition"]) == (deployment.topics[Role.SNAPSHOTS].encode(), b"0")
    await is_served(deployment, server, 100)
    findings = [orjson.loads(found.value or b"{}") for found in await deployment.read(Role.FINDINGS)]
    assert [found["server_id"] for found in findings if found.get("reason") == "record_kills_worker"] == ["ends"]
    seen = [orjson.loads(fact.key or b"") for fact in await deployment.read(Role.BINDINGS)]
    assert sum(key[0] == "seen" for key in seen) == 41
    assert len(await deployment.read(Role.REJECTED)) == 1
    await check_replays(deployment, tmp_path)
    await deployment.wait_for(
        Role.ALERTS, lambda alerts: any(b"record_kills_worker" in (one.value or b"") for one in alerts)
    )


async def check_replays(deployment: Deployment, folder: Path) -> None:
    """From topics and archive: no difference; from an archive that does not know, one with its cause."""
    _, _, call = a_call_by(0, 0, 500, datetime.now(UTC), None)
    await put(deployment, Role.CALLS, b"any", call.replace(b"server-0", b"ends"), 0)
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 2)
    copies = folder / "copies"
    evidence = folder / "evidence.ndjson"
    evidence.write_bytes(b"".join(record_line(one) + b"\n" for one in await deployment.read(Role.EVIDENCE)))
    done = await asyncio.to_thread(deployment.run, "replay", "--from-kafka", "--compare", "--output", folder / "live")
    # Alerts of a day long ago are due in a replay, and no clock of the workers has come so far.
    assert '"evidence":2' in done.stderr, done.stderr
    assert not [row for row in done.stdout.splitlines() if row.startswith("evidence")], done.stdout
    archived = await asyncio.to_thread(deployment.run, "archive", "--compression", "none", "--output", str(copies))
    assert archived.returncode == 0, archived.stderr
    inputs = [option for path in sorted(copies.iterdir()) for option in ("--input", str(path))]
    options = (*inputs, "--snapshot-partitions", "2", "--evidence", str(evidence), "--format", "json")
    done = await asyncio.to_thread(deployment.run, "compare", *options)
    assert done.returncode == 0, done.stdout
    for path in copies.iterdir():
        path.write_bytes(path.read_bytes().replace(b',"set_aside":true', b""))
    done = await asyncio.to_thread(deployment.run, "compare", *options)
    assert done.returncode == 1
    rows = [orjson.loads(row) for row in done.stdout.splitlines()]
    assert [row["causes"] for row in rows if row["what"] == "evidence"] == [["record_set_aside"]]


async def test_a_call_that_hangs_is_set_aside(deployment: Deployment) -> None:
    """The watchdog ends the worker with its code; the calls around it have evidence once each."""
    await deployment.send(*of(a_listing(0, 0, 0, 1, START)))
    for number in range(6):
        _, _, value = a_call_by(0, 0, number, START + timedelta(seconds=1 + number), None)
        await put(deployment, Role.CALLS, b"hangs" if number == 3 else b"server-0", value, 0)
    record, codes = await until_set_aside(
        faulty(deployment), ASSAY_STREAM_RECORD_LIMIT_S="1", ASSAY_STREAM_STOP_LIMIT_S="5"
    )
    assert set(codes) == {3}
    assert all("record_stuck" in worker.reason() for worker in deployment.workers[:-1])
    assert record.key == b"hangs"
    del deployment.workers[:-1]  # they have ended, as they should
    evidence = await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= 5)
    assert sorted(str(payload(one)["tool_call_id"]) for one in evidence) == [
        f"call-{number}" for number in range(6) if number != 3
    ]
    findings = [orjson.loads(found.value or b"{}") for found in await deployment.read(Role.FINDINGS)]
    assert [found["server_id"] for found in findings if found["kind"] == "record_set_aside"] == ["hangs"]


def of(published: tuple[Role, bytes, bytes]) -> tuple[Role, list[tuple[bytes | None, bytes | None]]]:
    role, key, value = published
    return role, [(key, value)]


async def test_a_worker_without_memory_ends_with_its_code(deployment: Deployment) -> None:
    """Within its stop limit, and says why on its last line, though there is no memory to do it with."""
    worker = faulty(deployment).start_worker(ASSAY_STREAM_STOP_LIMIT_S="5")
    await worker.wait_ready()
    await put(deployment, Role.SNAPSHOTS, b"exhausts", b"{}", 0)
    code = await asyncio.to_thread(worker.process.wait, 40)
    assert code == 3, worker.tail()
    assert worker.reason().startswith("assay-stream: out_of_memory"), worker.tail()


async def test_a_second_worker_on_a_busy_port_says_so(deployment: Deployment) -> None:
    """Exit code 2, with the setting to mend; the first goes on."""
    first = await deployment.ready_worker()
    second = await asyncio.to_thread(deployment.run, "worker", "--web-port", first.web_port)
    assert second.returncode == 2
    assert "\nassay-stream: web_port_taken" in f"\n{second.stderr}"
    assert first.get("/healthz")[0] == 200
