"""Time passes for an alert on real Kafka."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from assay_stream.model.record import Record, Role
from tests.support.deployment import Deployment
from tests.support.fleet import a_listing
from tests.support.inventory import alerts_on_changes

pytestmark = pytest.mark.kafka

QUICK = {"ASSAY_STREAM_ALERT_TICK_S": "1", "ASSAY_STREAM_ALERT_SETTLE_S": "1"}


async def lists(deployment: Deployment, version: int, number: int, when: datetime) -> None:
    await deployment.put(a_listing(0, 0, version, number, when))


def told(records: list[Record]) -> list[tuple[str, str]]:
    bodies = [json.loads(record.value or b"") for record in records]
    return [(body["activity_name"], body["status"]) for body in bodies]


async def alerts(deployment: Deployment, count: int) -> list[Record]:
    enough = await deployment.wait_for(
        Role.ALERTS, lambda records: len(alerts_on_changes(records)) >= count, limit_s=30
    )
    return alerts_on_changes(enough)


async def test_an_alert_closes_by_the_clock(deployment: Deployment) -> None:
    """The old definition returns, nothing else happens, and after the settling time the alert is closed."""
    worker = await deployment.ready_worker(**QUICK)
    now = datetime.now(UTC)
    for number, version in enumerate((0, 1, 0)):
        await lists(deployment, version, number, now - timedelta(seconds=60 - 10 * number))
    written = await alerts(deployment, 2)
    assert told(written) == [("Create", "New"), ("Close", "Resolved")]
    await asyncio.sleep(3)
    assert len(alerts_on_changes(await deployment.read(Role.ALERTS))) == 2
    ticks = [record for record in await deployment.read(Role.FINDINGS) if b'"tick"' in (record.value or b"")]
    assert 1 <= len(ticks) <= 3, "a tick is written where something is due, and nowhere else"
    assert await asyncio.to_thread(worker.terminate) == 0
