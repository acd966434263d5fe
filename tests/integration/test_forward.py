"""``assay-stream alerts forward`` and ``export`` on real Kafka, with receivers that are down, slow or unwilling.

Here a receiver is down for seconds; ``tests/unit/forward/test_forwarder.py`` counts a whole hour on a clock of its own.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import TopicPartition

from assay_stream.alerts.formats import read_alert, render
from assay_stream.kafka.connection import open_admin, reading_consumer
from assay_stream.model.record import ERROR_HEADERS, Output, Role
from tests.support.alerts import alert_records, finding_of
from tests.support.deployment import Deployment, Worker, free_port
from tests.support.receivers import WebhookServer
from tests.support.services import PagerDuty, Slack, Splunk, Teams
from tests.support.toml import toml_of

pytestmark = pytest.mark.kafka

DOWN_S = 3.0


def forward(deployment: Deployment, *arguments: str, **env: str) -> Worker:
    return deployment.start("alerts", "forward", *arguments, **env)


def logs(deployment: Deployment) -> str:
    return "\n".join(worker.log.read_text() for worker in deployment.workers)


def alerts(count: int, *, first: int = 0) -> list[Output]:
    numbers = range(first, first + count)
    return alert_records(*(finding_of(f"tool-{n}", offset=n, server_id=f"server-{n % 3}") for n in numbers))


def as_sent(alert: Output) -> bytes:
    return render(read_alert(alert.value), "ocsf").encode()


def keys_of(written: list[Output]) -> set[str]:
    bodies = [json.loads(alert.value or b"") for alert in written]
    return {f"{body['finding_info']['uid']}:{body['count']}:{body['activity_id']}" for body in bodies}


async def publish(deployment: Deployment, written: list[Output]) -> None:
    records = [(out.key, out.value, out.headers) for out in written]
    await deployment.send_with_headers(Role.ALERTS, records, transactional=True)


async def until(condition: Callable[[], bool], deployment: Deployment, *, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, logs(deployment)[-3_000:]
        await asyncio.sleep(0.05)


async def lag(deployment: Deployment, group: str) -> int:
    topic = deployment.topics[Role.ALERTS]
    partitions = [TopicPartition(topic, number) for number in range(deployment.settings.input_partitions)]
    async with reading_consumer(deployment.settings) as consumer, open_admin(deployment.settings) as admin:
        ends = await consumer.end_offsets(partitions)
        committed = await admin.list_consumer_group_offsets(group)
    left: int = sum(ends.values()) - sum(max(entry.offset, 0) for entry in committed.values())
    return left


async def test_a_webhook_that_was_down_gets_every_alert(deployment: Deployment) -> None:
    """Down from the start, up, down again for a while, up: all arrive, once each, and the lag showed the wait."""
    before, during = alerts(40), alerts(60, first=40)
    server = WebhookServer(free_port())
    await publish(deployment, before)
    forward(deployment, "--to", f"webhook:{server.url}", "--group", "soc-webhook")
    await until(lambda: "receiver_not_answering" in logs(deployment), deployment)
    with server:
        await until(lambda: len(set(server.keys)) == 40, deployment)
    await publish(deployment, during)
    await asyncio.sleep(DOWN_S)
    assert 60 <= await lag(deployment, "soc-webhook") <= 62, "each partition has a marker behind its alerts"
    with server:
        await until(lambda: set(server.keys) == keys_of(before + during), deployment)
    async with asyncio.timeout(30):
        while await lag(deployment, "soc-webhook"):
            await asyncio.sleep(0.2)
    assert max(Counter(server.keys).values()) == 1
    assert {body for _, body, _ in server.taken} == {as_sent(alert) for alert in before + during}
    assert {headers["content-type"] for _, _, headers in server.taken} == {"application/json"}


async def test_a_refused_alert_is_a_dead_letter(deployment: Deployment) -> None:
    """What the receiver refuses for good, and what is no alert, stand there with bytes, headers and reason."""
    written = alerts(10)
    poison = written[4]
    wanted = keys_of(written) - keys_of([poison])
    server = WebhookServer(free_port(), lambda _, body: (422 if body == as_sent(poison) else 200, {}))
    await publish(deployment, written)
    await deployment.send(Role.ALERTS, [(b"server-0", b'{"no": "alert"}'), (b"server-1", None)])
    with server:
        forward(deployment, "--to", f"webhook:{server.url}")
        await until(lambda: set(server.keys) == wanted, deployment)
        dead = await deployment.wait_for(Role.DEAD_LETTERS, lambda records: len(records) == 3)
    by_value = {record.value: record for record in dead}
    assert by_value.keys() == {poison.value, b'{"no": "alert"}', None}
    letter = by_value[poison.value]
    assert letter.key == poison.key
    assert tuple(letter.headers[: len(poison.headers)]) == poison.headers
    why = dict(letter.headers[len(poison.headers) :])
    assert tuple(why) == ERROR_HEADERS
    assert why["error.code"] == b"refused_by_receiver"
    assert b"http_422" in why["error.message"]
    assert dict(by_value[None].headers)["error.code"] == b"not_an_alert"


@pytest.mark.tier(name="outages")
async def test_a_killed_forwarder_loses_nothing(deployment: Deployment) -> None:
    """``kill -9`` in mid-stream: the next one delivers the rest, and repeats bear the key they had."""
    written = alerts(150)
    server = WebhookServer(free_port(), delay_s=0.02)
    await publish(deployment, written)
    with server:
        for stage in (30, 80):
            process = forward(deployment, "--to", f"webhook:{server.url}")
            await until(lambda stage=stage: len(server.taken) >= stage, deployment)  # type: ignore[misc]
            process.kill()
        forward(deployment, "--to", f"webhook:{server.url}")
        await until(lambda: set(server.keys) == keys_of(written), deployment)
    by_key: dict[str, set[bytes]] = {}
    for key, body, _ in server.taken:
        by_key.setdefault(key, set()).add(body)
    assert all(len(bodies) == 1 for bodies in by_key.values())


async def test_forwarders_of_one_group_share_the_work(deployment: Deployment) -> None:
    """One joins and one is told to leave in mid-stream: every alert arrives, and each had a partition."""
    written = alerts(600)
    server = WebhookServer(free_port(), delay_s=0.05)

    def each_has_one() -> bool:
        return all(re.search(r'"partitions": \[\d\]', each.log.read_text()) for each in deployment.workers)

    await publish(deployment, written)
    with server:
        first = forward(deployment, "--to", f"webhook:{server.url}")
        await until(lambda: len(server.taken) >= 20, deployment)
        forward(deployment, "--to", f"webhook:{server.url}")
        await until(each_has_one, deployment)
        assert set(server.keys) != keys_of(written), "all was delivered before the second one came"
        assert await asyncio.to_thread(first.terminate, 15) == 0
        server.delay_s = 0.0
        await until(lambda: set(server.keys) == keys_of(written), deployment)


async def test_a_forwarder_that_is_told_to_stop_keeps_its_place(deployment: Deployment) -> None:
    """SIGTERM ends it soon, also while it waits for its receiver; what was delivered is not delivered again."""
    server = WebhookServer(free_port())
    await publish(deployment, alerts(20))
    process = forward(deployment, "--to", f"webhook:{server.url}")
    with server:
        await until(lambda: len(server.taken) == 20, deployment)
    await publish(deployment, alerts(5, first=20))
    await until(lambda: "receiver_not_answering" in logs(deployment), deployment)
    assert await asyncio.to_thread(process.terminate, 15) == 0
    with server:
        forward(deployment, "--to", f"webhook:{server.url}")
        await until(lambda: len(server.taken) >= 25, deployment)
        await asyncio.sleep(1.0)
    assert Counter(server.keys) == Counter(keys_of(alerts(25)))


async def test_export_reads_the_topic_once(deployment: Deployment) -> None:
    """Every alert that the topic holds is a line; a server or a severity can be asked for."""
    await publish(deployment, alerts(9))

    lines = (await deployment.output_of("alerts", "export")).splitlines()
    assert {line.encode() for line in lines} == {as_sent(alert) for alert in alerts(9)}
    assert len((await deployment.output_of("alerts", "export", "--server-id", "server-1")).splitlines()) == 3
    assert await deployment.output_of("alerts", "export", "--severity", "critical") == ""


async def test_a_receiver_that_is_down_holds_up_no_other(deployment: Deployment, tmp_path: Path) -> None:
    """Four services in one file, Splunk down for a while: the others get theirs at once, Splunk all of it later.

    Nothing of a secret is in the log or in the arguments of the process.
    """
    splunk, slack, teams, pager = Splunk(free_port()), Slack(free_port()), Teams(free_port()), PagerDuty(free_port())
    secrets = {"token": splunk.token, "slack": slack.url, "teams": teams.url, "key": pager.routing_key}
    for name, secret in secrets.items():
        (tmp_path / name).write_text(secret + "\n")
    receivers: list[dict[str, object]] = [
        {"name": "splunk", "type": "splunk_hec", "url": splunk.base, "token_file": str(tmp_path / "token")},
        {"name": "chat", "type": "slack", "url_file": str(tmp_path / "slack"), "servers": ["server-1"]},
        {"name": "teams", "type": "teams", "url_file": str(tmp_path / "teams"), "min_severity": "high"},
        {
            "name": "pager",
            "type": "pagerduty",
            "url": pager.url,
            "routing_key_file": str(tmp_path / "key"),
            "min_severity": "critical",
        },
    ]
    config = tmp_path / "receivers.toml"
    config.write_text(toml_of({"receivers": [{"start": "oldest", **each} for each in receivers]}))
    before, during = alerts(12), alerts(12, first=12)
    prefix = deployment.settings.group_prefix
    await publish(deployment, before)
    with slack, teams, pager:
        process = forward(deployment, "--config", str(config))
        with splunk:
            await until(lambda: len(splunk.taken) == len(teams.taken) == 12, deployment)
        await publish(deployment, during)
        await until(lambda: len(teams.taken) == 24 and len(slack.taken) == 8, deployment)
        await until(lambda: "receiver_not_answering" in logs(deployment), deployment)
        await asyncio.sleep(DOWN_S)
        assert len(splunk.taken) == 12
        assert await lag(deployment, f"{prefix}-forward-splunk") >= 12
        with splunk:
            await until(lambda: len(splunk.taken) >= 24, deployment)
        arguments = Path(f"/proc/{process.process.pid}/cmdline").read_bytes().decode()
        assert await asyncio.to_thread(process.terminate, 20) == 0
    assert {event["event"]["uid"] for event in splunk.taken} == {
        key.partition(":")[0] for key in keys_of(before + during)
    }
    assert pager.taken == [], "none was critical"
    for secret in ("hidden", splunk.token):
        assert secret not in logs(deployment) + arguments
