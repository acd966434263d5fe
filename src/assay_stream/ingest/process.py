"""The process of ``ingest``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import structlog

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.files.local import stamp_of
from assay_stream.ingest.clients import KnownClients, read_clients
from assay_stream.ingest.events import EventJudge
from assay_stream.ingest.service import IngestService
from assay_stream.ingest.writer import AcceptedWindow, EventWriter
from assay_stream.kafka.connection import Consumer, TopicPartition
from assay_stream.kafka.part import Follower
from assay_stream.kafka.topics import AccessRole, topic_names
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.limits.serving import INGEST_LIMITS
from assay_stream.model.ingest import read_accepted
from assay_stream.model.record import Record, Role
from assay_stream.observe.http.tap import Listener
from assay_stream.worker.host import Host, PartitionCounts, run_host
from assay_stream.worker.metrics import PrometheusStage

_log = structlog.get_logger(__name__)

_STAGE = "ingest"
_NEEDED = {Role.SNAPSHOTS, Role.CALLS, Role.INGESTED}


class ClientFile:
    """The file of clients, read again when it has changed. One that cannot be read changes nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = stamp_of(path)
        self._clients = self._read()
        self._looked_s = time.monotonic()

    def __call__(self) -> KnownClients:
        now_s = time.monotonic()
        if now_s - self._looked_s >= INGEST_LIMITS.reload_s:
            self._looked_s = now_s
            seen, self._seen = self._seen, stamp_of(self._path)
            if seen != self._seen:
                try:
                    self._clients = self._read()
                    _log.info("clients_read", clients=len(self._clients))
                except ConfigurationError as error:
                    _log.error("clients_not_read", error=str(error))
        return self._clients

    def _read(self) -> KnownClients:
        try:
            with self._path.open("rb") as file:
                raw = file.read(DEFAULT_LIMITS.record_bytes_max + 1)
        except OSError as error:
            raise ConfigurationError("bad_clients", f"cannot read {self._path}: {error.strerror}") from None
        return read_clients(raw, str(self._path))


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
