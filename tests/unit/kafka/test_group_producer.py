"""What is asked of brokers for one transaction, in which order, and what happens where they refuse."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IllegalGenerationError, KafkaConnectionError, ProducerFenced, TopicAuthorizationFailedError

from assay_stream.kafka import group_producer as module
from assay_stream.kafka.group_producer import GroupProducer
from assay_stream.kafka.group_protocol import GroupMember

MEMBER = GroupMember("group", 7, "member")
OFFSETS = {TopicPartition("calls", 0): (5, "")}
CONCURRENT, NOT_LEADER, NOT_REPLICATED, OUT_OF_SEQUENCE, DUPLICATE, FORBIDDEN = 51, 6, 20, 45, 46, 29
ADDED = ["AddOffsetsToTxnRequest", "AddPartitionsToTxnRequest"]


class Builder:
    """A batch that holds its name."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._state: tuple[int, ...] = ()

    def _set_producer_state(self, *state: int) -> None:
        self._state = state

    def _build(self) -> bytes:
        return self._name + b"@%d" % self._state[-1]

    def record_count(self) -> int:
        return 10


class Brokers:
    """Stands for aiokafka's producer and for the brokers behind it.

    Attributes:
        asked: the names of requests, in order.
        sent: the batches of each produce request.
        refusals: error codes by the name of a request or of a batch, each used once.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.sent: list[list[bytes]] = []
        self.refusals: dict[str | bytes, list[int | Exception]] = {}
        self.under_way = self.under_way_most = 0
        self._sequences: Counter[TopicPartition] = Counter()
        self.client = self._sender = self._txn_manager = self
        self.cluster = SimpleNamespace(leader_for_partition=lambda _: 1)
        self.producer_id, self.producer_epoch = 1, 5

    async def _wait_on_metadata(self, topic: str) -> None: ...

    async def force_metadata_update(self) -> None:
        self.asked.append("metadata")

    async def ready(self, _: int) -> bool:
        return True

    async def _find_coordinator(self, *_: object) -> int:
        return 1

    def _coordinator_dead(self, _: object) -> None:
        self.asked.append("coordinator lost")

    def sequence_number(self, tp: TopicPartition) -> int:
        return self._sequences[tp]

    def increment_sequence_number(self, tp: TopicPartition, count: int) -> None:
        self._sequences[tp] += count

    async def send(self, _: int, request: Any, **__: object) -> Any:
        name = type(request).__name__
        self.asked.append(name)
        self.under_way += 1
        self.under_way_most = max(self.under_way_most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if name == "Produce":
            return self._produced(request)
        code = self._refusal(name)
        topics = [("topic", [(0, code)])]
        return SimpleNamespace(error_code=code, errors=topics, topics=topics)

    def _produced(self, request: Any) -> Any:
        topics = request.prepare({0: (0, 8)}).topics
        self.sent.append([batch for _, parts in topics for _, batch in parts])
        return SimpleNamespace(
            topics=[(topic, [(number, self._refusal(batch)) for number, batch in parts]) for topic, parts in topics]
        )

    def _refusal(self, name: str | bytes) -> int:
        code = (self.refusals.get(name) or [0]).pop(0)
        if isinstance(code, Exception):
            raise code
        return code


def batches(**counts: int) -> dict[tuple[str, int], list[Any]]:
    """Named batches of partition 0 of topics."""
    return {(topic, 0): [Builder(b"%s%d" % (topic.encode(), i)) for i in range(n)] for topic, n in counts.items()}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """Brokers that are asked again at once."""
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    monkeypatch.setattr(module, "_MOVED_PAUSE_S", 0.0)
    return Brokers()


async def write(brokers: Brokers, **counts: int) -> None:
    """Write a transaction."""
    await GroupProducer(brokers, "id").write(batches(**counts), OFFSETS, MEMBER)


async def test_a_transaction_takes_four_round_trips(brokers: Brokers) -> None:
    """Everything is added, records are sent, then offsets, then it ends."""
    await write(brokers, evidence=1, findings=1)
    assert sorted(brokers.asked[:2]) == ADDED
    assert brokers.asked[2:] == ["Produce", "TxnOffsetCommit", "EndTxnRequest"]
    assert brokers.sent == [[b"evidence0@0", b"findings0@0"]]


async def test_without_records_offsets_alone_are_committed(brokers: Brokers) -> None:
    """A mark, or records that lead to nothing."""
    await write(brokers)
    assert brokers.asked == ["AddOffsetsToTxnRequest", "TxnOffsetCommit", "EndTxnRequest"]


async def test_a_coordinator_that_is_not_done_is_asked_again(brokers: Brokers) -> None:
    """The transaction before has still to end."""
    brokers.refusals = {"AddPartitionsToTxnRequest": [CONCURRENT, CONCURRENT]}
    await write(brokers, evidence=1)
    assert Counter(brokers.asked)["AddPartitionsToTxnRequest"] == 3
    assert Counter(brokers.asked)["EndTxnRequest"] == 1


async def test_a_coordinator_that_has_moved_is_looked_up_again(brokers: Brokers) -> None:
    """By its answer, or by none; a commit whose answer was lost may be repeated."""
    brokers.refusals = {"EndTxnRequest": [16, KafkaConnectionError()]}
    await write(brokers, evidence=1)
    assert brokers.asked[-5:] == ["EndTxnRequest", "coordinator lost"] * 2 + ["EndTxnRequest"]


@pytest.mark.parametrize(
    ("request_name", "code", "error"),
    [
        ("TxnOffsetCommit", 22, IllegalGenerationError),
        ("AddPartitionsToTxnRequest", 47, ProducerFenced),
        ("EndTxnRequest", 90, ProducerFenced),
        ("AddPartitionsToTxnRequest", FORBIDDEN, TopicAuthorizationFailedError),
    ],
)
async def test_what_is_refused_for_good_is_raised(
    brokers: Brokers, request_name: str, code: int, error: type[Exception]
) -> None:
    """And nothing is committed."""
    brokers.refusals = {request_name: [code]}
    with pytest.raises(error):
        await write(brokers, evidence=1)
    assert request_name == "EndTxnRequest" or "EndTxnRequest" not in brokers.asked


async def test_batches_of_a_partition_follow_each_other_without_waiting(brokers: Brokers) -> None:
    """In order, numbered, and no more of them under way than a broker recognizes repeats of."""
    await write(brokers, evidence=12)
    assert brokers.sent == [[b"evidence%d@%d" % (number, 10 * number)] for number in range(12)]
    assert 2 <= brokers.under_way_most <= 6


async def test_nothing_follows_the_first_batch_of_a_partition_before_it_is_taken(brokers: Brokers) -> None:
    """A leader that has nothing of a producer yet would take the second one for the first."""
    brokers.refusals = {b"evidence0@0": [NOT_LEADER]}
    await write(brokers, evidence=3)
    assert brokers.sent == [[b"evidence0@0"], [b"evidence0@0"], [b"evidence1@10"], [b"evidence2@20"]]


async def test_no_more_is_sent_behind_a_batch_than_lets_brokers_recognize_its_repeat(brokers: Brokers) -> None:
    """They may have written it without enough replicas, and what follows it too: they know the last five again."""
    brokers.refusals = {b"evidence1@10": [NOT_REPLICATED, DUPLICATE]}
    await write(brokers, evidence=12)
    numbers = [int(name.removeprefix(b"evidence").partition(b"@")[0]) for (name,) in brokers.sent]
    assert numbers == [0, 1, 2, 3, 4, 5, *range(1, 12)]


@pytest.mark.parametrize("outcome", [NOT_LEADER, KafkaConnectionError()])
async def test_batches_are_sent_again_from_the_first_that_was_not_taken(
    brokers: Brokers, outcome: int | Exception
) -> None:
    """With the numbers they had: those behind it are out of sequence, and one that was taken after all is a repeat."""
    brokers.refusals = {b"evidence1@10": [outcome, DUPLICATE], b"evidence2@20": [OUT_OF_SEQUENCE]}
    await write(brokers, evidence=3, findings=1)
    first, again = brokers.asked.index("metadata"), brokers.sent[-2:]
    assert again == [[b"evidence1@10"], [b"evidence2@20"]]
    assert first < brokers.asked.index("EndTxnRequest")
    assert sum(b"findings0@0" in each for each in brokers.sent) == 1


async def test_a_batch_that_brokers_refuse_is_raised(brokers: Brokers) -> None:
    """A record that is too large for its topic, say."""
    brokers.refusals = {b"evidence0@0": [10]}
    with pytest.raises(Exception, match="MessageSizeTooLarge"):
        await write(brokers, evidence=1)
    assert "EndTxnRequest" not in brokers.asked


async def test_what_is_refused_for_good_is_raised_although_something_else_may_be_sent_again(brokers: Brokers) -> None:
    """Of one partition or another, in whatever order."""
    brokers.refusals = {b"evidence0@0": [NOT_LEADER], b"findings0@0": [FORBIDDEN]}
    with pytest.raises(TopicAuthorizationFailedError):
        await write(brokers, evidence=1, findings=1)
    assert len(brokers.sent) == 1


async def test_a_member_without_a_generation_sends_nothing(brokers: Brokers) -> None:
    """Brokers take offsets without one from anybody."""
    with pytest.raises(IllegalGenerationError):
        await GroupProducer(brokers, "id").write({}, OFFSETS, GroupMember("group", -1, ""))
    assert brokers.asked == []
