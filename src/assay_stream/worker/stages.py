"""The stages of the registry and of the alerts: their inputs and their state. The join's is in ``worker.join``."""

import time
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from assay_stream.alerts import processor as alerting
from assay_stream.alerts.remembered import AlertTable
from assay_stream.alerts.rules import AlertRules
from assay_stream.kafka.part import UNCOUNTED, StageMetrics
from assay_stream.kafka.stage import PartitionState, Stage, Topology
from assay_stream.model.record import Output, Record, Role
from assay_stream.registry.ledger import progress
from assay_stream.registry.processor import Registry

_log = structlog.get_logger(__name__)

_REGISTRY_INPUTS = (Role.CONTROL, Role.SNAPSHOTS)


class RegistryState(Registry, PartitionState):
    """The registry of one partition, kept as facts in the binding topic; every join reads them too."""

    def __init__(self, topology: Topology, partition: int) -> None:
        settings = topology.settings
        super().__init__(
            producer=settings.producer(), limits=settings.limits(), partitions=topology.counts[Role.SNAPSHOTS]
        )
        self.number = partition
        self._inputs = [topology.names[role] for role in _REGISTRY_INPUTS]

    @property
    def entries(self) -> int:
        return len(self.bindings)

    def restore(self, record: Record) -> None:
        self.bindings.take(record)

    def restored(self) -> Mapping[str, int | None]:
        known = self.bindings.progress
        return {topic: known.get((topic, self.number)) for topic in self._inputs}

    def flush(self, positions: Mapping[str, int]) -> list[Output]:
        """Return the progress records that make what was applied visible to every join."""
        return [
            progress(topic=topic, partition=self.number, position=position) for topic, position in positions.items()
        ]


def registry_stage(topology: Topology) -> Stage[RegistryState]:
    return Stage(
        "registry", _REGISTRY_INPUTS, topology, state_role=Role.BINDINGS, new_state=partial(RegistryState, topology)
    )


class AlertStageTable(AlertTable):
    """The alert stage's state: an alert table that reports the name claims it has no room for.

    Args:
        metrics: counts the claims that are not stored.
    """

    metrics: StageMetrics = UNCOUNTED

    def process(self, record: Record) -> list[Output]:
        """Apply one record of the finding topic, and return the alerts."""
        outputs = alerting.process(self.alerts, record)
        if self.alerts.names_left_out:
            self.metrics.count("claims_left_out")
        if self.alerts.names_left_out == 1:
            # Once per set of look-alike names, so that a flood of claims does not flood the log.
            _log.warning("name_claims_left_out", partition=record.origin.partition, offset=record.origin.offset)
        return outputs


def alert_stage(
    topology: Topology, *, rules: AlertRules, clock_us: Callable[[], int], metrics: StageMetrics = UNCOUNTED
) -> Stage[AlertStageTable]:
    def new_state(partition: int) -> AlertStageTable:
        now_us, input_topic = _every(topology.settings.alert_tick_s, clock_us), topology.names[Role.FINDINGS]
        table = AlertStageTable(partition, rules, input_topic=input_topic, now_us=now_us)
        table.metrics = metrics
        return table

    return Stage("alerts", (Role.FINDINGS,), topology, state_role=Role.ALERT_STATES, new_state=new_state)


class SteadyClock:
    """A wall clock whose jumps ahead are followed slowly, by a hundredth of the time that passes.

    A clock that is fast closes alerts whose findings are still to come; one that is slow only delays records
    (``docs/adr/0010``).
    """

    def __init__(self, wall_us: Callable[[], int], monotonic_us: Callable[[], int]) -> None:
        self._wall_us, self._monotonic_us = wall_us, monotonic_us
        self._latest_us, self._read_us = wall_us(), monotonic_us()

    def __call__(self) -> int:
        wall_us, read_us = self._wall_us(), self._monotonic_us()
        passed_us, self._read_us = read_us - self._read_us, read_us
        self._latest_us += passed_us
        self._latest_us += max(0, min(wall_us - self._latest_us, passed_us // 100))
        return min(wall_us, self._latest_us)


def _every(interval_s: int, clock_us: Callable[[], int]) -> Callable[[], int | None]:
    """Return a clock that gives the time once per interval, and never where the interval is 0."""
    looked_s: float | None = None

    def now_us() -> int | None:
        nonlocal looked_s
        now_s = time.monotonic()
        if not interval_s or (looked_s is not None and now_s - looked_s < interval_s):
            return None
        looked_s = now_s
        return clock_us()

    return now_us
