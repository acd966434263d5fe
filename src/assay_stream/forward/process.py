"""The process that forwards."""

from collections.abc import Sequence

import structlog

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.forward.forwarder import Forwarder
from assay_stream.forward.receivers import Subscription
from assay_stream.kafka.access import STAGES
from assay_stream.model.record import Role
from assay_stream.worker.host import Host, PartitionCounts, run_host
from assay_stream.worker.metrics import PrometheusStage

_log = structlog.get_logger(__name__)

_ATTEMPTS = "attempt:"
_LABELS = {"dead": "dead_letter", "not_wanted": "not_wanted"}


def run_forwarders(settings: Settings, subscriptions: Sequence[Subscription], *, web_port: int | None = None) -> None:
    """Forward alerts until SIGTERM or SIGINT, to each receiver at its own pace.

    Raises:
        ConfigurationError: ``topic_missing``, ``bad_group``, ``web_port_taken``.
        OperatingError: ``broker_unreachable`` or ``brokers_failing``.
    """
    own = {f"{settings.group_prefix}-{stage}" for stage in STAGES}
    if any(each.group in own or not each.group.strip() for each in subscriptions):
        raise ConfigurationError("bad_group", "--group must not be a stage's group, or empty: choose another name")

    def build(host: Host, counts: PartitionCounts) -> None:
        for each in subscriptions:
            _add(host, Forwarder(settings, each), each.name)
            _log.info("forwarding_started", receiver=each.receiver.name, group=each.group)

    run_host(settings, {Role.ALERTS, Role.DEAD_LETTERS}, build, web_port=web_port)


def _add(host: Host, forwarder: Forwarder, name: str) -> None:
    note = ForwardMetrics(forwarder, PrometheusStage(host.metrics, name)).note
    # One broken hook is no reason to hold up a rollout: the others are served.
    host.add(name, forwarder, still_s=lambda: forwarder.still_s, note_gauges=note, is_alternative=True)


class ForwardMetrics:
    """Copies a forwarder's own counts to the metrics."""

    def __init__(self, forwarder: Forwarder, metrics: PrometheusStage) -> None:
        self._forwarder = forwarder
        self._metrics = metrics
        self._counted: dict[str, int] = {}

    def note(self) -> None:
        for what, count in self._forwarder.counts.items():
            new = count - self._counted.get(what, 0)
            self._counted[what] = count
            if what == "read":
                self._metrics.done(new, {})
            elif what == "expired":
                self._metrics.lost(new)
            else:
                label = _LABELS.get(what, _ATTEMPTS + what)
                self._metrics.done(0, {label: new})
        self._metrics.buffered(int(self._forwarder.is_waiting))
        self._metrics.lags(self._forwarder.lags())
