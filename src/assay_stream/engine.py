"""The composition of the core: one record in, outputs out.

A worker and a replay differ only in where records come from and where outputs go. Each stage of a worker
feeds the roles it owns; a replay feeds all of them and hands the outputs back in.
"""

from __future__ import annotations

from typing import Any

from assay_stream.alerts.life_cycle import AlertRules
from assay_stream.alerts.processor import DueTimes, take_in
from assay_stream.canonical.redaction import DEFAULT_REDACTION, Redaction
from assay_stream.errors import InputError
from assay_stream.join.decision import join, names_known_snapshot
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.cloudevents import Call, read_call
from assay_stream.model.envelope import Producer
from assay_stream.model.facts import Progress, decode_fact, decode_key, foreign_fact
from assay_stream.model.observation import CallProfile
from assay_stream.model.record import Output, Record, Role
from assay_stream.registry.ledger import fact_output
from assay_stream.registry.processor import Registry
from assay_stream.registry.refusal import refusal
from assay_stream.registry.state import Bindings

_CALLS = Role.CALLS


class EngineState:
    """The state of a worker's stages; a stage that a process does not run stays empty.

    Args:
        producer: who writes the evidence.
        limits: bounds on what is accepted and kept.
        snapshot_partitions: how many partitions the snapshot topic has, ``None`` where there is no such topic.
        redaction: what leaves arguments and results before they are hashed.
        call_profile: what every call must satisfy, whatever profile it names itself.
        alert_rules: what the alert stage is told; the defaults where it is ``None``.
    """

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
        self.producer = producer
        self.limits = limits
        self.redaction = redaction
        self.call_profile: CallProfile = call_profile
        self.registry = Registry(producer=producer, limits=limits, partitions=snapshot_partitions)
        self.view = Bindings()
        self.alerts: dict[str, dict[str, Any]] = {}
        self.alert_rules = AlertRules(version=producer.version) if alert_rules is None else alert_rules
        self.alerts_due = DueTimes(self.alert_rules)


def step(state: EngineState, record: Record) -> tuple[EngineState, list[Output]]:
    """Apply one record.

    Args:
        state: the state so far; it is changed in place and handed back.
        record: the next record of any input log, of the binding topic or of the finding topic.

    Returns:
        The state, and what is to be written, in order.

    Raises:
        IntegrityError: where our own logs contradict each other. Bad input never raises: it is an output.
    """
    if record.role is _CALLS:  # the many
        return state, _call(state, record)
    match record.role:
        case Role.SNAPSHOTS | Role.CONTROL:
            return state, state.registry.step(record)
        case Role.BINDINGS:
            apply_fact(state.view, record)
            return state, []
        case Role.FINDINGS:
            return state, take_in(state.alerts, record, state.alert_rules, state.alerts_due).outputs
        case _:
            raise AssertionError(f"records of role {record.role} are written, never read")


def step_read(state: EngineState, record: Record, event: Call | InputError) -> list[Output]:
    """Apply one call that was read before, as ``step`` does.

    Args:
        state: the state so far.
        record: a record of the calls topic.
        event: what ``read_call`` made of it under the limits and the profile of the state.
    """
    if isinstance(event, InputError):
        return refusal(record, event)
    return join(state.view, record, event, state.producer, state.redaction)


def call_of(state: EngineState, record: Record) -> Call | None:
    """Return the call that a record holds; ``None`` where it is refused, whatever is known by then.

    Args:
        state: the state so far.
        record: a record of the calls topic.
    """
    try:
        return read_call(record, limits=state.limits, call_profile=state.call_profile)
    except InputError:
        return None


def is_final(state: EngineState, event: Call) -> bool:
    """Tell whether a call's definition is final although the registry is still catching up with snapshots.

    Args:
        state: the state so far.
        event: the call.
    """
    return names_known_snapshot(state.view, event)


def apply_fact(bindings: Bindings, record: Record) -> None:
    """Take in one record of the binding topic.

    Args:
        bindings: the view to change.
        record: a fact or a tombstone.
    """
    key = decode_key(record.key)
    if record.value is None:
        try:
            bindings.forget(key, partition=record.origin.partition)
        except (ValueError, IndexError):
            raise foreign_fact() from None
    else:
        bindings.apply(decode_fact(key, record.value), partition=record.origin.partition)


def progress(*, topic: str, partition: int, position: int) -> Output:
    """Return the record that says how far the registry has come in one input partition.

    Args:
        topic: an input topic of the registry.
        partition: its partition, which is the partition of the binding topic too.
        position: the next offset to be read: everything before it has been applied.
    """
    return fact_output(Progress(topic=topic, partition=partition, position=position), partition=partition)


def _call(state: EngineState, record: Record) -> list[Output]:
    try:
        event = read_call(record, limits=state.limits, call_profile=state.call_profile)
    except InputError as error:
        return refusal(record, error)
    return join(state.view, record, event, state.producer, state.redaction)
