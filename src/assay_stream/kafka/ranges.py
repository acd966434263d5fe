"""What a deployment holds at one moment: its topics, its groups, and the format level that its workers write.

Topics are read up to fixed end offsets: by assignment, committed records only.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError, for_code

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, InputError, OperatingError
from assay_stream.kafka.connection import (
    MAY_PASS,
    Consumer,
    broker_unreachable,
    open_admin,
    read,
    reading_consumer,
    record_of,
    start_producer,
)
from assay_stream.kafka.part import PatientPart
from assay_stream.kafka.publishing import disconnect
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.topics import STAGES, topic_names
from assay_stream.model.record import SET_ASIDE, Origin, Record, Role
from assay_stream.model.state_table import KEY, read_level, stated_level, write_level
from assay_stream.seal.check import LogName

Ends = dict[Role, dict[int, int]]
"""By role and partition, the first offset that is not read."""
READ = (Role.CALLS, Role.SNAPSHOTS, Role.CONTROL)
"""The topics that a replay reads, calls first: everything that a call depends on is then within its topic's range."""

_T = TypeVar("_T")
_SETTLE_LOOKS_MAX = 6
_SETTLE_PAUSE_S = 0.5
_AT_REST_LOOKS_MAX = 20


class LogRanges:
    """The topics of a deployment at one moment: later records are not read.

    Args:
        roles: which topics; their end offsets are read in this order.
        ends: end offsets read earlier, used instead.
        isolation_level: ``read_uncommitted`` to include open transactions in end offsets.
    """

    def __init__(
        self,
        settings: Settings,
        roles: Sequence[Role],
        *,
        ends: Mapping[Role, Mapping[int, int]] | None = None,
        isolation_level: str = "read_committed",
    ) -> None:
        self._settings = settings
        self._roles = roles
        self._ends_before = ends
        self._open_reader = partial(open_reader, settings, isolation_level=isolation_level)
        self._names = topic_names(settings)
        self._opened = AsyncExitStack()
        self._set_aside: frozenset[Origin] | None = None
        self.bounds: dict[tuple[str, int], tuple[int, int]] = {}
        """The first available offset and the end offset of each partition."""

    async def __aenter__(self) -> LogRanges:
        found = await places_of(self._settings, [self._names[role] for role in self._roles])
        async with AsyncExitStack() as opened:
            self._consumer = consumer = await opened.enter_async_context(self._open_reader())
            for role, places in zip(self._roles, found, strict=True):
                ends = await consumer.end_offsets(places)
                if self._ends_before is not None:
                    before = self._ends_before[role]
                    ends = {place: before[place.partition] for place in places if place.partition in before}
                firsts = await consumer.beginning_offsets(list(ends))
                self.bounds |= {(tp.topic, tp.partition): (firsts[tp], ends[tp]) for tp in sorted(ends)}
            self._opened = opened.pop_all()
        return self

    async def note_ends(self) -> None:
        ends = await self._consumer.end_offsets([TopicPartition(*place) for place in self.bounds])
        self.bounds = {place: (first, ends[TopicPartition(*place)]) for place, (first, _) in self.bounds.items()}

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    def partitions(self, role: Role) -> list[int]:
        return [number for topic, number in self.bounds if topic == self._names[role]]

    def starts(self) -> dict[tuple[str, int], int]:
        return {place: first for place, (first, _) in self.bounds.items()}

    def ends(self) -> Ends:
        return {role: {n: self.bounds[self._names[role], n][1] for n in self.partitions(role)} for role in self._roles}

    async def offset_at(self, role: Role, number: int, time_ms: int) -> int:
        """Return an offset before which no record of a partition has this log timestamp or a later one."""
        place = TopicPartition(self._names[role], number)
        found = (await self._consumer.offsets_for_times({place: time_ms}))[place]
        return self.bounds[place.topic, number][1] if found is None else int(found.offset)

    async def read(
        self, role: Role, number: int, *, first: int = 0, end: int | None = None
    ) -> AsyncGenerator[list[Record], None]:
        """Yield the records of one partition in batches, with those that the deployment set aside marked."""
        place = TopicPartition(self._names[role], number)
        begin, last = self.bounds[place.topic, number]
        begin, last = max(begin, first), last if end is None else min(end, last)
        if begin >= last:
            return
        if role in READ and self._set_aside is None:
            self._set_aside = await read_set_aside(self._settings)
        async with self._open_reader() as consumer:
            async for messages in read(consumer, place, begin, last):
                yield marked([record_of(role, message) for message in messages], self._set_aside or frozenset())

    async def records(self, role: Role, *, since_ms: int | None = None) -> AsyncIterator[Record]:
        """Yield the records of a topic by partition, starting at the first with this log timestamp or later."""
        for number in self.partitions(role):
            first = 0 if since_ms is None else await self.offset_at(role, number, since_ms)
            async for batch in self.read(role, number, first=first):
                for record in batch:
                    yield record


async def note_ends(settings: Settings, roles: Collection[Role], *, isolation_level: str = "read_committed") -> Ends:
    """Return the current end offsets of some topics.

    Args:
        isolation_level: ``read_uncommitted`` to include open transactions.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``broker_unreachable``.
    """
    ordered = sorted(roles, key=lambda role: READ.index(role) if role in READ else len(READ))
    async with LogRanges(settings, ordered, isolation_level=isolation_level) as logs:
        return logs.ends()


async def settled_ends(settings: Settings, roles: Collection[Role]) -> Ends:
    """Return the end offsets of some topics at one moment, at which no transaction was open in them.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``not_at_rest``, ``broker_unreachable``.
    """
    async with (
        LogRanges(settings, list(roles), isolation_level="read_uncommitted") as written,
        LogRanges(settings, list(roles)) as committed,
    ):
        for _ in range(_AT_REST_LOOKS_MAX):
            await written.note_ends()
            before = written.bounds
            await committed.note_ends()
            await written.note_ends()
            if before == committed.bounds == written.bounds:
                return written.ends()
            await asyncio.sleep(_SETTLE_PAUSE_S)
    raise not_at_rest()


def not_at_rest() -> OperatingError:
    return OperatingError(
        "not_at_rest",
        "topics are being written, and only at rest do they fit together: stop workers and sealer until this is done",
    )


async def committed_offsets(settings: Settings, stage: str) -> dict[tuple[str, int], int]:
    """Return the committed offsets of ``registry``, ``join`` or ``alerts`` by topic and partition.

    Raises:
        OperatingError: ``broker_unreachable``, ``brokers_failing``.
    """
    part = PatientPart("reading a group's positions", settings, waits=False)
    while True:
        try:
            async with open_admin(settings) as admin:
                found = await admin.list_consumer_group_offsets(f"{settings.group_prefix}-{stage}")
                return {tuple(place): committed.offset for place, committed in found.items() if committed.offset >= 0}
        except KafkaError as error:
            # The coordinator is another broker, or moves: a busy one is not ready at the first attempt.
            await part.endure(error)


async def joined_offsets(settings: Settings) -> dict[tuple[str, int], int]:
    """Return the join's position in each partition of calls, once its evidence is readable.

    It is no further than the first re-routed call that is not joined yet. Offsets of a transaction can become visible
    before its records; this waits for the records.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``broker_unreachable``, ``brokers_failing``.
    """
    # Imported here: a tap reads no calls, and starts faster without the join.
    from assay_stream.join import call_in

    committed, names = await committed_offsets(settings, "join"), topic_names(settings)
    calls = {place: offset for place, offset in committed.items() if place[0] == names[Role.CALLS]}
    partitions = 1 + max((number for _, number in calls), default=-1)
    # Committed first: what was re-routed before is in the topic, and what is joined later counts as waiting.
    async with LogRanges(settings, [Role.REROUTED], isolation_level="read_uncommitted") as logs:
        for number in logs.partitions(Role.REROUTED):
            first = committed.get((names[Role.REROUTED], number), 0)
            async for batch in logs.read(Role.REROUTED, number, first=first):
                for record in batch:
                    with suppress(InputError):
                        origin = call_in(record, topic=names[Role.CALLS], partitions=partitions).origin
                        calls[origin[:2]] = min(origin.offset, calls.get(origin[:2], origin.offset))
    written = await note_ends(settings, (Role.EVIDENCE,), isolation_level="read_uncommitted")
    for _ in range(_AT_REST_LOOKS_MAX):
        readable = (await note_ends(settings, (Role.EVIDENCE,)))[Role.EVIDENCE]
        if all(readable[number] >= end for number, end in written[Role.EVIDENCE].items()):
            break
        # A committing transaction ends within milliseconds; a hanging one has no committed offsets.
        await asyncio.sleep(_SETTLE_PAUSE_S)
    return calls


async def joined_ends(settings: Settings) -> Ends:
    """Return the current end offsets of the input topics; for calls, only as far as evidence is committed."""
    joined = await joined_offsets(settings)
    topic, ends = topic_names(settings)[Role.CALLS], await note_ends(settings, READ)
    for number, end in ends[Role.CALLS].items():
        ends[Role.CALLS][number] = min(end, joined.get((topic, number), end))
    return ends


async def read_records(settings: Settings, role: Role, *, since_ms: int | None = None) -> AsyncIterator[Record]:
    """Yield every committed record now in a topic, as ``LogRanges.records``."""
    async with LogRanges(settings, [role]) as logs:
        async for record in logs.records(role, since_ms=since_ms):
            yield record


async def read_set_aside(settings: Settings) -> frozenset[Origin]:
    """Return the original places of set-aside records, from the rejected topic."""
    try:
        async with LogRanges(settings, [Role.REJECTED]) as logs:
            places = {set_aside_place(record) async for record in logs.records(Role.REJECTED)}
            return frozenset(place for place in places if place is not None)
    except ConfigurationError as error:
        if error.code != "topic_missing":
            raise
        return frozenset()


def set_aside_place(rejected: Record) -> Origin | None:
    """Return the original place of a set-aside record; ``None`` for any other rejected record."""
    # Ours stand behind the record's own, which may have the same names.
    headers = {name: value or b"" for name, value in rejected.headers}
    if headers.get("error.code") != SET_ASIDE.encode():
        return None
    try:
        return Origin(headers["error.topic"].decode(), int(headers["error.partition"]), int(headers["error.offset"]))
    except (KeyError, ValueError):
        return None


def marked(records: list[Record], places: frozenset[Origin]) -> list[Record]:
    """Mark set-aside records for rereading: replays and checks reject them, too."""
    if not places:
        return records
    return [record._replace(set_aside=True) if record.origin in places else record for record in records]


async def read_foreign(settings: Settings, topic: str) -> AsyncGenerator[tuple[str, bytes], None]:
    """Yield the values now in a foreign topic, each with a readable place, partition by partition.

    Raises:
        ConfigurationError: ``topic_missing``, or the reason for a refused connection.
        OperatingError: ``broker_unreachable``.
    """
    [places] = await places_of(settings, [topic], "Check its name")
    async with open_reader(settings) as consumer:
        firsts, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        for place in places:
            async for batch in read(consumer, place, firsts[place], ends[place]):
                for message in batch:
                    if message.value is not None:
                        yield f"{topic}, partition {place.partition}, offset {message.offset}", message.value


@asynccontextmanager
async def open_reader(settings: Settings, *, isolation_level: str = "read_committed") -> AsyncIterator[Consumer]:
    """Give a started consumer without a group, and stop it.

    Raises:
        ConfigurationError: the reason for a refused connection.
        OperatingError: ``broker_unreachable``.
    """
    consumer = reading_consumer(settings, isolation_level=isolation_level)
    try:
        try:
            await consumer.start()
        except (KafkaError, OSError) as error:
            refusal = explained(error)
            raise refusal if isinstance(refusal, ConfigurationError) else broker_unreachable(settings, error) from None
        # aiokafka cannot be stopped before its tasks have begun: awaiting one that was cancelled by then raises.
        await asyncio.sleep(0)
        yield consumer
    finally:
        await consumer.stop()


async def places_of(
    settings: Settings, names: Sequence[str], fix: str = "Create it: assay-stream topics apply"
) -> list[list[TopicPartition]]:
    """Return the partitions of each topic.

    Raises:
        ConfigurationError: ``topic_missing``.
    """
    async with open_admin(settings) as admin:
        missing = sorted(set(names) - set(await admin.list_topics()))
        if missing:
            raise ConfigurationError("topic_missing", f"no such topic: {', '.join(missing)}. {fix}")
        described = {topic["topic"]: topic["partitions"] for topic in await admin.describe_topics(list(names))}
    return [sorted(TopicPartition(name, each["partition"]) for each in described[name]) for name in names]


class KafkaLogs:
    """``LogRanges`` for synchronous code, as a context manager; its logs can be read several times.

    Args:
        runner: runs the client; must outlive this object.

    Attributes:
        settled: where each log ended before all end offsets were read. Records before it refer to nothing that they
            lack, though the logs are being written.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``broker_unreachable`` or ``brokers_failing``; the latter also while records are read.
    """

    def __init__(self, settings: Settings, roles: Sequence[Role], runner: asyncio.Runner) -> None:
        self._roles = roles
        self._runner = runner
        self._limit_s = settings.connect_limit_s
        self._role_of = {topic: role for role, topic in topic_names(settings).items()}
        self.ranges = LogRanges(settings, roles)
        self.settled: dict[LogName, int] = {}

    @property
    def at_rest(self) -> bool:
        """Whether nothing was written while end offsets were read."""
        return all(self.ranges.bounds[name][1] == end for name, end in self.settled.items())

    def __enter__(self) -> Self:
        self.run(self.ranges.__aenter__())
        try:
            self.run(self._settle())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        self.run(self.ranges.__aexit__(*error))

    async def _settle(self) -> None:
        for _ in range(_SETTLE_LOOKS_MAX):
            self.settled = {LogName(*place): end for place, (_, end) in self.ranges.bounds.items()}
            if Role.CHECKPOINTS not in self._roles:
                return
            # Time for a transaction that has ended to show in all its partitions.
            await asyncio.sleep(_SETTLE_PAUSE_S)
            await self.ranges.note_ends()
            if self.at_rest:
                return

    def batches(self, role: Role, number: int, *, first: int = 0, end: int | None = None) -> Iterator[list[Record]]:
        batches = self.ranges.read(role, number, first=first, end=end)

        async def following() -> list[Record] | None:
            async with asyncio.timeout(self._limit_s):
                return await anext(batches, None)

        try:
            while (batch := self.run(following())) is not None:
                yield batch
        finally:
            self.run(batches.aclose())

    def names(self) -> list[LogName]:
        return sorted(LogName(*place) for place in self.ranges.bounds)

    def start(self, name: LogName) -> int:
        return self.ranges.bounds.get(name, (0, 0))[0]

    def records(self, name: LogName) -> Iterator[Record]:
        if name in self.ranges.bounds:
            for batch in self.batches(self._role_of[name.topic], name.partition):
                yield from batch

    def all(self, *roles: Role) -> Iterator[Record]:
        """Yield all records, or those of some topics in their order."""
        for role in roles or self._roles:
            for number in self.ranges.partitions(role):
                for batch in self.batches(role, number):
                    yield from batch

    def run(self, step: Coroutine[Any, Any, _T]) -> _T:
        try:
            return self._runner.run(step)
        except MAY_PASS as error:
            topics = ", ".join(role.value for role in self._roles)
            raise OperatingError(
                "brokers_failing", f"reading the topics of {topics} failed with {type(error).__name__}: try again"
            ) from error


_LEVEL = re.compile(r"assay-stream-.*-level([1-9][0-9]{0,8})(?:-|$)")
"""Of a client id, as ``kafka.connection.client_id`` makes it."""


class Member(NamedTuple):
    """A member of a consumer group of the stages.

    Args:
        name: client id and host.
        level: the highest format level that it reads; 0 if its client id does not say.
    """

    group_id: str
    name: str
    level: int


async def finalised_level(settings: Settings) -> int:
    """Return the format level that workers write.

    Raises:
        ConfigurationError: ``format_too_new``, ``topic_missing``.
        OperatingError: ``broker_unreachable``.
    """
    return max([read_level(record) async for record in _stated(settings)], default=1)


async def show_level(settings: Settings) -> tuple[int, str]:
    """Return the format level and which release finalised it, even if it is too new for this one."""
    return max([stated_level(record) async for record in _stated(settings)], default=(1, ""))


def _stated(settings: Settings) -> AsyncIterator[Record]:
    return (record async for record in read_records(settings, Role.FORMATS) if record.key == KEY)


async def list_members(admin: AIOKafkaAdminClient, settings: Settings) -> list[Member]:
    """Return the members of the groups of the stages and of users' agents.

    Nothing else that reads state topics is in a group: the store, the console and commands.
    """
    of_agents = topic_names(settings)[Role.AGENT_STATES]
    agents = [topic.removeprefix(of_agents) for topic in await admin.list_topics() if topic.startswith(of_agents)]
    inputs = (Role.EVIDENCE, Role.FINDINGS, Role.ALERTS, Role.DEFINITIONS)
    names = [*STAGES, *(f"agents-{name}{of}" for name in agents for of in ("", *(f"-{role}" for role in inputs)))]
    found = []
    for name in names:
        try:
            # One by one: aiokafka cannot read an answer about several groups.
            (answer,) = await admin.describe_consumer_groups([f"{settings.group_prefix}-{name}"])
        except GroupCoordinatorNotAvailableError:
            if await admin.list_consumer_groups():
                raise
            # No group has ever been on this cluster: nobody coordinates any.
            return []
        ((error_code, group_id, _, _, _, members, *_),) = answer.groups
        if error_code:
            raise for_code(error_code)(group_id)
        for _, client_id, host, *_ in members:
            level = _LEVEL.match(client_id)
            found.append(Member(group_id, f"{client_id} at {host.strip('/')}", int(level[1]) if level else 0))
    return sorted(found)


async def write_finalised(settings: Settings, level: int) -> None:
    """Finalise a level: one record, so that a deployment has one level at any time."""
    producer = await start_producer(settings)
    now_ms = time.time_ns() // 1_000_000
    try:
        topic, value = topic_names(settings)[Role.FORMATS], write_level(level)
        await (await producer.send(topic, key=KEY, value=value, headers=[], timestamp_ms=now_ms, partition=0))
    finally:
        await disconnect(producer)
