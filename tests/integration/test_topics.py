"""``assay-stream topics`` on real Kafka."""

import json

import pytest
from aiokafka.admin import NewTopic

from assay_stream.kafka.connection import open_admin
from assay_stream.kafka.topics import topic_table
from assay_stream.model.record import TOPICS, Role
from deploy.local.kafka import Broker
from tests.support.deployment import Deployment

pytestmark = pytest.mark.kafka


@pytest.fixture
def bare(broker: Broker, request: pytest.FixtureRequest) -> Deployment:
    return Deployment(broker.bootstrap, name=f"topics-{request.node.name}"[:60])


def states(deployment: Deployment, **env: str) -> dict[str, str]:
    shown = deployment.run("topics", "show", "--json", **env).stdout.splitlines()
    return {row["name"]: row["state"] for row in map(json.loads, shown)}


async def create(deployment: Deployment, name: str, partitions: int, **config: str) -> None:
    async with open_admin(deployment.settings) as admin:
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, topic_configs=config)
        await admin.create_topics([topic])


def test_apply_creates_every_topic_once(bare: Deployment) -> None:
    """The first run creates what is missing and names it; the second has nothing to do."""
    first = bare.run("topics", "apply")
    assert first.returncode == 0, first.stderr
    wanted = {spec.name for spec in topic_table(bare.settings)}
    assert {line.removeprefix("created ") for line in first.stdout.splitlines()} == wanted
    second = bare.run("topics", "apply")
    assert (second.returncode, second.stdout) == (0, "nothing to do: every topic exists\n")
    assert set(states(bare).values()) == {"ok"}


def test_a_mirror_that_is_not_there_is_not_to_be_created(bare: Deployment) -> None:
    """Topics under the name of a lost cluster come from MirrorMaker, and nothing else may write there."""
    bare.run("topics", "apply")
    done = bare.run("topics", "restore-mirror", "nowhere")
    assert (done.returncode, "topic_missing: no such topic: nowhere." in done.stderr) == (2, True)
    assert ("topics apply" in done.stderr, "docs/failover.md" in done.stderr) == (False, True)


def test_other_partitions_are_refused_and_left_alone(bare: Deployment) -> None:
    """apply never alters a topic: it says what differs, exits 2, and show exits 1."""
    bare.run("topics", "apply")
    more = {"ASSAY_STREAM_CALL_PARTITIONS": "6"}
    done = bare.run("topics", "apply", **more)
    assert done.returncode == 2
    assert "topic_differs" in done.stderr
    assert f"{bare.topics[Role.CALLS]} has 4 partitions, 6 were asked for" in done.stderr
    differing = {name for name, state in states(bare, **more).items() if state == "differs"}
    assert differing == {bare.topics[role] for role in Role if TOPICS[role].together == "calls"}
    assert bare.run("topics", "show", **more).returncode == 1
    assert bare.run("topics", "show").returncode == 0


async def test_another_setting_is_refused_and_nothing_created(bare: Deployment) -> None:
    """A binding topic that deletes is named with both values, and the missing topics stay missing."""
    name = bare.topics[Role.BINDINGS]
    await create(bare, name, 2, **{"cleanup.policy": "delete"})
    done = bare.run("topics", "apply")
    assert done.returncode == 2
    assert "topic_differs" in done.stderr
    assert f"{name} has cleanup.policy=delete, compact was asked for" in done.stderr
    found = states(bare)
    assert found.pop(name) == "differs"
    assert set(found.values()) == {"missing"}
