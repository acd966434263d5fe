"""What operators erased and what they hold, from control records or from the changes that state them.

1. An erasure covers calls and their evidence, and nothing else: no list, decision, alert or checkpoint, and no erasure.
   Nor does it cover what happens after it, but for clocks that are ahead.
2. A hold is set before an erasure where the log has it earlier, and stands until the log has its removal. An erasure
   that met a hold counts for nothing, whatever came later.
3. Records of different partitions have no order: there a hold counts as set before an erasure, and a removal as later.
4. The first erasure under an id counts. It accounts for as many records of evidence as it states.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple

from pydantic import ValidationError

from assay_stream.canonical.decode import read_leniently
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.cloudevents import event_time_us, is_binary, read_event
from assay_stream.model.control import (
    ERASURE_SET_TYPE,
    HOLD_REMOVE_TYPE,
    HOLD_SET_TYPE,
    ControlEvent,
    ErasureSetData,
    HoldRemoveData,
    HoldSetData,
)
from assay_stream.model.evidence import CHANGE_TYPE, EVIDENCE_TYPE
from assay_stream.model.fields import ScopeField
from assay_stream.model.finding import ANY_SERVER
from assay_stream.model.record import CALL_TYPE, ERASED_LEAF_HEADER, Headers, Origin, Record, Role, erased_by
from assay_stream.text.times import time_us_in, time_us_of

_PREFIX = "assay.control."
HOLD, RELEASE, ERASURE = (kind.removeprefix(_PREFIX) for kind in (HOLD_SET_TYPE, HOLD_REMOVE_TYPE, ERASURE_SET_TYPE))
_STATED: dict[str, type[HoldRemoveData]] = {HOLD: HoldSetData, RELEASE: HoldRemoveData, ERASURE: ErasureSetData}
_EVER_US = (-(2**63), 2**63 - 1)


class Subject(NamedTuple):
    """What a scope goes by, of a call or its evidence."""

    server_id: str
    agent_id: str | None
    time_us: int


def subject_of(value: bytes | None, headers: Headers = ()) -> Subject | None:
    """Return what a call or its evidence is about, ``None`` for other records, and where it does not say."""
    event = None if value is None else read_leniently(value)
    if is_binary(headers):
        stated = {name: (text or b"").decode("utf-8", "replace") for name, text in headers}
        event = {"type": stated.get("ce_type"), "time": stated.get("ce_time"), "data": event}
    if not isinstance(event, dict) or event.get("type") not in (CALL_TYPE, EVIDENCE_TYPE):
        return None
    data, time_us = event.get("data"), time_us_in(event.get("time"))
    if not isinstance(data, dict) or not isinstance(data.get("server_id"), str) or time_us is None:
        return None
    actor = data.get("actor")
    agent_id = actor.get("agent_id") if isinstance(actor, dict) else None
    return Subject(data["server_id"], agent_id if isinstance(agent_id, str) else None, time_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeAct:
    """An erasure, a hold, or the removal of one.

    Args:
        act: ``erasure.set``, ``hold.set`` or ``hold.remove``.
        scope: ``None`` of a removal.
        records: of an erasure, how many records of evidence it accounts for.
        origin: its control record.
    """

    act: str
    scope_id: str
    scope: ScopeField | None
    records: int | None
    author: str
    reason: str
    time_us: int
    origin: Origin
    server_id: str = ANY_SERVER

    def overlaps(self, other: ScopeField) -> bool:
        scope = self.scope or {}
        names = [{side.get(name) for side in (scope, other)} - {None} for name in ("server_id", "agent_id")]
        if any(len(named) > 1 for named in names):
            return False
        (first_us, end_us), (other_first_us, other_end_us) = span_us(scope), span_us(other)
        return first_us < other_end_us and other_first_us < end_us


def covers(scope: ScopeField | None, subject: Subject) -> bool:
    if scope is None:
        return False
    if scope.get("server_id") not in (None, subject.server_id) or scope.get("agent_id") not in (None, subject.agent_id):
        return False
    first_us, end_us = span_us(scope)
    return first_us <= subject.time_us < end_us


def span_us(scope: ScopeField) -> tuple[int, int]:
    """Return the first event time in a scope, and the first behind it, in microseconds since the epoch."""
    return _span_us(scope.get("from_time"), scope.get("to_time"))


@lru_cache(maxsize=1_024)
def _span_us(*given: str | None) -> tuple[int, int]:
    first_us, end_us = (ever if text is None else time_us_of(text) for text, ever in zip(given, _EVER_US, strict=True))
    return first_us, end_us


def act_of(record: Record, event: ControlEvent) -> ScopeAct:
    """Return what a control record of one of these kinds says.

    Raises:
        InputError: for a time that is none, a scope that ends before it begins, or an erasure of what is yet to happen.
    """
    return _act(event.type.removeprefix(_PREFIX), event.data, event_time_us(event), record.origin)


def _act(kind: str, data: HoldRemoveData, time_us: int, origin: Origin) -> ScopeAct:
    scope = data.scope if isinstance(data, HoldSetData) else None
    if scope is not None and span_us(scope)[0] >= span_us(scope)[1]:
        raise InputError("bad_time", "the scope ends before it begins", path="$.data.scope.to_time")
    # It would keep what is yet to happen out of stores. Clocks of observers may be that far ahead.
    if kind == ERASURE and span_us(scope or {})[1] > time_us + DEFAULT_LIMITS.future_max_ms * 1_000:
        raise InputError("bad_time", "it covers what there is: its scope ends after it", path="$.data.scope.to_time")
    return ScopeAct(
        act=kind,
        scope_id=data.id,
        scope=scope,
        records=data.records if isinstance(data, ErasureSetData) else None,
        author=data.author,
        reason=data.reason,
        time_us=time_us,
        origin=origin,
    )


def acts_in(records: Iterable[Record]) -> Iterator[ScopeAct]:
    """Yield the acts among some control records and changes; both of one act are one act."""
    for record in records:
        if record.role is Role.CONTROL and record.key == ANY_SERVER.encode():
            with suppress(InputError):  # refused by the registry, too
                event = read_event(record)
                if isinstance(event, ControlEvent) and isinstance(event.data, HoldRemoveData):
                    yield act_of(record, event)
        elif record.role is Role.CHANGES and (act := act_in(read_leniently(record.value or b""))) is not None:
            yield act


def act_in(change: Any) -> ScopeAct | None:
    """Return the act that a change states, ``None`` if it is about something else, or is no sound change."""
    data = change.get("data") if isinstance(change, dict) and change.get("type") == CHANGE_TYPE else None
    kind = data.get("change") if isinstance(data, dict) else None
    if data is None or not isinstance(kind, str) or kind not in _STATED:
        return None
    try:
        stated = _STATED[kind].model_validate(data | {"id": data.get("scope_id")})
        return _act(kind, stated, time_us_of(change["time"]), Origin(**data["origin"]))
    except (ValidationError, InputError, KeyError, TypeError):
        return None


_by_time = attrgetter("time_us", "origin")


class Erasures:
    """All erasures and holds of a deployment."""

    def __init__(self, acts: Iterable[ScopeAct] = ()) -> None:
        self._acts: dict[Origin, ScopeAct] = {}
        self._erasures: dict[str, ScopeAct] = {}
        self._holds: list[ScopeAct] = []
        self._removals: defaultdict[tuple[str, str, int], list[int]] = defaultdict(list)
        """By hold and partition, at which offsets it is taken back, in order."""
        self._standing: list[ScopeAct] | None = None
        self._by_name: defaultdict[tuple[str | None, str | None], list[tuple[int, ScopeAct]]] | None = None
        self._held: list[ScopeAct] | None = None
        for act in acts:
            self.take(act)

    def take(self, act: ScopeAct) -> None:
        """Add an act, in any order; one that is known already changes nothing."""
        if act.origin in self._acts:
            return
        self._standing = self._held = self._by_name = None
        self._acts[act.origin] = act
        if act.act == RELEASE:
            insort(self._removals[act.scope_id, *act.origin[:2]], act.origin.offset)
        elif act.act == HOLD:
            self._holds.append(act)
        known = self._erasures.get(act.scope_id)
        if act.act == ERASURE and (known is None or act.origin < known.origin):
            self._erasures[act.scope_id] = act

    def __iter__(self) -> Iterator[ScopeAct]:
        return iter(sorted(self._acts.values(), key=_by_time))

    def __contains__(self, scope_id: object) -> bool:
        return scope_id in self._erasures

    def erasure(self, scope_id: str | None) -> ScopeAct | None:
        """Return the erasure of this id, if there is one and it counts."""
        found = None if scope_id is None else self._erasures.get(scope_id)
        return found if found is not None and self.held_by(found) is None else None

    def accounts(self, scope_id: str | None, evidence: bytes) -> bool:
        """Return True if this erasure counts and covers evidence, whose call has a stub in its place."""
        found, subject = self.erasure(scope_id), subject_of(evidence)
        return found is not None and subject is not None and covers(found.scope, subject)

    def standing(self) -> list[ScopeAct]:
        """Return the erasures that count, latest first: that one was decided in view of the others."""
        if self._standing is None:
            self._standing = [act for act in self if act is self.erasure(act.scope_id)][::-1]
        return self._standing

    def covering(self, subject: Subject | None) -> list[ScopeAct]:
        """Return the erasures that count and cover a call or its evidence, latest first."""
        if subject is None:
            return []
        if self._by_name is None:
            self._by_name = defaultdict(list)
            for rank, act in enumerate(self.standing()):
                scope = act.scope or {}
                self._by_name[scope.get("server_id"), scope.get("agent_id")].append((rank, act))
        # As many as there were requests: only those that name the server or the agent are looked at.
        names = product(dict.fromkeys((subject.server_id, None)), dict.fromkeys((subject.agent_id, None)))
        named = sorted(found for name in names for found in self._by_name.get(name, ()))
        return [act for _, act in named if covers(act.scope, subject)]

    def due(self, subject: Subject | None) -> list[ScopeAct]:
        """Return the erasures by which a call or its evidence is to be deleted: none while a hold covers it."""
        found = self.covering(subject)
        is_held = found and subject is not None and any(covers(hold.scope, subject) for hold in self.holds())
        return [] if is_held else found

    def held_by(self, erasure: ScopeAct) -> ScopeAct | None:
        """Return the hold that an erasure met, which makes it count for nothing."""
        met = (hold for hold in self._holds if self._stood(hold, erasure) and hold.overlaps(erasure.scope or {}))
        return min(met, key=_by_time, default=None)

    def _stood(self, hold: ScopeAct, erasure: ScopeAct) -> bool:
        if hold.origin[:2] != erasure.origin[:2]:
            return True  # Nothing says which was earlier.
        removed_at = self._removed_at(hold)
        return hold.origin.offset < erasure.origin.offset and (removed_at is None or removed_at > erasure.origin.offset)

    def holds(self, scope: ScopeField | None = None) -> list[ScopeAct]:
        """Return the holds in force now; of a scope, those that touch it."""
        if self._held is None:
            self._held = [act for act in self if act.act == HOLD and self._removed_at(act) is None]
        return [hold for hold in self._held if hold.overlaps(scope or {})]

    def _removed_at(self, hold: ScopeAct) -> int | None:
        offsets = self._removals.get((hold.scope_id, *hold.origin[:2]), [])
        at = bisect_right(offsets, hold.origin.offset)
        return offsets[at] if at < len(offsets) else None


class Account:
    """Holds what stands in place of erased evidence against the erasures that it names.

    Args:
        known: returns all erasures; called once anything is erased.

    Attributes:
        erased: by id, how many records each erasure accounted for.
    """

    def __init__(self, known: Callable[[], Erasures]) -> None:
        self._known = known
        self.erased: Counter[str] = Counter()
        self._excused: Counter[str] = Counter()

    @cached_property
    def erasures(self) -> Erasures:
        return self._known()

    def refuse(self, record: Record, leaf: bytes | None = None) -> str | None:
        """Return why no erasure accounts for a record, ``None`` if one does.

        Args:
            record: what stands in place of an erased record.
            leaf: the hash of the leaf that was sealed there, if known.
        """
        scope_id = erased_by(record)
        found = self.erasures.erasure(scope_id)
        if scope_id is None or found is None:
            return "erasure_held" if scope_id in self.erasures else "erasure_unknown"
        if leaf is not None and dict(record.headers).get(ERASED_LEAF_HEADER) != leaf.hex().encode():
            return "erasure_of_another_record"
        if self.erased[scope_id] >= (found.records or 0):
            return "erasure_exceeded"
        self.erased[scope_id] += 1
        return None

    def excuse(self, subject: Subject | None) -> ScopeAct | None:
        """Return the erasure that accounts for a call without evidence, ``None`` if none does, or no more."""
        for act in self.erasures.covering(subject):
            if self._excused[act.scope_id] < (act.records or 0):
                self._excused[act.scope_id] += 1
                return act
        return None

    def used(self) -> list[ScopeAct]:
        return [act for act in self.erasures.standing() if self.erased[act.scope_id]] if self.erased else []
