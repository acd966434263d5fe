"""``assay-stream store`` on real Kafka: filled, killed, filled on; the same as a recount from the topics."""

import asyncio
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions, RecordsToDelete

from assay_stream.errors import AssayStreamError
from assay_stream.kafka.connection import open_admin
from assay_stream.kafka.topics import apply_topics
from assay_stream.model.record import Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import ROLES
from assay_stream.readmodel.queries import Store, load
from assay_stream.readmodel.rows import AlertFilter, EvidenceFilter, Paging
from tests.support.controls import a_control
from tests.support.deployment import Deployment, Worker
from tests.support.fleet import Fleet
from tests.support.readmodel import NOW_US, history, of_role

pytestmark = pytest.mark.kafka

ALL = Paging(limit=1_000)
SMALL_BATCHES = {"ASSAY_STREAM_STORE_DAYS": "36500", "ASSAY_STREAM_BATCH_RECORDS_MAX": "40"}


def start(deployment: Deployment, folder: Path) -> Worker:
    return deployment.start("store", "run", "--store", str(folder), **SMALL_BATCHES)


async def run(deployment: Deployment, folder: Path, *arguments: str) -> tuple[int, str]:
    command = ("store", "run", "--store", folder, "--once", *arguments)
    done = await asyncio.to_thread(deployment.run, *command, **SMALL_BATCHES)
    return done.returncode, done.stderr


def answers(store: Store) -> dict[str, Any]:
    evidence = store.evidence(EvidenceFilter(), ALL).rows
    return {
        "evidence": sorted((row.origin, row.time_us, row.server_id, row.tool_name, row.digests) for row in evidence),
        "servers": store.servers(now_us=NOW_US, paging=ALL).rows,
        "tools": store.tools(now_us=NOW_US, paging=ALL).rows,
        "observers": store.observers(now_us=NOW_US, paging=ALL).rows,
        "alerts": store.alerts(AlertFilter(state=None), ALL).rows,
        "decisions": sorted((row.origin, row.author, row.change) for row in store.decisions(paging=ALL).rows),
        "read": {(row.topic, row.partition): row.read for row in store.positions() if row.read},
    }


async def _recount(deployment: Deployment, *, added: int = 0) -> dict[str, Any]:
    """What a store says that is filled from the topics at once."""
    evidence = await deployment.read(Role.EVIDENCE, settled=True, partitions_added=added)
    others = [role for role in ROLES if role is not Role.EVIDENCE]
    records = [*evidence, *[record for role in others for record in await deployment.read(role, settled=True)]]
    return answers(load(records))


@pytest.mark.tier(name="outages")
async def test_a_killed_store_is_filled_on(deployment: Deployment, tmp_path: Path) -> None:
    """Killed again and again while records come, at any moment: nothing is missing, nothing counted twice."""
    worker = await deployment.ready_worker()
    pin = a_control("pin.set", server_id="server-0", tool_name="tool_1", scheme="assay.v1", value="sha256:" + "0" * 64)
    await deployment.send(Role.CONTROL, [(b"server-0", pin)])
    history = list(Fleet(servers=4, calls=600, changes=8).history())
    filling = start(deployment, tmp_path)
    for number, begin in enumerate(range(0, len(history), 100)):
        await deployment.publish(history[begin : begin + 100])
        await asyncio.sleep(0.5 + 0.25 * number)
        filling.kill()
        filling = start(deployment, tmp_path)
    calls = sum(role is Role.CALLS for role, _, _ in history)
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == calls)
    await asyncio.sleep(2)
    assert await asyncio.to_thread(filling.terminate) == 0, filling.tail()
    assert worker.terminate() == 0
    assert (await run(deployment, tmp_path))[0] == 0
    found = answers(Store(schema.reading(tmp_path)))
    assert len(found["evidence"]) == calls
    assert found == await _recount(deployment)

    # Deleted, and rebuilt on request: the same again.
    for path in tmp_path.iterdir():
        path.unlink()
    assert (await run(deployment, tmp_path))[0] == 0
    assert answers(Store(schema.reading(tmp_path))) == found
    assert (await run(deployment, tmp_path, "--rebuild"))[0] == 0
    assert answers(Store(schema.reading(tmp_path))) == found


async def test_a_topic_that_was_made_again_is_noticed(deployment: Deployment, tmp_path: Path) -> None:
    """Its offsets mean something else, whether it is shorter than before or not; ``--rebuild`` begins anew."""
    evidence = [(b"server-0", b'{"number":%d}' % number) for number in range(30)]
    await deployment.send(Role.EVIDENCE, evidence)
    assert (await run(deployment, tmp_path))[0] == 0
    topic = deployment.topics[Role.EVIDENCE]
    async with open_admin(deployment.settings) as admin:
        for count in (5, 300):
            await admin.delete_topics([topic])
            for _ in range(100):
                await asyncio.sleep(0.2)
                if topic not in await admin.list_topics():
                    break
            await apply_topics(admin, deployment.settings)
            await deployment.send(Role.EVIDENCE, [(b"server-0", b"other %d" % number) for number in range(count)])
            code, said = await run(deployment, tmp_path)
            assert code == 2
            assert "topic_recreated" in said
            assert "--rebuild" in said
    assert (await run(deployment, tmp_path, "--rebuild"))[0] == 0
    status = Store(schema.reading(tmp_path)).status()
    assert sum(row.refused for row in status.positions) == 300


async def test_aborted_records_are_not_read(deployment: Deployment, tmp_path: Path) -> None:
    """Committed records only, and a marker at the end of a log is no lag."""
    await deployment.send_with_headers(Role.EVIDENCE, [(b"server-0", b"{}", ())], transactional=True)
    assert (await run(deployment, tmp_path))[0] == 0
    status = Store(schema.reading(tmp_path)).status()
    assert sum(row.read for row in status.positions) == 1
    assert {row.lag for row in status.positions} == {0}


async def test_a_second_writer_and_missing_topics_are_errors(deployment: Deployment, tmp_path: Path) -> None:
    code, said = await run(Deployment(deployment.bootstrap, name="nothing"), tmp_path)
    assert code == 2
    assert "topic_missing" in said
    first = start(deployment, tmp_path)
    deadline = time.monotonic() + 30
    while not (tmp_path / schema.FILE).is_file() and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    code, said = await run(deployment, tmp_path)
    assert code == 2
    assert "store_in_use" in said
    assert await asyncio.to_thread(first.terminate) == 0


async def test_retention_that_overtakes_filling_is_counted(deployment: Deployment, tmp_path: Path) -> None:
    """What was deleted before a running filler read it is lost, and said so; filling goes on behind it."""
    await deployment.send(Role.EVIDENCE, [(b"server-0", b"{}")])
    assert (await run(deployment, tmp_path))[0] == 0
    filling = start(deployment, tmp_path)
    async with open_admin(deployment.settings) as admin:
        await deployment.send(Role.EVIDENCE, [(b"server-0", b"{}")])
        await _until_read(tmp_path, 2)
        filling.process.send_signal(signal.SIGSTOP)
        for _ in range(5):
            await deployment.send(Role.EVIDENCE, [(b"server-0", b"{}")] * 10)
            await asyncio.sleep(0.5)
        place = next(
            row for row in Store(schema.reading(tmp_path)).positions() if row.role == Role.EVIDENCE.value and row.read
        )
        await admin.delete_records({TopicPartition(place.topic, place.partition): RecordsToDelete(before_offset=-1)})
        filling.process.send_signal(signal.SIGCONT)
        await deployment.send(Role.EVIDENCE, [(b"server-0", b"{}")] * 7)
        await _until_read(tmp_path, 2 + 50 + 7)
    assert await asyncio.to_thread(filling.terminate) == 0, filling.tail()
    positions = Store(schema.reading(tmp_path)).positions()
    row = next(each for each in positions if (each.topic, each.partition) == (place.topic, place.partition))
    assert row.lost > 0
    assert row.read + row.lost == 2 + 50 + 7
    assert "input_expired" in filling.tail()


@pytest.mark.tier(name="outages")
async def test_partitions_that_are_added_are_filled(deployment: Deployment, tmp_path: Path) -> None:
    """While the store is filled, and equal to a recount; a kill in between changes nothing."""
    await deployment.send(Role.EVIDENCE, _some_evidence(0))
    filling = start(deployment, tmp_path)
    topic = deployment.topics[Role.EVIDENCE]
    async with open_admin(deployment.settings) as admin:
        await _until_read(tmp_path, 40)
        described = await admin.describe_topics([topic])
        before = len(described[0]["partitions"])
        await admin.create_partitions({topic: NewPartitions(before + 3)})
        await asyncio.sleep(1)
        for number in range(1, 6):
            await deployment.send(Role.EVIDENCE, _some_evidence(number))
        await _until_read(tmp_path, 240)
        filling.kill()
        await deployment.send(Role.EVIDENCE, _some_evidence(6))
        assert (await run(deployment, tmp_path))[0] == 0
    found = answers(Store(schema.reading(tmp_path)))
    assert len(found["evidence"]) == 280
    assert found == await _recount(deployment, added=3)
    assert any(partition >= before for (_, partition), read in found["read"].items() if read)


def _some_evidence(number: int) -> list[tuple[bytes, bytes]]:
    records = of_role(history(calls=40, seed=number + 1), Role.EVIDENCE)
    return [(b"key-%d-%d" % (number, index), record.value or b"") for index, record in enumerate(records)]


async def _until_read(folder: Path, records: int) -> None:
    """Wait until a store has taken in so many records of evidence, or counted them as lost."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if (folder / schema.FILE).is_file():
            with suppress(AssayStreamError):
                store = Store(schema.reading(folder))
                read = sum(row.read + row.lost for row in store.positions() if row.role == Role.EVIDENCE.value)
                store.close()
                if read >= records:
                    return
        await asyncio.sleep(0.5)
    raise AssertionError(f"fewer than {records} records after 90 s")
