"""Looking things up in the topics, over given records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiokafka import TopicPartition

from assay_stream.config import Settings, load_settings
from assay_stream.errors import ConfigurationError, InputError, IntegrityError
from assay_stream.kafka import lookup
from assay_stream.model.facts import encode_key, encode_value
from assay_stream.model.finding import Finding, uid_of
from assay_stream.model.kinds import Kind
from assay_stream.model.partition import murmur2_partition
from assay_stream.model.record import TOPIC_NAMES, Origin, Record, Role
from tests.support import facts
from tests.support.findings import a_claim

FINDING = Finding(
    kind=Kind.TOOL_CHANGED,
    server_id="s",
    tool_name="t",
    time_us=1,
    origin=Origin(topic="mcp.tools.list", partition=0, offset=0),
    after="full:1",
)


class Cluster:
    """Topics with records, as far as looking up needs one."""

    def __init__(self, topics: dict[str, list[list[Record]]]) -> None:
        self.topics = topics
        self.closed = 0

    async def list_topics(self) -> list[str]:
        """Names."""
        return list(self.topics)

    async def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        """Partitions."""
        return [{"topic": name, "partitions": [{}] * len(self.topics[name])} for name in names]

    async def close(self) -> None:
        """Count it."""
        self.closed += 1

    async def read(
        self, settings: Settings, role: Role, partition: TopicPartition, *, since_ms: int | None = None
    ) -> AsyncIterator[Record]:
        """The records of a partition, from the first one of a time on."""
        assert settings
        is_reached = since_ms is None
        for record in self.topics[partition.topic][partition.partition]:
            assert record.role is role
            is_reached = is_reached or record.timestamp_ms >= (since_ms or 0)
            if is_reached:
                yield record


def use(monkeypatch: pytest.MonkeyPatch, role: Role, *partitions: list[Record]) -> Cluster:
    """A cluster that holds one topic."""
    cluster = Cluster({TOPIC_NAMES[role]: list(partitions)})

    async def start_admin(*_: Any, **__: Any) -> Cluster:
        return cluster

    monkeypatch.setattr(lookup, "start_admin", start_admin)
    monkeypatch.setattr(lookup, "read_to_end", cluster.read)
    return cluster


def a_record(role: Role, value: bytes | None, key: bytes | None = None) -> Record:
    """A record of a topic."""
    return Record(role=role, origin=Origin(TOPIC_NAMES[role], 0, 0), key=key, value=value)


async def test_bindings_are_read_from_every_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the registry wrote them."""
    written = [facts.a_pin("v1:x", time_us=1, offset=0), facts.a_policy(time_us=2, offset=1)]
    records = [a_record(Role.BINDINGS, encode_value(fact), encode_key(fact.key())) for fact in written]
    cluster = use(monkeypatch, Role.BINDINGS, records[:1], records[1:])
    bindings = await lookup.read_bindings(load_settings())
    assert bindings.servers[facts.SERVER].controls.has_rules()
    assert len(bindings.servers[facts.SERVER].controls.policies) == 1
    assert cluster.closed == 1


async def test_a_foreign_record_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than a state that lacks something."""
    use(monkeypatch, Role.BINDINGS, [a_record(Role.BINDINGS, b"{}", b"what")])
    with pytest.raises(IntegrityError):
        await lookup.read_bindings(load_settings())


async def test_a_finding_is_found_by_the_uid_of_its_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever partition; of several the latest."""
    later = Finding(**{name: getattr(FINDING, name) for name in FINDING.__slots__} | {"time_us": 2})
    other = Finding(**{name: getattr(FINDING, name) for name in FINDING.__slots__} | {"after": "full:2"})
    records = [a_record(Role.FINDINGS, finding.encode()) for finding in (other, FINDING, later)]
    use(monkeypatch, Role.FINDINGS, [], records)
    assert await lookup.find_finding(load_settings(), FINDING.uid()) == later
    assert await lookup.find_finding(load_settings(), "0" * 64) is None


async def test_the_beginning_of_a_uid_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `alerts list` prints it, in any case; of less than six digits nothing is decided."""
    use(monkeypatch, Role.FINDINGS, [a_record(Role.FINDINGS, FINDING.encode())])
    assert await lookup.find_finding(load_settings(), FINDING.uid()[:8].upper()) == FINDING
    for short in (FINDING.uid()[:5], "nothing", ""):
        with pytest.raises(InputError) as caught:
            await lookup.find_finding(load_settings(), short)
        assert caught.value.code == "bad_uid"


async def test_the_beginning_that_two_uids_have_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision on the wrong definition would be worse than none."""
    use(monkeypatch, Role.FINDINGS, [a_record(Role.FINDINGS, FINDING.encode())] * 2)
    uids = iter(("abcdef01", "abcdef02"))
    monkeypatch.setattr(Finding, "uid", lambda _: next(uids))
    with pytest.raises(InputError) as caught:
        await lookup.find_finding(load_settings(), "abcdef")
    assert caught.value.code == "ambiguous_uid"


@pytest.mark.parametrize("reason", ["confusable_name", "taken_name", "same_name"])
async def test_a_shadowed_tool_is_found_by_its_claim(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    """The topic holds no finding of it; what the newcomer claims is enough to decide on it."""
    mine, other = a_claim("b", "read-file", 2), a_claim("a", "read_file", 1)
    uid = uid_of(Kind.TOOL_SHADOWED, "b", "read-file", mine.full, reason)
    use(monkeypatch, Role.FINDINGS, [a_record(Role.FINDINGS, claim.output().value) for claim in (other, mine)])
    found = await lookup.find_finding(load_settings(), uid)
    assert found is not None
    assert (found.server_id, found.tool_name, found.after, found.uid()) == ("b", "read-file", mine.full, uid)


async def test_definitions_are_read_by_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the topic does not hold is absent."""
    records = [
        a_record(Role.DEFINITIONS, orjson.dumps({"definition": {"name": name}}), name.encode()) for name in "abc"
    ]
    use(monkeypatch, Role.DEFINITIONS, records[:1], records[1:])
    found = await lookup.read_definitions(load_settings(), ["c", "a", "z"])
    assert found == {"a": {"name": "a"}, "c": {"name": "c"}}


async def test_a_topic_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an empty one."""
    cluster = use(monkeypatch, Role.FINDINGS)
    with pytest.raises(ConfigurationError, match=r"topic_missing.*topics apply"):
        await lookup.read_bindings(load_settings())
    assert cluster.closed == 1


async def test_entries_are_read_from_the_partition_of_their_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are passed over: a server's findings stand in one."""
    other = Finding(kind=Kind.TOOL_ADDED, server_id="else", time_us=1, origin=Origin(topic="t", partition=0, offset=1))
    mine = murmur2_partition(FINDING.server_id.encode(), 2)
    partitions: list[list[Record]] = [[], []]
    partitions[mine] = [a_record(Role.FINDINGS, FINDING.encode())]
    partitions[1 - mine] = [a_record(Role.FINDINGS, other.encode())]
    use(monkeypatch, Role.FINDINGS, *partitions)
    assert [entry async for entry in lookup.read_entries(load_settings(), FINDING.server_id)] == [FINDING]


async def test_records_are_read_from_a_time_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first one of that time or later; what stands behind it is read whatever its time."""
    records = [a_record(Role.EVIDENCE, b"{}")._replace(timestamp_ms=time_ms) for time_ms in (1, 5, 3)]
    use(monkeypatch, Role.EVIDENCE, records, [])
    read = [record.timestamp_ms async for record in lookup.read_records(load_settings(), Role.EVIDENCE, since_ms=4)]
    assert read == [5, 3]
