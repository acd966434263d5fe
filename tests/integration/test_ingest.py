"""``assay-stream ingest`` on real Kafka: what is accepted, from whom, how often, and what an outage does."""

import asyncio
import os
import re
import ssl
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from assay_stream.model.record import Record, Role, murmur2_partition
from assay_stream.observe.publisher import ObservationPublisher
from deploy.local.kafka import QUICK_START, Broker, free_ports
from deploy.local.kafka_place import HOST, Place
from tests.support.deployment import Deployment
from tests.support.https_server import Authority
from tests.support.ingest import BATCH, STRUCTURED, Ingest, a_call, a_list, batch, ingest_of, until
from tests.support.relay import Relay

pytestmark = pytest.mark.kafka


@pytest.fixture
def ingest(deployment: Deployment, tmp_path: Path) -> Iterator[Ingest]:
    with ingest_of(deployment, tmp_path) as made:
        made.add_client()
        yield made


def as_published(record: Record) -> tuple[object, ...]:
    return (record.origin.partition, record.key, record.value, record.headers, record.timestamp_ms)


async def test_what_ingest_publishes_is_what_the_publisher_publishes(deployment: Deployment, ingest: Ingest) -> None:
    """Partition, key, value, headers and timestamp, for lists and calls, alone and in a batch."""
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    observations = [a_list(1), a_call(2), a_call(3, traceparent=trace)]
    address = await ingest.start()
    assert (await address.send(observations[0].value)).outcomes == ["accepted"]
    reply = await address.send(batch(*observations[1:]), BATCH)
    assert (reply.status, reply.outcomes) == (202, ["accepted", "accepted"])
    with ObservationPublisher({"bootstrap_servers": deployment.bootstrap}, topics=deployment.topics) as publisher:
        for observation in observations:
            publisher.publish(observation)
    for role, count in ((Role.SNAPSHOTS, 1), (Role.CALLS, 2)):
        records = [as_published(record) for record in await deployment.read(role)]
        assert records[:count] == records[count:]
        assert len(records) == 2 * count
        assert {murmur2_partition(b"time", 2 if role is Role.SNAPSHOTS else 3)} == {record[0] for record in records}


async def test_an_event_is_published_once_after_a_kill_and_by_two_processes(
    deployment: Deployment, ingest: Ingest
) -> None:
    """The window is in Kafka: a process that starts, or another one, knows what was accepted."""
    first, second = await asyncio.gather(ingest.start(), ingest.start())
    events = [a_call(number) for number in range(1, 21)]
    assert set((await first.send(batch(*events), BATCH)).outcomes) == {"accepted"}
    assert set((await first.send(batch(*events), BATCH)).outcomes) == {"duplicate"}
    await asyncio.sleep(1.0)  # until the second has read what the first accepted
    assert set((await second.send(batch(*events), BATCH)).outcomes) == {"duplicate"}
    first.process.kill()
    third = await ingest.start()
    assert set((await third.send(batch(*events), BATCH)).outcomes) == {"duplicate"}
    assert len(await deployment.read(Role.CALLS)) == 20


async def test_a_token_counts_from_its_entry_to_its_end(ingest: Ingest) -> None:
    """Made while the process runs, withdrawn, expired, altered, or none at all."""
    expired = ingest.add_client("gw-3", ["*"], expires="2026-01-01T00:00:00Z")
    address = await ingest.start()
    reply = await address.send(a_call(1, observer="gw-3").value, token=expired)
    assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
    late = ingest.add_client("gw-4", ["*"])
    await asyncio.sleep(2.1)
    assert (await address.send(a_call(1, observer="gw-4").value, token=late)).status == 202
    path = ingest.folder / "clients.toml"
    before = path.read_text().partition('[[clients]]\n"observer_id" = "gw-4"')[0]
    path.write_text(before)
    await asyncio.sleep(2.1)
    for token in (late, late[:-1] + "A", "x" * 47, "", " "):
        assert (await address.send(a_call(2, observer="gw-4").value, token=token or "-")).status == 401


def in_any(records: list[Record], secret: bytes) -> bool:
    return any(
        secret in part
        for record in records
        for part in (record.key or b"", record.value or b"", *(value for _, value in record.headers))
    )


async def test_no_token_is_in_a_topic_a_log_or_the_file(deployment: Deployment, ingest: Ingest) -> None:
    """Nor does an answer or a log quote what was sent."""
    address = await ingest.start()
    token = ingest.tokens["gw-1"]
    planted = "planted-secret-4711"
    await address.send(a_call(1).value)
    await address.send(a_call(2).value.replace(b'"allow"', f'"{planted}"'.encode()))
    await address.send(f'{{"{planted}": {planted}'.encode())
    await address.send(planted.encode(), "text/plain", X_Planted=planted)
    await address.send(b"{}", token=token + planted)
    address.process.terminate()
    texts = [path.read_bytes() for path in ingest.folder.iterdir()]
    for secret in (token.encode(), planted.encode()):
        assert not any(secret in text for text in texts)
        for role in (Role.CALLS, Role.SNAPSHOTS, Role.INGESTED):
            assert not in_any(await deployment.read(role), secret)


@pytest.mark.tier(name="outages")
async def test_an_outage_of_the_brokers_accepts_nothing_that_is_lost(tmp_path: Path) -> None:
    """While they are away every answer is 503 or 429; afterwards each accepted event is there, and each only once.

    They are events of now: a broker that starts again has forgotten who wrote those of a day ago (docs/ingest.md).
    """
    now = datetime.now(UTC)
    with (
        Broker(options=QUICK_START) as broker,
        ingest_of(Deployment(broker.bootstrap, name="away"), tmp_path) as ingest,
    ):
        await ingest.deployment.apply_topics()
        ingest.add_client()
        address = await ingest.start()
        accepted: set[bytes] = set()
        statuses: Counter[int] = Counter()
        stop = asyncio.Event()

        async def client(number: int) -> None:
            for first in range(number * 100_000, number * 100_000 + 100_000, 10):
                events = [a_call(each, observed_at=now) for each in range(first, first + 10)]
                while True:
                    reply = await address.send(batch(*events), BATCH)
                    statuses[reply.status] += 1
                    if reply.status == 202:
                        accepted.update(each.value for each in events)
                        break
                    assert reply.status in (429, 503)
                    assert int(reply.headers["Retry-After"]) > 0
                    if stop.is_set():
                        return
                    await asyncio.sleep(0.5)
                if stop.is_set():
                    return

        clients = [asyncio.create_task(client(number)) for number in range(3)]
        await until(lambda: len(accepted) >= 100)
        await asyncio.to_thread(broker.kill)
        await until(lambda: statuses[503] >= 3, limit_s=60)
        assert address.process.get("/readyz")[0] == 503
        await asyncio.to_thread(broker.start)
        before = len(accepted)
        await until(lambda: len(accepted) >= before + 100, limit_s=90)
        stop.set()
        await asyncio.gather(*clients)
        values = [record.value for record in await ingest.deployment.read(Role.CALLS)]
        assert accepted <= set(values)
        assert len(values) == len(set(values)), "published twice"


@pytest.mark.tier(name="outages")
async def test_what_a_broker_stored_before_it_died_is_published_once(tmp_path: Path) -> None:
    """Its answer was lost, so it is sent again; the broker knows the batch by its producer and its number."""
    port, controller, behind, relayed = free_ports(4)
    place = Place(port=port, voters={1: controller}, relayed=(behind, relayed))
    with (
        Broker(place=place, options=QUICK_START) as broker,
        Relay(relayed) as relay,
        ingest_of(Deployment(f"{HOST}:{relayed}", name="unheard"), tmp_path) as ingest,
    ):
        relay.target_port = behind
        deployment = Deployment(broker.bootstrap, name="unheard")
        await deployment.apply_topics()
        ingest.add_client()
        address = await ingest.start()
        now = datetime.now(UTC)
        events = [a_call(number, observed_at=now) for number in range(11)]
        assert (await address.send(events[0].value)).status == 202
        relay.loses_answers = True
        attempt = asyncio.create_task(address.send(batch(*events[1:]), BATCH))
        await deployment.wait_until_written(Role.CALLS, 11)
        await asyncio.to_thread(broker.kill)
        relay.loses_answers = False
        await asyncio.to_thread(broker.start)
        assert (await attempt).status in (202, 503)
        while (await address.send(batch(*events[1:]), BATCH)).status != 202:
            await asyncio.sleep(0.5)
        assert len(await deployment.read(Role.CALLS)) == 11


async def test_a_certificate_names_a_client(deployment: Deployment, tmp_path: Path) -> None:
    """Over TLS, by an alternative name; without a certificate it is nobody."""
    authority = Authority(tmp_path)
    server, known, unknown = authority.issue("127.0.0.1"), authority.issue("gw-9.internal"), authority.issue("evil")
    with ingest_of(deployment, tmp_path) as ingest:
        (tmp_path / "clients.toml").write_text(
            '[[clients]]\nobserver_id = "gw-9"\nservers = ["time"]\ncertificate = "DNS:gw-9.internal"\n'
        )
        address = await ingest.start("--tls-cert", str(server), "--client-ca", str(authority.file))
        statuses = []
        for certificate in (known, unknown, None):
            context = ssl.create_default_context(cafile=str(authority.file))
            if certificate is not None:
                context.load_cert_chain(certificate)
            async with httpx2.AsyncClient(verify=context) as client:
                url = address.url.replace("http://", "https://")
                headers = {"Content-Type": STRUCTURED}
                answer = await client.post(url, content=a_call(1, observer="gw-9").value, headers=headers)
                statuses.append(answer.status_code)
        assert statuses == [202, 401, 401]


async def test_the_line_of_the_readme_works(deployment: Deployment, ingest: Ingest) -> None:
    """As it stands there, but for the port."""
    [row] = [line for line in Path("README.md").read_text().splitlines() if line.startswith("| anything that can POST")]
    command = re.findall("`(curl [^`]*)`", row)[0]
    address = await ingest.start()
    (ingest.folder / "event.json").write_bytes(a_call(1).value)
    done = await asyncio.to_thread(
        subprocess.run,
        ["sh", "-c", f"{command} --silent --fail".replace(":8088", f":{address.port}")],
        cwd=ingest.folder,
        env=os.environ | {"TOKEN": ingest.tokens["gw-1"]},
        capture_output=True,
    )
    assert (done.returncode, done.stdout) == (0, b'{"outcomes":[{"index":0,"outcome":"accepted"}]}')
    assert [record.value for record in await deployment.read(Role.CALLS)] == [a_call(1).value]
