"""All stages in one process: one record in, what its stage writes out.

A worker runs a stage for each partition that it owns, and a replay a registry for each. They call the same processors.
Here outputs reach the next stage only as records that are handed back in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from assay_stream import join as joining
from assay_stream.alerts import processor as alerting
from assay_stream.alerts.remembered import Alerts
from assay_stream.alerts.rules import AlertRules
from assay_stream.bindings.state import Bindings
from assay_stream.canonical.digest import DEFAULT_REDACTION, Redaction
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.cloudevents import Call
from assay_stream.model.evidence import Producer
from assay_stream.model.observation import CallProfile
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.registry import processor as registering


class EngineState:
    """The states of the stages. Arguments are those of ``Registry``, ``Join`` and ``Alerts``."""

    def __init__(
        self,
        *,
        producer: Producer,
        limits: Limits = DEFAULT_LIMITS,
        snapshot_partitions: int | None = None,
        redaction: Redaction = DEFAULT_REDACTION,
        call_profile: CallProfile = "assay",
        alert_rules: AlertRules | None = None,
    ) -> None:
        self.registry = registering.Registry(producer=producer, limits=limits, partitions=snapshot_partitions)
        view = Bindings(home_partitions=snapshot_partitions)
        self.join = joining.Join(
            producer=producer, bindings=view, limits=limits, redaction=redaction, call_profile=call_profile
        )
        self.alerts = Alerts(AlertRules(version=producer.version) if alert_rules is None else alert_rules)

    @property
    def view(self) -> Bindings:
        """The join's bindings: the registry has its own."""
        return self.join.bindings


def process(state: EngineState, record: Record, event: Call | InputError | None = None) -> list[Output]:
    """Apply one record of any input topic, of the binding topic or of the finding topic.

    Args:
        state: the state so far; it is changed in place.
        record: the next record.
        event: the call that ``Join.read`` found in the record, if it has been read before.

    Raises:
        IntegrityError: if our own logs contradict each other. Bad input never raises: it is an output.
    """
    match record.role:
        case Role.CALLS | Role.BINDINGS:
            return joining.process(state.join, record, event)
        case Role.SNAPSHOTS | Role.CONTROL:
            return registering.process(state.registry, record)
        case Role.FINDINGS:
            return alerting.process(state.alerts, record)
        case _:
            raise AssertionError(f"records of role {record.role} are written, never read")


def run(state: EngineState, records: Iterable[Record]) -> list[Output]:
    return [output for record in records for output in process(state, record)]


def restore(state: EngineState, facts: Iterable[Output]) -> EngineState:
    """Give the facts of an earlier registry to a new one, and to its join."""
    for offset, fact in enumerate(facts):
        record = Record(Role.BINDINGS, Origin("bindings", 0, offset), fact.key, fact.value)
        state.registry.bindings.take(record)
        state.view.take(record)
    return state


def compacted(facts: list[Output]) -> list[Output]:
    """What log compaction leaves: the last record of each key, in the order of the log, tombstones gone."""
    last = {fact.key: index for index, fact in enumerate(facts)}
    return [fact for index, fact in enumerate(facts) if last[fact.key] == index and fact.value is not None]


def evidence_by_partition(outputs: Iterable[Output]) -> dict[int | None, list[Output]]:
    found = defaultdict(list)
    for output in outputs:
        if output.role is Role.EVIDENCE:
            found[output.partition].append(output)
    return dict(found)
