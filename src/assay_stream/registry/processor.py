"""The registry: snapshots and control records in; facts, definitions, findings, changes and verdicts out.

1. A record is decoded and checked as a whole before any state changes.
2. State changes only by applying the facts that are published: a restart restores what was there.
3. A digest is computed once per distinct definition; equal bytes are never canonicalised twice.
4. A refused record of the snapshots topic ends the force of what its observer saw before on the server that its key
   names; without a header that names the observer, of what every observer that sends none saw.
5. Findings about pins and signatures follow from what both logs hold, not from which was read first.
"""

from __future__ import annotations

from collections import Counter

from assay_stream.bindings.server import ServerBindings
from assay_stream.errors import InputError
from assay_stream.model.cloudevents import (
    check_observer,
    event_time_us,
    identifier_of,
    log_time_us,
    observer_in_header,
    read_event,
)
from assay_stream.model.control import ControlEvent
from assay_stream.model.facts import Rejection
from assay_stream.model.finding import Finding, FloodEnd, alone_max
from assay_stream.model.kinds import RELEASE_KINDS, Kind
from assay_stream.model.observation import ListChangedEvent, LossEvent, SnapshotEvent
from assay_stream.model.record import Output, Record, Role, rejected
from assay_stream.model.rejected import refusal
from assay_stream.registry.analysis import Analysis, finding_in
from assay_stream.registry.control_step import apply_control
from assay_stream.registry.retention import evict, evict_observers, fold_unlisted, is_redundant, merge_rejections
from assay_stream.registry.snapshot_step import apply_announcement, apply_snapshot
from assay_stream.registry.step import Registry, Step, Transition
from assay_stream.work import Work

__all__ = ["Registry", "process"]

_RELEASE_LABELS = frozenset(f"finding:{kind.value}" for kind in RELEASE_KINDS)


def process(registry: Registry, record: Record) -> list[Output]:
    """Apply one snapshot or control record.

    Args:
        registry: the state of the record's partition; it changes only by the returned facts.
        record: the next record of the snapshots or the control topic.

    Returns:
        Facts, definitions, findings, changes and verdicts to publish, or the rejected copy. Bad input never raises.
    """
    step = Step(registry, record)
    try:
        event = read_event(record, limits=registry.limits)
        if not isinstance(event, SnapshotEvent | ListChangedEvent | LossEvent | ControlEvent):
            raise AssertionError(f"no handler for {type(event).__name__}")
        server_id = event.data.server_id
        _check_key(record, server_id)
        known = registry.bindings.find(server_id)
        observers = 0 if known is None else len(known.observers)
        match event:
            case SnapshotEvent():
                apply_snapshot(step, event)
            case ListChangedEvent():
                apply_announcement(step, event)
            case LossEvent():
                check_observer(record, event.data.observer_id, limits=registry.limits)
                _find_loss(step, event)
            case _:
                apply_control(step, event)
    except InputError as error:
        return _refuse(step, error)
    now_known = registry.bindings.find(server_id)
    if now_known is not None and len(now_known.observers) > observers:
        evict_observers(step, event_time_us(event))
    return _finish(step, server_id, event_time_us(event))


def _find_loss(step: Step, event: LossEvent) -> None:
    """Publish the finding of a loss. State does not change: nothing follows from what was not observed."""
    data = event.data
    if not data.lists and not data.calls:
        return
    finding = Finding(
        kind=Kind.OBSERVATIONS_LOST,
        server_id=data.server_id,
        observer_id=data.observer_id,
        # One alert per observer, so that the losses of a second one show.
        item_name=data.observer_id,
        time_us=event_time_us(event),
        origin=step.record.origin,
    )
    step.outputs.append(finding.output())


def _check_key(record: Record, server_id: str) -> None:
    if record.key is None:
        raise InputError("key_missing", "the record's key must be the event's server_id, and there is none")
    if record.key != server_id.encode():
        raise InputError("key_mismatch", "the record's key must be the event's server_id", path="$.data.server_id")


def _refuse(step: Step, error: InputError) -> list[Output]:
    registry, record = step.registry, step.record
    server_id = identifier_of(record.key, limits=registry.limits)
    if record.role is not Role.SNAPSHOTS or server_id is None:
        return refusal(record, error)
    rejection = Rejection(
        server_id=server_id,
        origin=record.origin,
        time_us=log_time_us(record, registry.limits),
        code=error.code,
        observer_id=observer_in_header(record.headers, limits=registry.limits),
    )
    step.outputs = [rejected(record, error)]
    server = registry.bindings.server(server_id)
    # The next good list will resolve a refusal for a reason that is known.
    is_known = any(known.code == error.code for known in server.endings.rejections_of(rejection.observer_id))
    if not (is_known and is_redundant(server, rejection)):
        _publish_rejection(step, server, rejection)
    step.outputs.append(finding_in(rejection, Kind.SNAPSHOT_REJECTED, reason=error.code).output())
    return _finish(step, server_id, rejection.time_us)


def _publish_rejection(step: Step, server: ServerBindings, rejection: Rejection) -> None:
    analysis = Analysis(Work(step.limits.work_units_max))
    # An observer without a list has no findings, and no verdict depends on it.
    concerns_lists = any(True for _ in server.concerned(rejection))
    transition = Transition(step, server, rejection, analysis) if concerns_lists else None
    step.publish(rejection)
    merge_rejections(step, server, rejection.observer_id)
    fold_unlisted(step, server)
    if transition is not None:
        transition.revise_first_uses()
        step.outputs += transition.findings()
        transition.publish_verdicts()
        transition.publish_cut()


def _finish(step: Step, server_id: str, time_us: int) -> list[Output]:
    """Evict what exceeds the bounds, and add an end mark if the record's findings are alerted together."""
    server = step.bindings.find(server_id)
    if server is not None:
        server.drop_small_indexes()
    evict(step, server_id, time_us)
    outputs = step.outputs
    findings = sum(output.label.startswith("finding:") for output in outputs)
    is_release = sum(output.label in _RELEASE_LABELS for output in outputs) > 1
    groups = Counter(output.key or b"" for output in outputs if output.label == "name_claim:come")
    ends = [
        FloodEnd(server_id=server_id, group=group, findings=number, time_us=time_us, origin=step.record.origin)
        for group, number in ((None, findings), *((key.decode(), number) for key, number in sorted(groups.items())))
        if number > alone_max(group) or (group is None and is_release)
    ]
    return [*outputs, *(end.output() for end in ends)]
