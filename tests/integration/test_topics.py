"""``assay-stream topics`` on real Kafka."""

import json

import pytest

from assay_stream.kafka.topics import topic_table
from deploy.local.kafka import Broker
from tests.support.deployment import Deployment

pytestmark = pytest.mark.kafka


@pytest.fixture
def bare(broker: Broker, request: pytest.FixtureRequest) -> Deployment:
    return Deployment(broker.bootstrap, name=f"topics-{request.node.name}"[:60])


def states(deployment: Deployment, **env: str) -> dict[str, str]:
    shown = deployment.run("topics", "show", "--json", **env).stdout.splitlines()
    return {row["name"]: row["state"] for row in map(json.loads, shown)}


def test_apply_creates_every_topic_once(bare: Deployment) -> None:
    """The first run creates what is missing and names it; the second has nothing to do."""
    first = bare.run("topics", "apply")
    assert first.returncode == 0, first.stderr
    wanted = {spec.name for spec in topic_table(bare.settings)}
    assert {line.removeprefix("created ") for line in first.stdout.splitlines()} == wanted
    second = bare.run("topics", "apply")
    assert (second.returncode, second.stdout) == (0, "nothing to do: every topic exists\n")
    assert set(states(bare).values()) == {"ok"}
