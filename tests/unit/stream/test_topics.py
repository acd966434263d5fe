"""The table of topics, and what a worker demands of them."""

from __future__ import annotations

import pytest

from assay_stream.config import Settings
from assay_stream.core.errors import ConfigurationError
from assay_stream.core.record import TOPIC_NAMES, Role
from assay_stream.stream.topics import (
    TopicState,
    alert_changelog_name,
    check_topics,
    topic_names,
    topic_table,
)

SETTINGS = Settings(topic_prefix="p.", group_prefix="g", input_partitions=2, call_partitions=3)
ALL = set(Role)


def states(**partitions: int) -> list[TopicState]:
    """Every topic as it should be, but for the partitions of some (``changelog`` for the alert table's)."""
    return [
        TopicState(
            spec=spec,
            partitions=partitions.get(spec.role.value if spec.role else "changelog", spec.partitions),
            differing={},
        )
        for spec in topic_table(SETTINGS)
    ]


def code_of(found: list[TopicState], needed: set[Role], *, alerts: bool = False) -> str:
    """The code with which a worker refuses to start."""
    with pytest.raises(ConfigurationError) as caught:
        check_topics(found, needed, alerts=alerts)
    return caught.value.code


def test_every_role_has_its_topic_and_the_table_its_log() -> None:
    """All names carry the prefix; the change log is named by Faust after the group."""
    table = topic_table(SETTINGS)
    assert {spec.role for spec in table} == {*Role, None}
    names = topic_names(SETTINGS)
    assert names == {role: f"p.{name}" for role, name in TOPIC_NAMES.items()}
    assert {spec.name for spec in table} == {*names.values(), "g-alerts-alerts-changelog"}
    assert alert_changelog_name(SETTINGS) == "g-alerts-alerts-changelog"


def test_topics_that_belong_together_are_created_alike() -> None:
    """Facts go to the partition of their input, evidence to that of its call."""
    count = {spec.role: spec.partitions for spec in topic_table(SETTINGS)}
    assert count[Role.SNAPSHOTS] == count[Role.CONTROL] == count[Role.BINDINGS] == count[Role.FINDINGS] == 2
    assert count[Role.CALLS] == count[Role.EVIDENCE] == 3
    assert count[None] == count[Role.FINDINGS]


def test_nothing_that_is_in_force_expires() -> None:
    """Facts and definitions are compacted; evidence and control are kept for good."""
    config = {spec.role: spec.config for spec in topic_table(SETTINGS)}
    for role in (Role.BINDINGS, Role.DEFINITIONS, None):
        assert config[role]["cleanup.policy"] == "compact"
    for role in (Role.EVIDENCE, Role.CONTROL):
        assert config[role]["retention.ms"] == "-1"


def test_a_rejected_copy_fits() -> None:
    """The rejected topic takes a copy of the largest record of any input topic, with its headers."""
    room = {spec.role: int(spec.config.get("max.message.bytes", 0)) for spec in topic_table(SETTINGS)}
    assert room[Role.REJECTED] > max(room[role] for role in (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS))


def test_sound_topics_are_counted() -> None:
    """What a worker needs is returned with its partitions, as they are and not as configured."""
    counts = check_topics(states(), ALL, alerts=True)
    assert counts[Role.CALLS] == 3
    assert check_topics(states(calls=9, evidence=9), {Role.CALLS, Role.EVIDENCE})[Role.CALLS] == 9


@pytest.mark.parametrize("role", list(Role))
def test_a_missing_topic_is_missed_by_who_needs_it(role: Role) -> None:
    """A worker starts without the topics that its stages do not touch, and not without the others."""
    found = states(**{role.value: 0})
    assert code_of(found, ALL) == "topic_missing"
    if role is not Role.BINDINGS:
        assert check_topics(found, ALL - {role})


@pytest.mark.parametrize("role", [Role.SNAPSHOTS, Role.CONTROL, Role.BINDINGS, Role.CALLS, Role.EVIDENCE])
def test_topics_that_belong_together_must_agree(role: Role) -> None:
    """One partition more in one of them and nothing starts."""
    assert code_of(states(**{role.value: 8}), ALL) == "partition_count"


@pytest.mark.parametrize(("count", "code"), [(0, "topic_missing"), (7, "partition_count")])
def test_the_change_log_matters_to_alerts_alone(count: int, code: str) -> None:
    """Only a worker that keeps the alert table needs its change log."""
    found = states(changelog=count)
    assert code_of(found, ALL, alerts=True) == code
    assert check_topics(found, ALL)


def test_a_binding_topic_that_deletes_is_refused() -> None:
    """Retention would take away what is in force; other differences of setting do not stop a worker."""
    differing = {"cleanup.policy": ("delete", "compact")}
    found = [
        TopicState(spec=state.spec, partitions=state.partitions, differing=differing)
        if state.spec.role is Role.BINDINGS
        else state
        for state in states()
    ]
    assert code_of(found, ALL) == "topic_not_compacted"
    assert check_topics(found, ALL - {Role.BINDINGS})
