"""Releases with different format levels take turns on one broker, until the later one is finalised."""

import asyncio
import json
from dataclasses import replace

import pytest

from assay_stream import __version__
from assay_stream.kafka.connection import open_admin
from assay_stream.kafka.ranges import list_members
from assay_stream.model.record import Role
from assay_stream.model.state_table import KEY
from tests.support.deployment import Deployment, waits_for
from tests.support.fleet import START, a_call_by, a_listing
from tests.support.future_release import NEW_FACT, NEW_STATE

pytestmark = pytest.mark.kafka

FUTURE = ("-m", "tests.support.future_release")
STATE = (Role.BINDINGS, Role.ALERT_STATES, Role.JOIN_PROGRESS)


async def observe(deployment: Deployment, number: int) -> None:
    """Publish a list and a call, and wait for the evidence."""
    await deployment.put(a_listing(0, 0, number, 1, START))
    await deployment.put(a_call_by(0, 0, number, START, None))
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) > number)


async def test_releases_take_turns_until_one_is_finalised(deployment: Deployment) -> None:
    """Then the one before refuses by name and changes nothing, whatever of it is started; the later one goes on."""
    future = replace(deployment, program=FUTURE)
    for number, release in enumerate((deployment, future, deployment)):
        worker = await release.ready_worker()
        await observe(deployment, number)
        if number < 2:
            assert worker.terminate() == 0
    refused = await asyncio.to_thread(future.run_own, "topics", "finalize", "--yes")
    assert refused.returncode == 2
    assert f"assay-stream-{__version__}-level1 at 127.0.0.1 reads up to level 1" in refused.stdout
    assert "members_behind: 3 of 3 members" in refused.stderr
    assert worker.terminate() == 0
    assert (await asyncio.to_thread(future.run_own, "topics", "finalize", "--yes")).returncode == 0
    again = await asyncio.to_thread(future.run_own, "topics", "finalize", "--yes")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "nothing to do")
    before = [await deployment.read(role) for role in STATE]
    old = deployment.start_worker()
    assert "run assay-stream 0.2.0 or later" in await waits_for(old, "format_too_new")
    assert [await deployment.read(role) for role in STATE] == before
    await future.ready_worker()
    await observe(deployment, 3)
    assert old.terminate() == 0
    for role, key in ((Role.BINDINGS, NEW_FACT), (Role.ALERT_STATES, NEW_STATE)):
        records = await deployment.read(role)
        for partition in {each.origin.partition for each in records if each.key == key}:
            keys = [each.key for each in records if each.origin.partition == partition]
            assert keys.index(KEY) < keys.index(key)
    lowered = await asyncio.to_thread(deployment.run, "topics", "finalize", "--yes")
    assert (lowered.returncode, "never lowered" in lowered.stderr) == (2, True)
    shown = await asyncio.to_thread(deployment.run, "topics", "show", "--json")
    levels = {row["name"]: row["format_level"] for row in map(json.loads, shown.stdout.splitlines())}
    assert levels[deployment.topics[Role.BINDINGS]] == 2
    assert levels[deployment.topics[Role.EVIDENCE]] is None
    for command in (("store", "run", "--once", "--store", str(deployment.folder() / "store")), ("tools", "list")):
        done = await asyncio.to_thread(deployment.run, *command)
        assert (done.returncode, "format_too_new" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("role", "key", "value", "code"),
    [
        (Role.BINDINGS, KEY, b'{"by":"0.2.0","level":2,"since":1}', "format_too_new"),
        (Role.BINDINGS, NEW_FACT, b"{}", "foreign_fact"),
        (Role.ALERT_STATES, KEY, b'{"by":"0.2.0","level":2}', "format_too_new"),
        (Role.ALERT_STATES, NEW_STATE, b"{}", "unknown_state"),
        (Role.FINDINGS, b"server", b'{"kind":"insight","uid":"0"}', "unknown_finding"),
    ],
)
async def test_a_worker_that_meets_what_it_does_not_know_waits_outside_its_group(
    deployment: Deployment, role: Role, key: bytes, value: bytes, code: str
) -> None:
    """Also where nothing is finalised, as in a copy of topics. It is no crash loop, and takes no partitions."""
    await deployment.send(role, [(key, value)])
    worker = deployment.start_worker()
    await waits_for(worker, code)
    async with open_admin(deployment.settings) as admin:
        assert await list_members(admin, deployment.settings) == []
    assert worker.terminate() == 0
