"""From calls in any partition to calls keyed by server: what is there, what is needed, and the steps between.

No record is moved or deleted. What Kafka has to do is to create two topics, each of which may be there already: a
migration that was interrupted goes on where it stopped. The rest is the operator's, since it restarts processes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.join.routing import Routing
from assay_stream.kafka import log_dirs
from assay_stream.kafka.ranges import LogRanges
from assay_stream.kafka.topics import (
    TopicSpec,
    TopicState,
    check_counts_fit,
    create_topics,
    inspect_topics,
    wait_for_topics,
)
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.cloudevents import read_call
from assay_stream.model.record import TOPICS, Role

SAMPLED_PER_PARTITION = 500
"""Latest calls of each partition that are looked at: enough to see a producer that partitions otherwise."""

_CREATED = (Role.JOIN_PROGRESS, Role.REROUTED)
"""In this order: a worker goes by the second, and then needs the first."""


class CallSample(NamedTuple):
    """What the latest calls say of all of them.

    Args:
        looked_at: how many were looked at.
        misplaced: how many of these are not in a partition of their server.
        misplaced_bytes: what these take.
        there: how many calls the topic holds.
    """

    looked_at: int
    misplaced: int
    misplaced_bytes: int
    there: int

    @property
    def rerouted_bytes(self) -> int:
        """What copies take if the topic's calls came once more."""
        return round(self.misplaced_bytes * self.there / self.looked_at) if self.looked_at else 0


class Step(NamedTuple):
    """One step.

    Args:
        is_ours: whether ``migrate`` does it.
        text: what is done.
        undo: how it is undone.
    """

    is_ours: bool
    text: str
    undo: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan:
    """What a migration takes.

    Args:
        partitions: partition counts as they are, by role.
        fits: whether the topics can stay as they are.
        needed_bytes: disk that copies may take in a retention time, all replicas.
        free_bytes: what is free on the brokers' disks; ``None`` where they do not tell, or copies take nothing.
        missing: topics to create.
        steps: what is left to do, in order.
    """

    partitions: Mapping[Role, int]
    fits: bool
    sample: CallSample
    needed_bytes: int
    free_bytes: int | None
    missing: tuple[TopicSpec, ...]
    steps: tuple[Step, ...]


async def plan_migration(
    admin: AIOKafkaAdminClient, settings: Settings, *, disk_free_bytes: int | None = None
) -> MigrationPlan:
    """Return what is left to do until calls are keyed by server.

    Args:
        disk_free_bytes: what is free on the brokers' disks, all of them together; ``None`` to ask them.

    Raises:
        ConfigurationError: ``topic_missing``, or ``partition_count`` where a topic of ours does not fit the calls.
    """
    states = {state.spec.role: state for state in await inspect_topics(admin, keyed(settings))}
    _check_there(states)
    partitions = {role: states[role].partitions for role in (Role.CALLS, Role.BINDINGS, *_CREATED)}
    calls, bindings = partitions[Role.CALLS], partitions[Role.BINDINGS]
    fits = calls % bindings == 0
    sample = await _sample(settings, Routing(calls=calls, bindings=bindings)) if fits else CallSample(0, 0, 0, 0)
    needed_bytes = sample.rerouted_bytes * settings.replication_factor
    if needed_bytes and disk_free_bytes is None:
        disk_free_bytes = await log_dirs.disk_free_bytes(admin)
    missing = tuple(replace(states[role].spec, partitions=calls) for role in _CREATED if not partitions[role])
    return MigrationPlan(
        partitions=partitions,
        fits=fits,
        sample=sample,
        needed_bytes=needed_bytes,
        free_bytes=disk_free_bytes,
        missing=missing if fits else (),
        steps=_steps(settings, missing, sample) if fits else _steps_beside(settings, calls, bindings),
    )


async def migrate(
    admin: AIOKafkaAdminClient, settings: Settings, *, disk_free_bytes: int | None
) -> tuple[MigrationPlan, list[str]]:
    """Do what Kafka has to do; return the plan as it was, and the names of the topics created.

    Args:
        disk_free_bytes: as in ``plan_migration``.

    Raises:
        ConfigurationError: ``partitions_do_not_fit``, ``disk_not_known``, ``disk_too_small``, and as
            ``plan_migration``. Nothing is created then.
        OperatingError: ``topics_not_created``.
    """
    plan = await plan_migration(admin, settings, disk_free_bytes=disk_free_bytes)
    check_counts_fit(calls=plan.partitions[Role.CALLS], bindings=plan.partitions[Role.BINDINGS])
    if plan.needed_bytes and plan.missing:
        _check_disk(plan.needed_bytes, plan.free_bytes)
    created = []
    for spec in plan.missing:
        await create_topics(admin, settings, [spec])
        await wait_for_topics(admin, settings, [spec])
        created.append(spec.name)
    return plan, created


def _check_disk(needed_bytes: int, free_bytes: int | None) -> None:
    if free_bytes is None:
        raise ConfigurationError(
            "disk_not_known",
            f"copies of calls may take {needed_bytes} bytes, and not every broker tells what is free on its disks, "
            "which takes Kafka 3.3 and the right to describe the cluster: say it with --disk-free-bytes",
        )
    if free_bytes < needed_bytes:
        raise ConfigurationError(
            "disk_too_small",
            f"copies of calls may take {needed_bytes} bytes, and {free_bytes} are free: correct the producers first, "
            "so that fewer calls are copied, or make room",
        )


def keyed(settings: Settings) -> Settings:
    return settings.model_copy(update={"calls_keyed_by": "server"})


def _check_there(states: Mapping[Role, TopicState]) -> None:
    absent = [state.spec.name for role, state in states.items() if not state.partitions and role not in _CREATED]
    if absent:
        text = f"no such topic: {', '.join(sorted(absent))}. Create it first: assay-stream topics apply"
        raise ConfigurationError("topic_missing", text)
    count = states[Role.CALLS].partitions
    for role in TOPICS:
        state = states.get(role)
        if state is not None and TOPICS[role].together == "calls" and state.partitions not in (0, count):
            raise ConfigurationError(
                "partition_count",
                f"{state.spec.name} has {state.partitions} partitions and {states[Role.CALLS].spec.name} {count}: "
                "they must have as many. Delete it if nothing was written to it, and repeat",
            )


async def _sample(settings: Settings, routing: Routing) -> CallSample:
    looked_at = misplaced = misplaced_bytes = there = 0
    async with LogRanges(settings, [Role.CALLS]) as logs:
        for (_, number), (begin, end) in logs.bounds.items():
            there += end - begin
            async for batch in logs.read(Role.CALLS, number, first=max(begin, end - SAMPLED_PER_PARTITION)):
                for record in batch:
                    try:
                        call = read_call(record, limits=DEFAULT_LIMITS, call_profile=settings.call_profile)
                    except InputError:
                        continue  # refused where it stands, and never copied
                    looked_at += 1
                    if not routing.is_home(call.server_id, number):
                        misplaced += 1
                        misplaced_bytes += len(record.key or b"") + len(record.value or b"")
    return CallSample(looked_at, misplaced, misplaced_bytes, there)


def _steps(settings: Settings, missing: tuple[TopicSpec, ...], sample: CallSample) -> tuple[Step, ...]:
    steps = [
        Step(
            True,
            f"create {spec.name}, {spec.partitions} partitions",
            "delete it, once all join workers run with ASSAY_STREAM_CALLS_KEYED_BY=anything and have no lag",
        )
        for spec in missing
    ]
    if settings.calls_keyed_by != "server":
        steps.append(
            Step(
                False,
                "restart the join workers, one after the other, with ASSAY_STREAM_CALLS_KEYED_BY=server",
                "the same with ASSAY_STREAM_CALLS_KEYED_BY=anything: calls that were copied and not joined yet are "
                "still joined",
            )
        )
    if sample.misplaced:
        steps.append(
            Step(
                False,
                f"{sample.misplaced} of the latest {sample.looked_at} calls are not in a partition of their server, "
                "and would be copied: have their producers use the key server_id and the partitioner murmur2",
                "nothing to undo",
            )
        )
    return tuple(steps)


def _steps_beside(settings: Settings, calls: int, bindings: int) -> tuple[Step, ...]:
    """Return what to do where the counts do not fit: a second deployment, fed from then on."""
    wanted = -(-calls // bindings) * bindings
    undo = "point the producers back; the deployment that is there was not changed"
    return (
        Step(
            False,
            f"the call topic has {calls} partitions, no multiple of the {bindings} of the binding topic, and topics "
            "keep their partitions: make a deployment beside this one. With ASSAY_STREAM_TOPIC_PREFIX and "
            "ASSAY_STREAM_GROUP_PREFIX of its own, "
            f"ASSAY_STREAM_CALL_PARTITIONS={wanted}, ASSAY_STREAM_INPUT_PARTITIONS={bindings} and "
            "ASSAY_STREAM_CALLS_KEYED_BY=server, run: assay-stream topics apply; then start its workers",
            "stop its workers and delete its topics",
        ),
        Step(False, "point proxies, operators and `ingest` to it, and record pins and policies there", undo),
        Step(
            False,
            "let the old workers run until their groups have no lag, then stop them; their topics stay as an archive "
            f"that every command reads with ASSAY_STREAM_TOPIC_PREFIX={settings.topic_prefix!r}",
            "start them again",
        ),
    )
