"""A transactional producer that commits offsets as a member of its consumer group, in few round trips.

1. Partitions and group are added to the transaction in one round trip.
2. Records are sent: the producer's first batch to a partition is awaited, later ones do not wait for each other's
   answers. Then offsets.
3. The transaction is committed once all of it is acknowledged.

An error leaves the transaction open until it is aborted, by the next producer of the transactional id at the latest.
aiokafka connects, takes the transactional id and fills batches; its own transactions go step by step and name no
generation.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import aiokafka.errors as kafka_errors
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError, KafkaTimeoutError, NodeNotReadyError, ProducerFenced, RequestTimedOutError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.transaction import AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest

from assay_stream.kafka.group_protocol import GroupMember, Produce, TxnOffsetCommit, by_topic

_T = TypeVar("_T")
Batches = Mapping[tuple[str, int], Sequence[BatchBuilder]]

_LIMIT_S = 40.0
"""How long one request is tried again, as long as aiokafka waits for one answer."""
_PAUSE_S = 0.003
"""Before asking again: mostly until the coordinator has ended the transaction before."""
_MOVED_PAUSE_S = 0.1
_IN_FLIGHT_MAX = 5
"""Produce requests without an answer: brokers recognize a repeat of the last five batches of a producer."""
_NOT_ATTEMPTED = 55
_DUPLICATE_SEQUENCE = 46
_FENCED = frozenset({47, 90})
_LOADING = frozenset({14, 51})
"""The coordinator loads its log, or still ends the transaction before."""
_MOVED = frozenset({7, 15, 16})
_UNKNOWN_TOPIC = 3


class GroupProducer:
    """Writes records and offsets of several partitions, all or nothing. One transaction at a time.

    Args:
        producer: transactional, not started.
    """

    def __init__(self, producer: AIOKafkaProducer, transactional_id: str) -> None:
        self._producer = producer
        self._id = transactional_id
        self._client = producer.client
        self._sender = producer._sender
        self._state = producer._txn_manager
        self._begun: set[TopicPartition] = set()
        """Partitions whose leader knows the producer. One that does not would take any batch as the first.

        A leader forgets a producer that it has not heard of for a day (``producer.id.expiration.ms``): the transaction
        is done again if the first batch after that is refused.
        """

    async def start(self) -> None:
        """Fence the previous producer of the transactional id, and end what it left open."""
        await self._producer.start()

    async def stop(self) -> None:
        await self._producer.stop()

    def create_batch(self) -> BatchBuilder:
        return self._producer.create_batch()

    async def write(
        self, batches: Batches, offsets: Mapping[TopicPartition, tuple[int, str]], member: GroupMember
    ) -> None:
        """Write batches and commit offsets in one transaction.

        Args:
            offsets: next offset and metadata of each input partition.

        Raises:
            KafkaError: nothing was written, or the answer to the commit was lost; the producer must be stopped.
        """
        if member.generation < 0 or not member.member_id:
            # Brokers take offsets without a generation from anybody.
            raise kafka_errors.IllegalGenerationError(member.group_id)
        for topic in {topic for topic, _ in batches}:
            await self._client._wait_on_metadata(topic)
        added = [self._add_group(member.group_id)]
        if batches:
            added.append(self._add_partitions([TopicPartition(*place) for place in batches]))
        await _all(added)
        # One after the other: the leader and the group's coordinator each ask the transaction's coordinator whether the
        # transaction is open, and a broker with two such questions of one producer drops the first (KIP-890).
        await self._send(batches)
        await self._commit_offsets(offsets, member)
        await self._end(is_committed=True)

    async def abort(self) -> None:
        """End the transaction that an error has left open; the producer can only be stopped then."""
        await self._end(is_committed=False)

    @property
    def _epoch(self) -> tuple[int, int]:
        return self._state.producer_id, self._state.producer_epoch

    async def _end(self, *, is_committed: bool) -> None:
        await self._ask(EndTxnRequest(self._id, *self._epoch, is_committed), lambda answer: [answer.error_code])

    async def _add_partitions(self, partitions: list[TopicPartition]) -> None:
        topics = [(topic, [tp.partition for tp in tps]) for topic, tps in by_topic(partitions)]
        await self._ask(AddPartitionsToTxnRequest(self._id, *self._epoch, topics), lambda answer: _codes(answer.errors))

    async def _add_group(self, group_id: str) -> None:
        await self._ask(AddOffsetsToTxnRequest(self._id, *self._epoch, group_id), lambda answer: [answer.error_code])

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, tuple[int, str]], member: GroupMember) -> None:
        request = TxnOffsetCommit(self._id, self._epoch, member, offsets)
        await self._ask(request, lambda answer: _codes(answer.topics), group_id=member.group_id)

    async def _ask(
        self, request: Any, codes_of: Callable[[Any], Iterable[int]], *, group_id: str | None = None
    ) -> None:
        """Send a request to a coordinator until it is done: every one of them may be repeated."""
        kind = CoordinationType.TRANSACTION if group_id is None else CoordinationType.GROUP
        deadline = asyncio.get_running_loop().time() + _LIMIT_S
        while True:
            node = await self._sender._find_coordinator(kind, self._id if group_id is None else group_id)
            try:
                answer = await self._client.send(node, request, group=ConnectionGroup.COORDINATION)
                codes = set(codes_of(answer)) - {0}
            except (NodeNotReadyError, RequestTimedOutError, kafka_errors.KafkaConnectionError):
                codes = set(_MOVED)
            if not codes:
                return
            refused = codes - _LOADING - _MOVED - {_NOT_ATTEMPTED, _UNKNOWN_TOPIC}
            if refused:
                raise _error_of(min(refused))
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaTimeoutError(f"the coordinator did not do {type(request).__name__}")
            if codes & _MOVED:
                self._sender._coordinator_dead(kind)
            await asyncio.sleep(_PAUSE_S if codes <= _LOADING | {_NOT_ATTEMPTED} else _MOVED_PAUSE_S)

    async def _send(self, batches: Batches) -> None:
        left = {
            TopicPartition(*place): [self._sealed(TopicPartition(*place), builder) for builder in builders]
            for place, builders in batches.items()
        }
        deadline = asyncio.get_running_loop().time() + _LIMIT_S
        while left:
            error = await self._send_once(left)
            if error is None:
                continue
            if not error.retriable or asyncio.get_running_loop().time() > deadline:
                raise error
            await asyncio.sleep(_MOVED_PAUSE_S)
            await self._client.force_metadata_update()

    def _sealed(self, tp: TopicPartition, builder: BatchBuilder) -> bytes:
        """Return the bytes of a batch, numbered as the next of its partition: a repeat is recognized."""
        builder._set_producer_state(*self._epoch, self._state.sequence_number(tp))
        self._state.increment_sequence_number(tp, builder.record_count())
        sealed: bytes = builder._build()
        return sealed

    async def _send_once(self, left: dict[TopicPartition, list[bytes]]) -> KafkaError | None:
        """Send batches, drop from ``left`` what is acknowledged, and return why something is not.

        Of several errors it is one after which nothing can be sent again, if there is one.
        """
        leaders: dict[int, list[TopicPartition]] = {}
        for tp in left:
            leaders.setdefault(self._client.cluster.leader_for_partition(tp), []).append(tp)
        if leaders.keys() & {None, -1}:
            return kafka_errors.LeaderNotAvailableError()
        answers = await _all(
            self._send_to(node, {tp: left[tp] if tp in self._begun else left[tp][:1] for tp in tps})
            for node, tps in leaders.items()
        )
        worst: KafkaError | None = None
        for tp, outcomes in (item for answer in answers for item in answer.items()):
            # What follows a batch that was not taken is out of sequence.
            taken = next((index for index, error in enumerate(outcomes) if error is not None), len(outcomes))
            error = outcomes[taken] if taken < len(outcomes) else None
            if error is not None and (worst is None or worst.retriable):
                worst = error
            if taken:
                self._begun.add(tp)
            left[tp] = left[tp][taken:]
            if not left[tp]:
                del left[tp]
        return worst

    async def _send_to(
        self, node: int, batches: Mapping[TopicPartition, list[bytes]]
    ) -> dict[TopicPartition, list[KafkaError | None]]:
        """Send batches to their leader, one of each partition a request; return what came of each."""
        outcomes: dict[TopicPartition, list[KafkaError | None]] = {tp: [] for tp in batches}
        if not await self._client.ready(node):
            return {tp: [NodeNotReadyError()] for tp in batches}
        free = asyncio.Semaphore(_IN_FLIGHT_MAX)
        refused: set[TopicPartition] = set()

        async def send(batch_of: Mapping[TopicPartition, bytes]) -> Mapping[TopicPartition, KafkaError | None]:
            async with free:
                chosen = {tp: batch for tp, batch in batch_of.items() if tp not in refused}
                outcome = await self._produce(node, chosen) if chosen else {}
                refused.update(tp for tp, error in outcome.items() if error is not None)
                return outcome

        # Tasks begin in the order in which they were made, and a connection keeps that of what is written to it.
        rounds = range(max(len(each) for each in batches.values()))
        sent = [{tp: each[index] for tp, each in batches.items() if index < len(each)} for index in rounds]
        for answer in await _all(send(chosen) for chosen in sent):
            for tp, error in answer.items():
                outcomes[tp].append(error)
        return outcomes

    async def _produce(
        self, node: int, batch_of: Mapping[TopicPartition, bytes]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        try:
            answer = await self._client.send(node, Produce(self._id, int(_LIMIT_S * 1_000), batch_of))
        except KafkaError as error:
            return dict.fromkeys(batch_of, error)
        codes = {TopicPartition(topic, part[0]): part[1] for topic, parts in answer.topics for part in parts}
        return {tp: None if codes[tp] in (0, _DUPLICATE_SEQUENCE) else _error_of(codes[tp]) for tp in batch_of}


def _codes(topics: Iterable[Any]) -> list[int]:
    return [partition[1] for topic in topics for partition in topic[1]]


def _error_of(code: int) -> KafkaError:
    return ProducerFenced() if code in _FENCED else kafka_errors.for_code(code)()


async def _all(steps: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run steps side by side; when all have ended, return their results, or raise the first error there was."""
    results: list[_T] = []
    for result in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
