"""The process that forwards."""

import structlog

from assay_stream.alerts.formats import AlertFormat
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.forward.forwarder import Forwarder
from assay_stream.forward.receivers import Receiver
from assay_stream.kafka.access import STAGES
from assay_stream.model.record import Role
from assay_stream.worker.host import Host, PartitionCounts, run_host
from assay_stream.worker.metrics import PrometheusStage

_log = structlog.get_logger(__name__)

_STAGE = "forward"
_ATTEMPTS = "attempt:"


def run_forwarder(
    settings: Settings, receiver: Receiver, *, target: AlertFormat, group: str, web_port: int | None = None
) -> None:
    """Forward alerts until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: ``topic_missing``, ``bad_group``, ``web_port_taken``.
        OperatingError: ``broker_unreachable`` or ``brokers_failing``.
    """
    own = {f"{settings.group_prefix}-{stage}" for stage in STAGES}
    if group in own or not group.strip():
        raise ConfigurationError("bad_group", "--group must not be a stage's group, or empty: choose another name")

    def build(host: Host, counts: PartitionCounts) -> None:
        forwarder = Forwarder(settings, receiver, target=target, group=group)
        note = ForwardMetrics(forwarder, PrometheusStage(host.metrics, _STAGE)).note
        host.add(_STAGE, forwarder, still_s=lambda: forwarder.still_s, note_gauges=note)
        _log.info("forwarding_started", receiver=receiver.name, format=target.value, group=group)

    run_host(settings, {Role.ALERTS, Role.DEAD_LETTERS}, build, web_port=web_port)


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
                label = "dead_letter" if what == "dead" else _ATTEMPTS + what
                self._metrics.done(0, {label: new})
        self._metrics.buffered(int(self._forwarder.is_waiting))
        self._metrics.lags(self._forwarder.lags())
