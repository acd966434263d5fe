"""The process that fills the store."""

from pathlib import Path

from assay_stream.config import Settings
from assay_stream.kafka.store_filling import StoreFilling
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import ROLES, Filler
from assay_stream.worker.host import Host, PartitionCounts, run_host
from assay_stream.worker.metrics import Metrics, PrometheusStage

_STAGE = "store"


def note_store(metrics: Metrics, filling: StoreFilling) -> None:
    """Set the gauges of a store that is filled."""
    for kind, rows in filling.figures.rows.items():
        metrics.store_rows.labels(_STAGE, kind).set(rows)
    for role, refused in filling.figures.refused.items():
        metrics.store_refused.labels(_STAGE, role).set(refused)
    metrics.store_bytes.labels(_STAGE).set(filling.figures.size_bytes)
    metrics.store_behind.labels(_STAGE).set(filling.behind_s)
    metrics.store_committed.labels(_STAGE).set(filling.committed_s)


def run_store(
    settings: Settings, folder: Path, *, rebuild: bool = False, once: bool = False, web_port: int | None = None
) -> None:
    """Fill a store until SIGTERM or SIGINT, or until it holds everything that is there.

    Args:
        rebuild: begin with an empty store, whatever is there.

    Raises:
        ConfigurationError: ``store_in_use``, ``store_version``, ``store_of_another``, ``topic_missing``,
            ``topic_recreated``, ``web_port_taken``.
        OperatingError: ``broker_unreachable``, ``brokers_failing``, ``store_failing``.
    """
    with schema.writing(folder, rebuild=rebuild) as connection:

        def build(host: Host, counts: PartitionCounts) -> None:
            metrics = PrometheusStage(host.metrics, _STAGE)
            filling = StoreFilling(settings, Filler(connection), once=once, metrics=metrics)

            def note() -> None:
                metrics.lags(filling.lags())
                note_store(host.metrics, filling)

            host.add(_STAGE, filling, still_s=lambda: filling.still_s, note_gauges=note)

        run_host(settings, set(ROLES), build, web_port=web_port)
