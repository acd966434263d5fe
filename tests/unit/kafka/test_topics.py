"""The table of topics, and what a worker demands of them."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.errors import UnknownTopicOrPartitionError

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka import topics as module
from assay_stream.kafka.topics import COUNTS_DIFFER, TopicState, apply_topics, check_topics, topic_names, topic_table
from assay_stream.model.record import TOPIC_NAMES, Role
from tests.support.errors import raises_code

SETTINGS = Settings(topic_prefix="p.", group_prefix="g", input_partitions=2, call_partitions=4)
ALL = set(Role)
AGENTS = "mine"
OF_AGENTS = {Role.AGENT_INPUTS, Role.AGENT_STATES}


def states(**partitions: int) -> list[TopicState]:
    return [
        TopicState(spec=spec, partitions=partitions.get(spec.role.value, spec.partitions), differing={})
        for spec in topic_table(SETTINGS, agents=AGENTS)
    ]


def code_of(found: list[TopicState], needed: set[Role]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        check_topics(found, needed, SETTINGS)
    return caught.value.code


def test_every_role_has_its_topic() -> None:
    """One each, and all names carry the prefix."""
    names = topic_names(SETTINGS, agents=AGENTS)
    of_agents = {role: f"{TOPIC_NAMES[role]}.{AGENTS}" for role in OF_AGENTS}
    assert names == {role: f"p.{name}" for role, name in (TOPIC_NAMES | of_agents).items()}
    assert {spec.role: spec.name for spec in topic_table(SETTINGS, agents=AGENTS)} == names


def test_agents_have_topics_of_their_own() -> None:
    """Which are made for those alone that are named."""
    assert OF_AGENTS.isdisjoint(spec.role for spec in topic_table(SETTINGS))
    names = [set(topic_names(SETTINGS, agents=agents).values()) for agents in ("one", "two")]
    assert len(names[0] - names[1]) == len(OF_AGENTS)


def test_copies_for_agents_do_not_expire_by_event_time() -> None:
    """An agent that is new reads evidence of years; calls of last year may be re-routed."""
    config = {spec.role: spec.config for spec in topic_table(SETTINGS, agents=AGENTS)}
    for role in (Role.AGENT_INPUTS, Role.REROUTED):
        assert config[role]["message.timestamp.type"] == "LogAppendTime"


async def test_counts_that_do_not_fit_are_refused_before_anything_is_created() -> None:
    """Each call partition must belong to one partition of bindings."""
    cluster = EmptyCluster()
    with raises_code("partitions_do_not_fit", kind=ConfigurationError) as caught:
        await apply_topics(cluster, SETTINGS.model_copy(update={"call_partitions": 3}))
    assert "ASSAY_STREAM_CALL_PARTITIONS to 4" in caught.value.message
    assert cluster.topics == []


def test_counts_that_do_not_fit_are_refused_with_what_to_run() -> None:
    """Topics of calls can grow; a topic that is missing or large enough is not named."""
    calls = (Role.CALLS, Role.EVIDENCE, Role.REROUTED, Role.JOIN_PROGRESS)
    found = states(**dict.fromkeys((role.value for role in calls), 5), checkpoints=0)
    with raises_code("partitions_do_not_fit", kind=ConfigurationError) as caught:
        check_topics(found, {*calls, Role.BINDINGS}, SETTINGS)
    assert caught.value.message.count("--alter") == len(calls)
    assert caught.value.message.count("--partitions 6") == len(calls)


def test_topics_that_belong_together_are_created_alike() -> None:
    """Facts go to the partition of their input, evidence to that of its call."""
    count = {spec.role: spec.partitions for spec in topic_table(SETTINGS)}
    assert count[Role.SNAPSHOTS] == count[Role.CONTROL] == count[Role.BINDINGS] == count[Role.FINDINGS] == 2
    assert count[Role.CALLS] == count[Role.EVIDENCE] == count[Role.REROUTED] == 4
    assert count[Role.ALERT_STATES] == count[Role.FINDINGS]


def test_nothing_that_is_in_force_expires() -> None:
    """Facts and definitions are compacted; evidence and control are kept for good."""
    config = {spec.role: spec.config for spec in topic_table(SETTINGS)}
    for role in (Role.BINDINGS, Role.DEFINITIONS, Role.ALERT_STATES):
        assert config[role]["cleanup.policy"] == "compact"
    for role in (Role.EVIDENCE, Role.CONTROL):
        assert config[role]["retention.ms"] == "-1"


def test_a_rejected_copy_fits() -> None:
    """The rejected topic takes a copy of the largest record of any input topic, with its headers."""
    room = {spec.role: int(spec.config.get("max.message.bytes", 0)) for spec in topic_table(SETTINGS)}
    assert room[Role.REJECTED] > max(room[role] for role in (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS))


def test_sound_topics_are_counted() -> None:
    """What a worker needs is returned with its partitions, as they are and not as configured."""
    counts = check_topics(states(), ALL, SETTINGS)
    assert counts[Role.CALLS] == 4
    assert check_topics(states(calls=9, evidence=9), {Role.CALLS, Role.EVIDENCE}, SETTINGS)[Role.CALLS] == 9


@pytest.mark.parametrize("role", list(Role))
def test_a_missing_topic_is_missed_by_who_needs_it(role: Role) -> None:
    """A worker starts without the topics that its stages do not touch, and not without the others."""
    found = states(**{role.value: 0})
    assert code_of(found, ALL) == "topic_missing"
    assert check_topics(found, ALL - {role}, SETTINGS)


@pytest.mark.parametrize(
    "role",
    [
        Role.SNAPSHOTS,
        Role.CONTROL,
        Role.BINDINGS,
        Role.ALERT_STATES,
        Role.CALLS,
        Role.EVIDENCE,
        Role.AGENT_INPUTS,
        Role.AGENT_STATES,
    ],
)
def test_topics_that_belong_together_must_agree(role: Role) -> None:
    """One partition more in one of them and nothing starts: a worker waits until they agree."""
    code = code_of(states(**{role.value: 8}), ALL)
    assert code == "partition_count"
    assert code in COUNTS_DIFFER


@pytest.mark.parametrize("role", [Role.BINDINGS, Role.ALERT_STATES, Role.AGENT_STATES])
def test_a_topic_of_state_that_deletes_is_refused(role: Role) -> None:
    """Retention would take away what is in force; other differences of setting do not stop a worker."""
    differing = {"cleanup.policy": ("delete", "compact")}
    found = [
        TopicState(spec=state.spec, partitions=state.partitions, differing=differing)
        if state.spec.role is role
        else state
        for state in states()
    ]
    assert code_of(found, ALL) == "topic_not_compacted"
    assert check_topics(found, ALL - {role}, SETTINGS)


class EmptyCluster:
    def __init__(self) -> None:
        self.topics: list[str] = []

    async def list_topics(self) -> list[str]:
        return []

    async def describe_topics(self, names: list[str]) -> list[dict[str, object]]:
        assert names == []
        return []

    async def create_topics(self, topics: list[NewTopic]) -> None:
        self.topics = [topic.name for topic in topics]


class Asked:
    """A consumer whose brokers lead the partitions that it asks about after some time.

    Args:
        unknown: how often they say first that there is no such topic.

    Attributes:
        places: what it asked about.
        is_open: whether it is connected.
    """

    def __init__(self, after_s: float = 0.0, unknown: int = 0) -> None:
        self._after_s = after_s
        self._unknown = unknown
        self.places: list[TopicPartition] = []
        self.is_open = False

    def __call__(self, settings: Settings) -> Asked:
        assert settings is SETTINGS
        return self

    async def start(self) -> None:
        self.is_open = True

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        await asyncio.sleep(self._after_s)
        self._unknown -= 1
        if self._unknown >= 0:
            raise UnknownTopicOrPartitionError
        self.places = places
        return dict.fromkeys(places, 0)

    async def stop(self) -> None:
        self.is_open = False


async def test_topics_are_applied_once_brokers_tell_of_them_and_lead_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts right behind must find them."""
    asked = Asked(unknown=3)
    monkeypatch.setattr(module, "reading_consumer", asked)
    applied = await apply_topics(EmptyCluster(), SETTINGS, agents=AGENTS)
    assert sorted(applied) == sorted(topic_names(SETTINGS, agents=AGENTS).values())
    specs = topic_table(SETTINGS, agents=AGENTS)
    assert sorted(asked.places) == sorted((spec.name, number) for spec in specs for number in range(spec.partitions))
    assert not asked.is_open


@pytest.mark.parametrize("asked", [Asked(after_s=60), Asked(unknown=10**9)], ids=["nobody leads", "nobody tells of"])
async def test_topics_that_are_not_served_are_an_error(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names them, and ends within a limit."""
    monkeypatch.setattr(module, "_CREATION_LIMIT_S", 0.05)
    monkeypatch.setattr(module, "reading_consumer", asked)
    with raises_code(
        "topics_not_created", kind=OperatingError, match=r"do not serve all partitions of .*p\.mcp\.tools\.list"
    ):
        await apply_topics(EmptyCluster(), SETTINGS)
    assert not asked.is_open
