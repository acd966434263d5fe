"""The process that lists servers: ``observe.list_watch`` under a host, with its pages and metrics."""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import Sequence

from assay_stream.config import Settings
from assay_stream.kafka.connection import connection_options
from assay_stream.kafka.part import Part
from assay_stream.kafka.topics import AccessRole, topic_names
from assay_stream.limits import HTTP_LIMITS
from assay_stream.model.record import Role
from assay_stream.observe.http.upstreams import Client
from assay_stream.observe.list_transport import ListedServer
from assay_stream.observe.list_watch import ListWatch
from assay_stream.observe.publisher import ObservationPublisher
from assay_stream.observe.spool import spool_in
from assay_stream.worker.host import Host, PartitionCounts, run_host
from assay_stream.worker.telemetry import Metrics, PrometheusStage

_STAGE = "list-watch"


def run_list_watch(
    settings: Settings, servers: Sequence[ListedServer], *, tls: ssl.SSLContext, web_port: int | None
) -> None:
    """List servers and publish what they offer until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: ``topic_missing``, ``web_port_taken``.
        OperatingError: ``broker_unreachable``.
    """

    def build(host: Host, _: PartitionCounts) -> None:
        host.add(_STAGE, ListingPart(settings, servers, tls, host.metrics))

    run_host(settings, {Role.SNAPSHOTS}, [AccessRole.LISTER], build, web_port=web_port)


class ListingPart(Part):
    """Lists servers while the process runs, and copies what is counted to the metrics."""

    def __init__(
        self, settings: Settings, servers: Sequence[ListedServer], tls: ssl.SSLContext, metrics: Metrics
    ) -> None:
        super().__init__()
        self._publisher = ObservationPublisher(
            connection_options(settings),
            topics=topic_names(settings),
            spool=spool_in(settings.spool, mib_max=settings.spool_mib_max),
        )
        self._servers = servers
        self._tls = tls
        self._watch: ListWatch | None = None
        self._metrics = metrics
        self._stage = PrometheusStage(metrics, _STAGE)
        self._counted: Counter[str] = Counter()

    @property
    def ready(self) -> bool:
        """Whether every server was listed, or tried, once."""
        return self._watch is not None and self._watch.ready

    async def run(self) -> None:
        """List until stopped; deliver what is queued at the end."""
        self._publisher.start()
        client = Client(HTTP_LIMITS, self._tls)
        self._watch = ListWatch(self._servers, publish=self._publisher.publish, client=client)
        try:
            await self.until_stopped(self._watch.run())
        finally:
            await client.close()
            await self._publisher.aclose()

    def note_gauges(self) -> None:
        stats, watched = self._publisher.stats, [] if self._watch is None else self._watch.watched
        counts: Counter[str] = Counter({f"dropped:{reason}": count for reason, count in stats.dropped.items()})
        listed_s: dict[str, float] = {}
        for each in watched:
            counts += each.counts
            if each.listed_s is not None:
                server_id = each.server.vantage.server_id
                listed_s[server_id] = min(listed_s.get(server_id, each.listed_s), each.listed_s)
        for server_id, at_s in listed_s.items():
            self._metrics.list_age.labels(server_id).set(time.monotonic() - at_s)
        new, self._counted = counts - self._counted, counts
        self._stage.done(new["listed"], new)
        self._stage.measure("buffered", stats.queued + stats.spooled)
        self._metrics.servers_failing.set(sum(each.failing is not None for each in watched))
