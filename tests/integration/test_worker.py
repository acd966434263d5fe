"""The worker as an operator meets it: start, readiness, stop, bad records, roles, rebalancing."""

import asyncio
import gzip
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from assay_stream.kafka.connection import open_admin
from assay_stream.model.record import Headers, Record, Role
from deploy.local.kafka import QUICK_START, Broker
from tests.integration.test_exactly_once import advance_time, findings_of, of_one_server, undisturbed, values
from tests.support.deployment import Deployment, Worker, payload
from tests.support.fleet import START, Fleet, a_call_by, a_listing
from tests.support.inventory import alerts_on_changes

pytestmark = pytest.mark.kafka

START_LIMIT_S = 30.0
QUIET_S = 3.0


async def exit_code(worker: Worker) -> int:
    return await asyncio.to_thread(worker.process.wait, START_LIMIT_S)


def minutes(count: float) -> datetime:
    return START + timedelta(minutes=count)


def by_call(evidence: list[Record]) -> dict[object, dict[str, object]]:
    told = {payload(record)["tool_call_id"]: payload(record) for record in evidence}
    assert len(told) == len(evidence)
    return told


async def test_a_worker_becomes_ready_counts_and_stops(deployment: Deployment) -> None:
    """Readiness goes from 503 to 200, metrics count a call, and SIGTERM ends with 0."""
    worker = deployment.start_worker()
    statuses = []
    while 200 not in statuses:
        assert worker.process.poll() is None, worker.tail()
        status, body = await asyncio.to_thread(worker.get, "/readyz")
        if status:
            statuses.append(status)
            assert json.loads(body)["ready"] is (status == 200)
        await asyncio.sleep(0.02)
    assert set(statuses) == {503, 200}
    assert statuses[0] == 503
    assert worker.get("/healthz")[0] == 200
    await deployment.put(a_listing(0, 0, 0, 1, START), a_call_by(0, 0, 0, minutes(1), "snapshot-1"))
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 1)
    assert worker.metric("assay_stream_records_read_total", stage="join") == 1
    assert worker.metric("assay_stream_records_read_total", stage="registry") == 1
    assert worker.metric("assay_stream_outputs_total", stage="join", what="bound:exact") == 1
    assert await asyncio.to_thread(worker.terminate) == 0


@pytest.fixture
async def bare(broker: Broker, request: pytest.FixtureRequest) -> AsyncIterator[Deployment]:
    with Deployment(broker.bootstrap, name=f"bare-{request.node.name}"[:60]) as made:
        yield made


async def test_a_missing_topic_is_named_with_its_mend(bare: Deployment) -> None:
    """A worker without topics exits 2, names them, and says which command creates them."""
    worker = bare.start_worker()
    assert await exit_code(worker) == 2
    assert "topic_missing" in worker.tail()
    assert bare.topics[Role.CALLS] in worker.tail()
    assert "assay-stream topics apply" in worker.tail()


async def test_topics_that_belong_together_must_agree(bare: Deployment) -> None:
    """Where control has other partitions than snapshots the worker waits, and names both; a signal ends it."""
    async with open_admin(bare.settings) as admin:
        await admin.create_topics(
            [
                NewTopic(name, num_partitions=3 if role is Role.CONTROL else 2, replication_factor=1)
                for role, name in bare.topics.items()
            ]
        )
    worker = bare.start_worker("--role", "registry")
    async with asyncio.timeout(90):
        while worker.get("/readyz")[0] != 503:
            await asyncio.sleep(0.1)
    assert "partition_count: these topics must have the same number" in worker.tail()
    assert f"{bare.topics[Role.SNAPSHOTS]} has 2" in worker.tail()
    assert f"{bare.topics[Role.CONTROL]} has 3" in worker.tail()
    assert worker.terminate() == 0


async def test_a_worker_waits_for_brokers_and_stops_without_them() -> None:
    """Alive, not ready, and naming the address; once they are there it works; a stop is in time if they are gone."""
    with (
        Broker(options=QUICK_START) as broker,
        Deployment(broker.bootstrap, name="away", env={"ASSAY_STREAM_STOP_LIMIT_S": "5"}) as away,
    ):
        await away.apply_topics()
        broker.kill()
        worker = away.start_worker(ASSAY_STREAM_CONNECT_LIMIT_S="1")
        async with asyncio.timeout(60):
            while worker.get("/readyz")[0] != 503:
                await asyncio.sleep(0.1)
        assert worker.get("/healthz")[0] == 200
        assert f"no Kafka broker answers at {broker.bootstrap}" in json.loads(worker.get("/readyz")[1])["waiting_for"]
        broker.start()
        await worker.wait_ready()
        assert worker.terminate() == 0
        worker = await away.ready_worker()
        broker.kill()
        started_s = time.monotonic()
        assert await asyncio.to_thread(worker.terminate) in (0, 3)
        assert time.monotonic() - started_s < 15


async def test_calls_wait_for_the_registry(deployment: Deployment) -> None:
    """Without a registry calls are held and nothing is written; once it runs they are bound, never guessed."""
    join = await deployment.ready_worker("--role", "join")
    await deployment.put(
        a_listing(0, 0, 0, 1, START), a_call_by(0, 0, 0, minutes(1), "snapshot-1"), a_call_by(0, 0, 1, minutes(2), None)
    )
    await asyncio.sleep(QUIET_S)
    assert await deployment.read(Role.EVIDENCE) == []
    assert (join.metric("assay_stream_records_buffered", stage="join") or 0) >= 1
    deployment.start_worker("--role", "registry")
    told = by_call(await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 2))
    assert told["call-0"]["binding"]["scope"] == "exact"  # type: ignore[index]
    assert told["call-1"]["binding"]["scope"] == "observer"  # type: ignore[index]
    assert all("tool_definition_digest" in data for data in told.values())


async def test_a_call_held_too_long_makes_the_worker_unready(deployment: Deployment) -> None:
    """A worker whose calls wait for long says so on /readyz, and does not call itself failed."""
    join = await deployment.ready_worker("--role", "join")
    await deployment.put(a_listing(0, 0, 0, 1, START), a_call_by(0, 0, 0, minutes(1), None))
    for _ in range(200):
        if (await asyncio.to_thread(join.get, "/readyz"))[0] == 503:
            break
        await asyncio.sleep(0.1)
    assert join.get("/readyz")[0] == 503
    assert join.get("/healthz")[0] == 200
    assert await asyncio.to_thread(join.terminate) == 0


async def test_the_hold_limit_ends_the_wait(deployment: Deployment) -> None:
    """With a hold limit a call is written as definition_unavailable when the registry does not come."""
    await deployment.ready_worker("--role", "join", ASSAY_STREAM_HOLD_LIMIT_MS="1000")
    await deployment.put(a_listing(0, 0, 0, 1, START), a_call_by(0, 0, 0, minutes(1), "snapshot-1"))
    (evidence,) = await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 1)
    data = payload(evidence)
    assert data["unbound_reason"] == "definition_unavailable"
    assert "tool_definition_digest" not in data


async def send_nothing(deployment: Deployment, role: Role) -> None:
    """Publish a record with neither key nor value, which a producer only sends in a batch made by hand."""
    async with AIOKafkaProducer(bootstrap_servers=deployment.bootstrap) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=None, timestamp=None, headers=[])
        await (await producer.send_batch(batch, deployment.topics[role], partition=0))


POISON: list[tuple[bytes | None, bytes | None, Headers]] = [
    (b"server-0", None, (("h", b"\xff"),)),
    (None, b"\xff\xfe garbage", (("h", b"1"), ("h", b"2"))),
    (b"\xff", b'{"a":1,"a":2}', (("ce_specversion", b"\xff"),)),
    (b"server-9", b"[" * 100_000, (("error.code", b"forged"),)),
    (b"server-9", b"{}", (("ce_specversion", b"1.0"), ("ce_type", b"mcp.tools.call.observed"))),
]


@pytest.mark.parametrize("role", [Role.CALLS, Role.SNAPSHOTS, Role.CONTROL])
async def test_poison_never_stops_a_partition(deployment: Deployment, role: Role) -> None:
    """Records of no use land in the rejected topic as they were, with the reason, and the next ones are joined."""
    poison = list(POISON)
    if role is Role.SNAPSHOTS:
        poison.append((b"server-9", b"7" * 7_000_000, ()))
    worker = await deployment.ready_worker()
    await send_nothing(deployment, role)
    await deployment.send_with_headers(role, poison * 2)
    await deployment.put(*(a_listing(server, 0, 0, server, datetime.now(UTC)) for server in range(6)))
    later = datetime.now(UTC) + timedelta(minutes=1)
    await deployment.put(*(a_call_by(server, 0, server, later, None) for server in range(6)))
    evidence = await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 6)
    assert {payload(record).get("unbound_reason") for record in evidence} == {None}
    rejected = await deployment.wait_for(Role.REJECTED, lambda records: len(records) > 2 * len(poison))
    assert Counter(
        (record.key, record.value, tuple(header for header in record.headers[:-5])) for record in rejected
    ) == Counter([(None, None, ()), *poison * 2])
    for record in rejected:
        why = dict(record.headers[-5:])
        assert why.keys() == {f"error.{name}" for name in ("code", "message", "topic", "partition", "offset")}
        assert why["error.topic"] == deployment.topics[role].encode()
        assert re.fullmatch(rb"[a-z0-9_]+", why["error.code"])
    assert await asyncio.to_thread(worker.terminate) == 0


async def test_a_sound_list_of_seven_megabytes_stops_nothing(deployment: Deployment) -> None:
    """A sound snapshot near the size limit is taken or refused, and the server's next calls are joined."""
    await deployment.ready_worker()
    role, key, value = a_listing(0, 0, 0, 1, START)
    event = orjson.loads(value)
    event["data"]["tools"][0]["description"] = "d" * 7_000_000
    await deployment.put((role, key, orjson.dumps(event)))
    await deployment.put(a_listing(0, 0, 0, 2, minutes(1)), a_call_by(0, 0, 0, minutes(2), None))
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 1, limit_s=20)


async def test_a_compressed_giant_stops_nothing(deployment: Deployment) -> None:
    """A record that is small on the wire and huge in memory is refused, and the next calls are joined."""
    await deployment.ready_worker()
    giant = b" " * 20_000_000
    _, key, value = a_call_by(0, 0, 0, minutes(2), None)
    async with AIOKafkaProducer(
        bootstrap_servers=deployment.bootstrap, compression_type="gzip", max_request_size=64 * 1024 * 1024
    ) as producer:
        await producer.send_and_wait(deployment.topics[Role.CALLS], key=key, value=giant)
        await producer.send_and_wait(deployment.topics[Role.CALLS], key=key, value=value)
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 1, limit_s=20)
    (rejected,) = await deployment.wait_for(Role.REJECTED, lambda records: len(records) == 1)
    assert dict(rejected.headers)["error.code"] == b"too_large"
    assert dict(rejected.headers)["error.value.encoding"] == b"gzip"
    assert gzip.decompress(rejected.value or b"") == giant


async def test_a_rejected_snapshot_unbinds_later_calls(deployment: Deployment) -> None:
    """After a list that could not be accepted calls are unbound and an alert says so, until the next good list."""
    await deployment.ready_worker()
    now = datetime.now(UTC)
    ahead = [now + timedelta(minutes=count) for count in range(4)]
    await deployment.put(a_listing(0, 0, 0, 1, START), a_call_by(0, 0, 0, minutes(1), None))
    await deployment.send(Role.SNAPSHOTS, [(b"server-0", b'{"tools": [')])
    await deployment.put(a_call_by(0, 0, 1, ahead[1], None))
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 2)
    await deployment.put(a_listing(0, 0, 0, 2, ahead[2]), a_call_by(0, 0, 2, ahead[3], None))
    told = by_call(await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 3))
    reasons = [told[f"call-{number}"].get("unbound_reason") for number in range(3)]
    assert reasons == [None, "snapshot_rejected", None]
    alerts = await deployment.wait_for(Role.ALERTS, lambda records: len(alerts_on_changes(records)) == 1)
    (alert,) = alerts_on_changes(alerts)
    assert json.loads(alert.value or b"")["unmapped"]["mcp_finding_kind"] == "snapshot_rejected"


async def assert_undisturbed(deployment: Deployment, calls: int) -> None:
    """Fail unless the deployment's outputs are those of one pass of the engine over its logs."""
    expected = await undisturbed(deployment)
    evidence = await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= calls)
    assert sorted(values(evidence)) == sorted(expected[Role.EVIDENCE])
    wanted = sorted(of_one_server(expected[Role.ALERTS]))
    await advance_time(deployment, len(expected[Role.FINDINGS]))
    await deployment.wait_for(Role.ALERTS, lambda records: set(wanted) <= set(values(records)))
    assert sorted(values(await deployment.read(Role.EVIDENCE))) == sorted(expected[Role.EVIDENCE])
    assert sorted(values(await findings_of(deployment))) == sorted(expected[Role.FINDINGS])
    assert sorted(of_one_server(values(await deployment.read(Role.ALERTS)))) == wanted


async def test_stages_in_three_processes_do_the_same(deployment: Deployment) -> None:
    """Registry, join and alerts apart write what one worker with all of them writes."""
    workers = [deployment.start_worker("--role", role) for role in ("registry", "join", "alerts")]
    for worker in workers:
        await worker.wait_ready()
    calls = await deployment.publish(Fleet(servers=5, calls=300, changes=10, seed=3).history())
    await assert_undisturbed(deployment, calls)
    for worker in workers:
        assert await asyncio.to_thread(worker.terminate) == 0


async def test_a_rebalance_loses_and_doubles_nothing(deployment: Deployment) -> None:
    """A second worker joins in mid-stream and the first one leaves: one evidence record per call."""
    first = await deployment.ready_worker(ASSAY_STREAM_BATCH_RECORDS_MAX="100")
    history = list(Fleet(servers=7, calls=6_000, changes=30, seed=11).history())
    calls = [(key, value) for role, key, value in history if role is Role.CALLS]
    await deployment.put(*(each for each in history if each[0] is Role.SNAPSHOTS))
    await deployment.send(Role.CALLS, calls[:2_000])
    second = deployment.start_worker(ASSAY_STREAM_BATCH_RECORDS_MAX="100")
    await deployment.send(Role.CALLS, calls[2_000:4_000])
    await second.wait_ready()
    await deployment.send(Role.CALLS, calls[4_000:])
    assert await asyncio.to_thread(first.terminate) == 0
    await assert_undisturbed(deployment, len(calls))
    assert (second.metric("assay_stream_partitions_opened", stage="join") or 0) > 0
    assert await asyncio.to_thread(second.terminate) == 0
