"""The HTTP service of ``ingest``: who sends, how much, what of it, its way into Kafka, what the client is answered.

Requests take room as they are read, and get 429 where there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import orjson
import structlog
from aiohttp import web

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.local import read_config, stamp_of
from assay_stream.ingest.requests import (
    NOT_YOURS,
    EventJudge,
    JudgedEvent,
    KnownClient,
    KnownClients,
    RequestRefused,
    read_clients,
    split,
)
from assay_stream.ingest.writer import AcceptedWindow, EventWriter, NotDelivered
from assay_stream.kafka.connection import Consumer, TopicPartition
from assay_stream.kafka.part import Follower, Part
from assay_stream.kafka.topics import AccessRole, topic_names
from assay_stream.limits import HTTP_LIMITS, INGEST_LIMITS, IngestLimits
from assay_stream.model.record import Record, Role
from assay_stream.model.rejected import Mark, OutcomeCode, read_accepted
from assay_stream.observe.http.listener import Listener, serve
from assay_stream.observe.http.messages import (
    READABLE_ENCODINGS,
    is_body_unclear,
    is_host_served,
    plain_body,
    values_of,
)
from assay_stream.worker.host import Host, PartitionCounts, run_host
from assay_stream.worker.telemetry import Metrics, PrometheusStage

ACCEPTED, SOME_ACCEPTED = 202, 207
"""Not 200: it is in the log, and what the stages make of it is not known yet (CloudEvents web hooks 1.0, 2.1)."""

_STATUS_OF = {NOT_YOURS: 403, "too_large": 413}
_REFUSED, _UNAVAILABLE = 422, 503
_PRECEDENCE = (_UNAVAILABLE, 403, 413, _REFUSED)
_AWAY = {"Retry-After": str(INGEST_LIMITS.away_retry_after_s)}
_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    405: {"Allow": "POST"},
    429: {"Retry-After": str(INGEST_LIMITS.retry_after_s)},
    _UNAVAILABLE: _AWAY,
}
"""What an answer of each status has beside its body."""


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    code: OutcomeCode
    error: InputError | None = None
    recorded: bool = False
    ignored: Sequence[str] = ()

    @property
    def status(self) -> int:
        if self.code in ("accepted", "duplicate"):
            return ACCEPTED
        if self.code == "unavailable":
            return _UNAVAILABLE
        return _status_of(self.error)

    def as_json(self, index: int) -> dict[str, Any]:
        content: dict[str, Any] = {"index": index, "outcome": self.code}
        if self.recorded:
            content["recorded"] = True
        if self.error is not None:
            content["error"] = _problem(self.error.code, self.error.message, self.error.path)
        if self.ignored:
            content["ignored"] = self.ignored
        return content


def _status_of(error: InputError | None) -> int:
    return _STATUS_OF.get("" if error is None else error.code, _REFUSED)


def answer(outcomes: Sequence[IngestOutcome]) -> web.Response:
    """Return the answer to a request whose events were all looked at.

    Its status is 202 if all were accepted, 207 if some were, and otherwise that of the gravest refusal.
    """
    statuses = {outcome.status for outcome in outcomes}
    if statuses == {ACCEPTED}:
        status = ACCEPTED
    elif ACCEPTED in statuses:
        status = SOME_ACCEPTED
    else:
        status = next(each for each in _PRECEDENCE if each in statuses)
    body = orjson.dumps({"outcomes": [outcome.as_json(index) for index, outcome in enumerate(outcomes)]})
    headers = _AWAY if _UNAVAILABLE in statuses else None
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def refusal(status: int, code: str, message: str, path: str = "") -> web.Response:
    body = orjson.dumps({"error": _problem(code, message, path)})
    return web.Response(status=status, body=body, content_type="application/json", headers=_HEADERS.get(status))


def _problem(code: str, message: str, path: str) -> dict[str, str]:
    return {"code": code, "message": message, **({"path": path} if path else {})}


@dataclass(slots=True)
class Room:
    left_bytes: int
    requests: int = 0
    """In progress, of the client that has this room."""


class HeldRoom:
    def __init__(self, rooms: Sequence[Room]) -> None:
        self._rooms = rooms
        self._bytes = 0

    def take(self, size_bytes: int) -> None:
        if any(size_bytes > room.left_bytes for room in self._rooms):
            raise RequestRefused(429, "too_many_requests", "too much is waiting for Kafka: try again")
        for room in self._rooms:
            room.left_bytes -= size_bytes
        self._bytes += size_bytes

    def release(self) -> None:
        for room in self._rooms:
            room.left_bytes += self._bytes
        self._bytes = 0


PATH = "/v1/events"

_LARGE_BYTES = 256 * 1_024
"""Bodies from here on have a thread of their own: one definition of 4 MiB is a step of some seconds."""

TURN_BYTES = 64 * 1_024
"""What one client has judged before the next one's turn: some milliseconds, 30 if it is all fractions."""

STEP_BYTES = 64
"""What a step counts for beside its bytes."""

_log = structlog.get_logger(__name__)

_Known = asyncio.Future[None] | bool
"""What an event waits for that is on its way, or whether it was accepted before."""

_Result = TypeVar("_Result")

Count = Callable[[Mapping[str, int]], None]
"""Counts events by what became of them."""


@dataclass(eq=False, repr=False)
class IngestService(Part):
    writer: EventWriter
    clients: Callable[[], KnownClients]
    judge: EventJudge
    _: KW_ONLY
    is_restored: Callable[[], bool]
    count: Count
    listener: Listener
    limits: IngestLimits = INGEST_LIMITS

    def __post_init__(self) -> None:
        super().__init__()
        self._hosts = self.listener.hosts_served
        self._requests = 0
        self._room = Room(self.limits.pending_bytes_max)
        self._rooms: dict[str, Room] = {}
        self._threads = [ThreadPoolExecutor(1, "assay-stream judge") for _ in range(2)]
        """For small and for large bodies."""
        self._turns: WeakValueDictionary[tuple[str, bool], asyncio.Lock] = WeakValueDictionary()
        """Of the clients that have bodies judged, by observer and whether they are large."""

    async def run(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)

        def listening(port: int) -> None:
            self.is_ready = True
            _log.info("ingest_listening", host=self.listener.host, port=port)

        try:
            await serve(app, self.listener, HTTP_LIMITS, listening, self.stopping)
        finally:
            self.is_ready = False
            for thread in self._threads:
                thread.shutdown(wait=False)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self._requests += 1
        try:
            return await self._handled(request)
        except RequestRefused as error:
            self.count({f"request_refused:{error.code}": 1})
            return refusal(error.status, error.code, str(error))
        except InputError as error:
            self.count({f"request_refused:{error.code}": 1})
            return refusal(_status_of(error), error.code, error.message, error.path)
        except Exception as error:  # noqa: BLE001 - the client gets an answer whatever goes wrong here
            # Its text may quote what was sent.
            _log.error("request_failed", kind=type(error).__name__)
            self.count({"request_refused:failed": 1})
            return refusal(500, "failed", "ingest failed; its log says where")
        finally:
            self._requests -= 1

    async def _handled(self, request: web.Request) -> web.StreamResponse:
        fields = list(request.headers.items())
        if self._hosts and not is_host_served(request.headers.get("Host", ""), self._hosts):
            raise RequestRefused(421, "host_not_served", "no such host is served here; see --allow-host")
        if request.path != PATH:
            raise RequestRefused(404, "not_found", f"send events to {PATH}")
        if request.method != "POST":
            raise RequestRefused(405, "method_not_allowed", "send events with POST")
        client = self._client(request)
        own = self._rooms.setdefault(client.observer_id, Room(self.limits.client_bytes_max))
        if self._requests > self.limits.requests_max or own.requests >= self.limits.client_requests_max:
            raise RequestRefused(429, "too_many_requests", "too many requests are in progress: try again")
        own.requests += 1
        try:
            return await self._taken(request, fields, client, own)
        finally:
            own.requests -= 1

    async def _taken(
        self, request: web.Request, fields: Sequence[tuple[str, str]], client: KnownClient, own: Room
    ) -> web.StreamResponse:
        if not self.is_restored():
            raise RequestRefused(503, "not_ready", "ingest is starting: try again")
        if not self.writer.ready:
            raise RequestRefused(503, "broker_unreachable", "Kafka does not answer: try again")
        _check_headers(fields, request.content_length, self.limits)
        with contextlib.ExitStack() as held:
            room = HeldRoom((self._room, own))
            held.callback(room.release)
            body = await self._plain(fields, await self._body(request, room), client)
            room.release()
            room.take(2 * len(body))  # each event is a copy of its part
            judged = await self._judged(fields, body, client)
            held.pop_all()
            outcomes = await self._written(judged, room.release)
        return answer(outcomes)

    def _client(self, request: web.Request) -> KnownClient:
        certificate = request.get_extra_info("peercert") or {}
        names = [f"{kind}:{name}" for kind, name in certificate.get("subjectAltName", ())]
        given = request.headers.getall("Authorization", [])
        return self.clients().of(given, names, now_us=time.time_ns() // 1_000)

    async def _body(self, request: web.Request, room: HeldRoom) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.read_limit_s):
                async for chunk in request.content.iter_any():
                    room.take(len(chunk))
                    body += chunk
                    if len(body) > self.limits.body_bytes_max:
                        raise _too_long(self.limits)
        except TimeoutError:
            raise RequestRefused(408, "body_stalled", "the body did not arrive in time") from None
        return bytes(body)

    async def _plain(self, fields: Sequence[tuple[str, str]], raw: bytes, client: KnownClient) -> bytes:
        encodings = values_of(fields, "Content-Encoding")
        if not encodings:
            return raw
        plain = partial(plain_body, raw, encodings[0], message_bytes_max=self.limits.body_bytes_max)
        body = await self._in_turn(client, is_large=False, work=plain)
        if body is None:
            raise RequestRefused(413, "too_large", "the body cannot be decompressed, or is too long once it is")
        return body

    async def _judged(self, fields: Sequence[tuple[str, str]], body: bytes, client: KnownClient) -> list[JudgedEvent]:
        """Judge a body by turns. A client has one of them waiting at most, and they are taken in order."""
        judged: list[JudgedEvent] = []
        # Nothing is split before the first turn.
        events = (event for each in [body] for event in split(fields, each, limits=self.limits))
        steps = self.judge.steps(events, client, judged, now_ms=time.time_ns() // 1_000_000)
        is_large, is_done = len(body) >= _LARGE_BYTES, False
        while not is_done:
            is_done = await self._in_turn(client, is_large=is_large, work=partial(take_turn, steps))
        return judged

    async def _in_turn(self, client: KnownClient, *, is_large: bool, work: Callable[[], _Result]) -> _Result:
        async with self._turns.setdefault((client.observer_id, is_large), asyncio.Lock()):
            return await asyncio.get_running_loop().run_in_executor(self._threads[is_large], work)

    async def _written(self, judged: Sequence[JudgedEvent], release: Callable[[], None]) -> list[IngestOutcome]:
        writer = self.writer
        before: list[_Known] = []
        to_write = []
        own: set[Mark] = set()
        for each in judged:
            waiting = None if each.observation is None else writer.waiting(each.mark)
            is_known = each.observation is not None and (each.mark in own or writer.is_accepted(each.mark))
            before.append(waiting or is_known)
            if each.observation is not None and not waiting and not is_known:
                own.add(each.mark)
                to_write.append((each.mark, each.observation))
        waits: dict[Mark, asyncio.Future[None]] = {}
        if to_write:
            made = writer.write(to_write, release)
            waits = {mark: wait for (mark, _), wait in zip(to_write, made, strict=True)}
        else:
            release()
        awaited = {*waits.values(), *(each for each in before if isinstance(each, asyncio.Future))}
        if awaited:
            await asyncio.wait(awaited, timeout=self.limits.ack_limit_s)
        outcomes = [self._outcome(each, known, waits) for each, known in zip(judged, before, strict=True)]
        self.count(Counter(each.code if each.error is None else f"{each.code}:{each.error.code}" for each in outcomes))
        return outcomes

    def _outcome(self, judged: JudgedEvent, known: _Known, waits: Mapping[Mark, asyncio.Future[None]]) -> IngestOutcome:
        if judged.observation is None:
            return IngestOutcome("refused", judged.error)
        wait = known if isinstance(known, asyncio.Future) else waits.get(judged.mark)
        if wait is not None:
            if not wait.done():
                return IngestOutcome("unavailable")
            failure = wait.exception()
            if isinstance(failure, NotDelivered) and failure.is_too_large:
                return IngestOutcome("refused", InputError("too_large", "Kafka takes no record of that size"))
            if failure is not None:
                return IngestOutcome("unavailable")
        if judged.error is not None:
            return IngestOutcome("refused", judged.error, recorded=True)
        return IngestOutcome("duplicate" if known else "accepted", ignored=judged.ignored)


def take_turn(steps: Iterator[int]) -> bool:
    """Take as many steps as one turn has bytes, and return whether that were all."""
    spent_bytes = 0
    for step_bytes in steps:
        spent_bytes += step_bytes + STEP_BYTES
        if spent_bytes >= TURN_BYTES:
            return False
    return True


def _too_long(limits: IngestLimits) -> RequestRefused:
    return RequestRefused(413, "too_large", f"a request may have {limits.body_bytes_max} bytes: send smaller ones")


def _check_headers(fields: Sequence[tuple[str, str]], length: int | None, limits: IngestLimits) -> None:
    """Refuse a request by its headers, before any of its body is read."""
    if is_body_unclear(fields) or any(not value.isascii() for _, value in fields):
        raise RequestRefused(415, "unsupported_media_type", "state one content type and one encoding, in ASCII")
    for encoding in values_of(fields, "Content-Encoding"):
        if encoding.strip().lower() not in READABLE_ENCODINGS:
            raise RequestRefused(415, "unsupported_media_type", "compress with gzip or deflate, or not at all")
    if length is not None and length > limits.body_bytes_max:
        raise _too_long(limits)


_STAGE = "ingest"
_NEEDED = {Role.SNAPSHOTS, Role.CALLS, Role.INGESTED}


class ClientFile:
    """The file of clients, read again when it has changed. One that cannot be read changes nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = stamp_of(path)
        self._clients = self._read()
        self.error: str | None = None
        """Why the clients are those of an earlier file."""

    def __call__(self) -> KnownClients:
        return self._clients

    def look(self) -> None:
        seen, self._seen = self._seen, stamp_of(self._path)
        if seen == self._seen and self.error is None:  # the stamp does not show that rights were corrected
            return
        try:
            self._clients, self.error = self._read(), None
            _log.info("clients_read", clients=len(self._clients))
        except ConfigurationError as error:
            self.error = str(error)
            if seen != self._seen:
                _log.error("clients_not_read", error=self.error)

    def _read(self) -> KnownClients:
        return read_clients(read_config(self._path, "bad_clients"), str(self._path))


class ClientWatch(Part):
    """Looks at the file of clients. A bad one leaves it ready: taken out of service, it would refuse every client."""

    is_ready = True

    def __init__(self, file: ClientFile, metrics: Metrics) -> None:
        super().__init__()
        self._file, self._metrics = file, metrics

    async def run(self) -> None:
        while not self.stopping.is_set():
            self._file.look()
            self.waiting_for = self._file.error
            self._metrics.clients_stale.set(self.waiting_for is not None)
            await self.pause(INGEST_LIMITS.reload_s)


def run_ingest(settings: Settings, clients: Path, listener: Listener, *, web_port: int | None) -> None:
    """Take events until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: ``bad_clients``, ``cannot_listen``, ``topic_missing``, ``web_port_taken``.
        OperatingError: ``broker_unreachable``.
    """
    known = ClientFile(clients)

    def build(host: Host, counts: PartitionCounts) -> None:
        window = AcceptedWindow()
        writer = EventWriter(settings, window)

        def take(records: Sequence[Record]) -> None:
            for record in records:
                window.add(read_accepted(record.value), record.timestamp_ms)

        starts = partial(_window_starts, topic_names(settings)[Role.INGESTED], counts[Role.INGESTED])
        follower = Follower(settings, Role.INGESTED, starts, take)
        metrics = PrometheusStage(host.metrics, _STAGE)
        metrics.count("outputs", 0, "unavailable")  # from the start, as PrometheusStage does with others

        def count(events: Mapping[str, int]) -> None:
            metrics.done(sum(n for what, n in events.items() if not what.startswith("request_")), events)

        judge = EventJudge(limits=settings.limits(), call_profile=settings.call_profile, digest_key=settings.keyed_by())
        service = IngestService(
            writer, known, judge, is_restored=lambda: follower.ready, count=count, listener=listener
        )

        def note_gauges() -> None:
            metrics.measure("buffered", writer.pending)
            metrics.measure("state_entries", len(window))

        host.add("accepted_events", follower)
        host.add("kafka", writer)
        host.add(_STAGE, service)
        host.add("clients", ClientWatch(known, host.metrics))
        host.metrics.on_scrape(note_gauges)

    run_host(settings, _NEEDED, [AccessRole.INGEST], build, web_port=web_port)


async def _window_starts(topic: str, partitions: int, consumer: Consumer) -> dict[TopicPartition, int]:
    """Return where the window of accepted events begins in each partition; of very many only the latest are read."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    since_ms = time.time_ns() // 1_000_000 - INGEST_LIMITS.window_age_s * 1_000
    share = max(1, INGEST_LIMITS.restored_records_max // partitions)
    ends = await consumer.end_offsets(places)
    found = await consumer.offsets_for_times(dict.fromkeys(places, since_ms))
    return {
        place: max(0, end - share, end if found[place] is None else found[place].offset) for place, end in ends.items()
    }
