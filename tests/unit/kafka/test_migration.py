"""What is left to do until calls are keyed by server. On real Kafka: tests/integration/test_keyed.py."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka import log_dirs, migration
from assay_stream.kafka.migration import CallSample, migrate, plan_migration
from assay_stream.kafka.topics import TopicState, topic_table
from assay_stream.model.record import Role
from tests.support.log_ranges import LogsInMemory, stand_in

SIMPLE = Settings(input_partitions=2, call_partitions=4, replication_factor=3)
KEYED = migration.keyed(SIMPLE)
ADMIN: Any = None


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[Role, int]:
    """Partition counts, to be changed: those of a deployment in the simple mode."""
    counts = {spec.role: spec.partitions for spec in topic_table(SIMPLE)}

    async def inspect(_: object, settings: Settings) -> list[TopicState]:
        return [
            TopicState(spec=spec, partitions=counts.get(spec.role, 0), differing={}) for spec in topic_table(settings)
        ]

    async def create(_: object, __: Settings, specs: list[Any]) -> None:
        counts.update({spec.role: spec.partitions for spec in specs})

    async def wait(*_: object) -> None:
        """Nothing to wait for."""

    monkeypatch.setattr(migration, "inspect_topics", inspect)
    monkeypatch.setattr(migration, "create_topics", create)
    monkeypatch.setattr(migration, "wait_for_topics", wait)
    stand_in(monkeypatch, migration, LogsInMemory([]))
    return counts


def misplaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let half of a thousand calls, of a kilobyte each, be misplaced among the latest ten."""

    async def sample(*_: object) -> CallSample:
        return CallSample(looked_at=10, misplaced=5, misplaced_bytes=5_000, there=1_000)

    monkeypatch.setattr(migration, "_sample", sample)


async def test_topics_are_created_as_the_calls_are(cluster: dict[Role, int]) -> None:
    """Whatever the settings say; a second migration has nothing to create."""
    cluster.update(dict.fromkeys((Role.CALLS, Role.EVIDENCE, Role.CHECKPOINTS), 8))
    plan, created = await migrate(ADMIN, SIMPLE, disk_free_bytes=None)
    assert created == ["assay.call.progress", "assay.call.rerouted"]
    assert cluster[Role.REROUTED] == cluster[Role.JOIN_PROGRESS] == 8
    assert [step.is_ours for step in plan.steps] == [True, True, False]
    assert (await migrate(ADMIN, SIMPLE, disk_free_bytes=None))[1] == []
    assert (await plan_migration(ADMIN, KEYED)).steps == ()


@pytest.mark.parametrize(
    ("given", "told", "code"),
    [
        (1_499_999, 1_500_000, "disk_too_small"),
        (1_500_000, 1_499_999, None),
        (None, 1_499_999, "disk_too_small"),
        (None, 1_500_000, None),
        (None, None, "disk_not_known"),
    ],
)
async def test_too_little_disk_stops_a_migration_before_it_starts(
    cluster: dict[Role, int], monkeypatch: pytest.MonkeyPatch, given: int | None, told: int | None, code: str | None
) -> None:
    """Half of a thousand calls once more, on three replicas; what an operator says goes before what brokers tell."""

    async def free_bytes(_: object) -> int | None:
        return told

    monkeypatch.setattr(log_dirs, "disk_free_bytes", free_bytes)
    misplaced(monkeypatch)
    if code is None:
        assert (await migrate(ADMIN, SIMPLE, disk_free_bytes=given))[1]
        return
    with pytest.raises(ConfigurationError) as caught:
        await migrate(ADMIN, SIMPLE, disk_free_bytes=given)
    assert caught.value.code == code
    assert Role.REROUTED not in cluster


async def test_a_topic_of_other_counts_is_named(cluster: dict[Role, int]) -> None:
    """As a worker would, before anything is created."""
    cluster[Role.REROUTED] = 3
    with pytest.raises(ConfigurationError) as caught:
        await migrate(ADMIN, SIMPLE, disk_free_bytes=None)
    assert caught.value.code == "partition_count"
    assert Role.JOIN_PROGRESS not in cluster


async def test_counts_that_do_not_fit_are_planned_around(cluster: dict[Role, int]) -> None:
    """A deployment beside this one; nothing is created here."""
    cluster.update(dict.fromkeys((Role.CALLS, Role.EVIDENCE, Role.CHECKPOINTS), 5))
    plan = await plan_migration(ADMIN, SIMPLE)
    assert not plan.fits
    assert plan.missing == ()
    assert "ASSAY_STREAM_CALL_PARTITIONS=6" in plan.steps[0].text
    with pytest.raises(ConfigurationError) as caught:
        await migrate(ADMIN, SIMPLE, disk_free_bytes=None)
    assert caught.value.code == "partitions_do_not_fit"


async def test_a_deployment_without_topics_is_told_to_make_them(cluster: dict[Role, int]) -> None:
    """First things first."""
    cluster.clear()
    with pytest.raises(ConfigurationError) as caught:
        await plan_migration(ADMIN, SIMPLE)
    assert caught.value.code == "topic_missing"
