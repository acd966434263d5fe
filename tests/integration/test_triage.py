"""Work on an alert as control records, on real Kafka: author, time and the alert's life, live and in a replay."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from assay_stream import __version__
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Record, Role
from assay_stream.replay.run import replay
from tests.support.controls import control_at
from tests.support.deployment import Deployment
from tests.support.fleet import a_listing
from tests.support.inventory import alerts_on_changes

pytestmark = pytest.mark.kafka

ACTS = (("acknowledge", "ann"), ("assign", "ann"), ("comment", "bob"), ("close", "bob"), ("reopen", "eve"))


async def acts(deployment: Deployment, act: str, author: str, uid: str, when: datetime) -> None:
    """A person does something with an alert; whom it is assigned to is said with `assign`."""
    assignee = "carl" if act == "assign" else None
    said = {"alert": uid, "author": author, "reason": f"{act}, says {author}", "assignee": assignee}
    control = control_at(when, f"alert.{act}", when.second, server_id="server-0", **said)
    await deployment.send(Role.CONTROL, [(b"server-0", control)])


def told(record: Record) -> tuple[Any, ...]:
    """Second and status of an alert, the act and its author, who acknowledged it, whose it is, and the comment."""
    body = json.loads(record.value or b"")
    names = ("mcp_act", "mcp_act_by", "mcp_acknowledged_by", "mcp_assigned_to")
    people = (body["unmapped"].get(name) for name in names)
    return body["time"] // 1_000, body["status"], *people, body.get("comment")


async def replayed(deployment: Deployment) -> list[bytes]:
    inputs = [record for role in (Role.CONTROL, Role.SNAPSHOTS) for record in await deployment.read(role)]
    count = deployment.settings.input_partitions
    made = replay(inputs, producer=Producer(version=__version__), snapshot_partitions=count)
    found = [Record(Role.ALERTS, inputs[0].origin, o.key, o.value) for o in made if o.role is Role.ALERTS]
    return [record.value or b"" for record in alerts_on_changes(found)]


async def test_work_on_an_alert_is_part_of_its_life(deployment: Deployment) -> None:
    """Each act is written once with its author and its own time, though the worker is killed in the middle."""
    worker = await deployment.ready_worker()
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=50)
    for version in (0, 1):
        await deployment.put(a_listing(0, 0, version, version, start + timedelta(seconds=version)))
    written = await deployment.wait_for(Role.ALERTS, lambda records: len(alerts_on_changes(records)) == 1)
    [created] = alerts_on_changes(written)
    uid = json.loads(created.value or b"")["finding_info"]["uid"]
    for number, (act, author) in enumerate(ACTS, 1):
        await acts(deployment, act, author, uid, start + timedelta(seconds=10 * number))
        if act == "comment":
            # Whether it was processed or not: the next worker goes on where this one had committed.
            worker.kill()
            worker = await deployment.ready_worker()
    enough = await deployment.wait_for(
        Role.ALERTS, lambda records: len(alerts_on_changes(records)) == 1 + len(ACTS), limit_s=60
    )
    live = alerts_on_changes(enough)
    since = int(start.timestamp())
    assert [told(record) for record in live] == [
        (since + 1, "New", None, None, None, None, None),
        (since + 10, "In Progress", "acknowledge", "ann", "ann", None, "acknowledge, says ann"),
        (since + 20, "In Progress", "assign", "ann", "ann", "carl", "assign, says ann"),
        (since + 30, "In Progress", "comment", "bob", "ann", "carl", "comment, says bob"),
        (since + 40, "Resolved", "close", "bob", None, "carl", "close, says bob"),
        (since + 50, "In Progress", "reopen", "eve", None, "carl", "reopen, says eve"),
    ]
    assert [record.value for record in live] == await replayed(deployment)
    assert await asyncio.to_thread(worker.terminate) == 0
