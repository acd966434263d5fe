"""Resolution of alerts: a definition is gone again, a list can be read again, an operator decided.

A resolution names the uids of the alerts it ends; the alert stage ignores unknown ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from assay_stream.bindings.as_of import start_of
from assay_stream.bindings.checks import check_signature
from assay_stream.bindings.controls import When
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.timeline import AFTER_ALL_US
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.control import Discovery, KeyDecision, Pin, PinStatus, Policy
from assay_stream.model.facts import Catalogue, Rejection, Seen
from assay_stream.model.fields import LeftOut
from assay_stream.model.finding import Reason, Resolution, uid_of
from assay_stream.model.kinds import Kind
from assay_stream.registry.analysis import Analysis, Baseline
from assay_stream.registry.list_drift import set_digest
from assay_stream.schemes.handshake_contract import DRIFT_CODES
from assay_stream.schemes.hangar import Action
from assay_stream.schemes.schemapin import SchemaPinErrorCode

Uids = Iterable[str]
_Reasons = dict[Kind, tuple[str | None, ...]]

OF_CHANGE: _Reasons = {
    Kind.TOOL_ADDED: (None,),
    Kind.TOOL_CHANGED: (None,),
    Kind.TOOL_RENAMED: (None,),
    Kind.RISK_LEVEL_CHANGED: (None,),
    Kind.CONTRACT_VIOLATION: DRIFT_CODES,
}
"""Kinds that are about one definition, and the reasons they come with."""

OF_PINS: _Reasons = {Kind.PIN_MISMATCH: (None, PinStatus.REJECTED.value), Kind.UNPINNED_TOOL: (None,)}
_OF_SIGNATURE: _Reasons = {
    Kind.SIGNATURE_MISSING: (None,),
    Kind.SIGNATURE_INVALID: tuple(code.value for code in SchemaPinErrorCode),
}
_OF_KEY = (Kind.KEY_CHANGED, Kind.KEY_REVOKED, Kind.SIGNATURE_MISSING)
"""Kinds whose reason is a key."""

OF_CALL: _Reasons = {Kind.BLOCKED_TOOL_CALLED: (None,)}

_ENDED_BY: dict[PinStatus, _Reasons] = {
    PinStatus.MATCH: OF_CHANGE | OF_PINS | OF_CALL,
    PinStatus.MISMATCH: {Kind.PIN_MISMATCH: (PinStatus.REJECTED.value,), Kind.UNPINNED_TOOL: (None,)},
    PinStatus.REJECTED: {Kind.PIN_MISMATCH: (None,), Kind.UNPINNED_TOOL: (None,)},
    PinStatus.UNPINNED: {Kind.PIN_MISMATCH: (None, PinStatus.REJECTED.value)},
}
"""What a definition is no longer found for, by its state under the pins."""


def uids_of_signature(server: ServerBindings, server_id: str, tool_name: str, full: str) -> Iterator[str]:
    """Yield the uids of every possible finding about the signature of one definition."""
    yield from uids_of(server_id, tool_name, full, _OF_SIGNATURE)
    for key in sorted(server.controls.key_documents()):
        for kind in _OF_KEY:
            yield uid_of(kind, server_id, tool_name, full, key)


def uids_of(server_id: str, tool_name: str, full: str | None, reasons: _Reasons) -> Uids:
    for kind, known in reasons.items():
        for reason in known:
            yield uid_of(kind, server_id, tool_name, full, reason)


_UNITS_PER_UID = 50
_UNITS_PER_OBSERVER = 2


def resolved_by_snapshot(
    server: ServerBindings, baseline: Baseline | None, catalogue: Catalogue, seen: Seen, analysis: Analysis
) -> list[Resolution]:
    """Return what a snapshot resolves, for its observer. A late one resolves nothing."""
    own = server.observers.get(seen.observer_id)
    latest = None if own is None else own.latest
    if latest is not None and latest.position > seen.position:
        return []
    gone: dict[bool, list[str]] = {False: [], True: []}
    back: list[str] = []
    if baseline is not None and latest is not None:
        for name, full, uids in _ended(server, baseline, catalogue, seen):
            gone[not server.fleet.shows_others(name, full, seen.observer_id)] += uids
        back = [
            uid_of(Kind.TOOL_REMOVED, seen.server_id, name, full, None)
            for name in sorted(catalogue.tools.keys() - baseline.tools.keys())
            for full in analysis.paid(sorted(server.fleet.known.get(name, ())), _UNITS_PER_UID, LeftOut.RESOLUTIONS)
        ]
    return [
        *_by_reach(gone, "no_longer_offered", seen),
        *resolutions(back, "definition_returned", seen, seen.observer_id),
        *resolutions(_readable_again(server, seen), "definition_returned", seen, None),
    ]


def resolved_by_decision(
    server: ServerBindings, fact: Pin | Policy | KeyDecision | Discovery, analysis: Analysis
) -> list[Resolution]:
    """Return what an operator's decision, or a discovered key, resolves for the whole fleet.

    The state after it by event time counts: a decision that a later one has replaced ends nothing.
    """
    match fact:
        case Pin():
            uids = _by_pins(server, fact.server_id, [fact.tool_name])
        case Policy():
            names = sorted(server.fleet.known) if fact.tool_name is None else [fact.tool_name]
            uids = _by_pins(server, fact.server_id, names)
        case KeyDecision() | Discovery():
            uids = _by_signatures(server, fact.server_id)
    paid = analysis.paid(uids, _UNITS_PER_UID, LeftOut.RESOLUTIONS)
    return resolutions(paid, "decided", fact, None)


def _ended(
    server: ServerBindings, baseline: Baseline, catalogue: Catalogue, seen: Seen
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the definitions that the observer saw before and that bind nothing now, and the uids that end with each.

    An incomplete list shows only what is in it.
    """
    server_id, is_whole = seen.server_id, seen.completeness == "complete" and baseline.same_rights
    for name in filter(lambda name: is_whole or name in catalogue.tools, baseline.differing(catalogue)):
        now = frozenset(catalogue.definitions_of(name))
        for full in baseline.definitions_of(name):
            if catalogue.tools.get(name) != full:
                uids = [] if full in now else list(uids_of(server_id, name, full, OF_CHANGE))
                if server.controls:  # Without anything set or signed nothing was found about it.
                    uids += uids_of(server_id, name, full, OF_PINS)
                    uids += uids_of_signature(server, server_id, name, full)
                yield name, full, uids
    for full in sorted(baseline.nameless.difference(catalogue.nameless)) if is_whole else ():
        yield "", full, [uid_of(Kind.TOOL_ADDED, server_id, None, full, None)]
    for name, fulls in sorted(baseline.ambiguous.items()):
        if fulls and (is_whole or name in catalogue.tools) and catalogue.ambiguous.get(name) != fulls:
            digest = set_digest(fulls)
            uids = [uid_of(Kind.DEFINITION_AMBIGUOUS, server_id, name, digest, None)]
            if server.controls and name not in catalogue.ambiguous:
                uids += uids_of(server_id, name, None, OF_PINS)
            yield name, digest, uids


def _readable_again(server: ServerBindings, seen: Seen) -> Uids:
    """Yield the refusals that this list is the first to follow, and that no other observer still has.

    A refusal that names an observer ends with its next readable list; one that names none ends with any next list.
    """
    ended = {bad.code for observer_id in (None, seen.observer_id) for bad in _unanswered(server, observer_id)}
    if ended:
        others = server.endings.rejections.keys() - {None, seen.observer_id}
        ended -= {bad.code for observer_id in others for bad in _unanswered(server, observer_id)}
    for code in sorted(ended):
        yield uid_of(Kind.SNAPSHOT_REJECTED, seen.server_id, None, None, code)


def _unanswered(server: ServerBindings, observer_id: str | None) -> Sequence[Rejection]:
    """Return an observer's rejections if none of its lists followed; for ``None``, if no list at all did."""
    ends = server.endings.rejections_of(observer_id)
    if not ends or observer_id is None:
        return ends if ends and server.observations.all_before(ends[-1]) else ()
    timeline = server.observers.get(observer_id)
    is_answered = timeline is not None and not all(ends[-1].is_after(known) for known in timeline.newest_first())
    return () if is_answered else ends


def approved_before(server: ServerBindings, baseline: Baseline | None, catalogue: Catalogue) -> Uids:
    """Yield the uids of findings about definitions that an operator approved before they were offered."""
    if not server.controls.pins:
        return
    before = {} if baseline is None else baseline.tools
    for name, full in sorted(catalogue.tools.items()):
        old = before.get(name)
        if full is None or name not in server.controls.pins or (old is not None and old.full == full):
            continue
        yield from _settled_by_pins(server, catalogue.server_id, name, full, approved_only=True)


def _by_pins(server: ServerBindings, server_id: str, names: Iterable[str]) -> Uids:
    for name in names:
        for full in sorted(server.fleet.known.get(name, ())):
            yield from _settled_by_pins(server, server_id, name, full)


def _settled_by_pins(
    server: ServerBindings, server_id: str, name: str, full: str, *, approved_only: bool = False
) -> Uids:
    stands = server.pin_now(name, server.fingerprint(full))
    if approved_only and stands.status is not PinStatus.MATCH:
        return
    yield from uids_of(server_id, name, full, _ENDED_BY.get(stands.status, {}))
    if stands.status is PinStatus.UNPINNED and stands.action in (None, Action.ALLOW):
        yield uid_of(Kind.UNPINNED_TOOL, server_id, name, full, None)


def _by_signatures(server: ServerBindings, server_id: str) -> Uids:
    """Yield the uids of signature findings about definitions whose signatures are sound wherever they are offered."""
    sound: dict[tuple[str, str], bool] = {}
    for timeline in server.observers.values():
        seen = timeline.latest
        if seen is None or seen.signatures is None:
            continue
        for name, full in server.catalogue_of(seen).tools.items():
            if full is not None:
                result = check_signature(server.controls, seen, name, AFTER_ALL_US)
                is_sound = result is not None and result.error_code is None
                sound[name, full] = sound.get((name, full), True) and is_sound
    for (name, full), is_sound in sorted(sound.items()):
        if is_sound:
            yield from uids_of_signature(server, server_id, name, full)


def resolutions(
    uids: Uids,
    reason: Reason,
    by: Seen | Pin | Policy | KeyDecision | Discovery,
    observer_id: str | None,
    *,
    everywhere: bool = False,
) -> list[Resolution]:
    listed = list(uids)
    most = DEFAULT_LIMITS.resolution_uids_max
    return [
        Resolution(
            server_id=by.server_id,
            uids=tuple(listed[first : first + most]),
            reason=reason,
            observer_id=observer_id,
            time_us=by.time_us,
            origin=by.origin,
            everywhere=everywhere,
        )
        for first in range(0, len(listed), most)
    ]


def resolved_by_signature(
    server: ServerBindings, catalogue: Catalogue, seen: Seen, analysis: Analysis
) -> list[Resolution]:
    """Return the resolution of findings about signatures that are sound now, for their observer.

    Each observer ends them for itself; a late list ends nothing.
    """
    if seen.signatures is None or not server.controls:
        return []
    *earlier, latest = server.observers[seen.observer_id]
    if latest != seen or not earlier:
        return []
    if (earlier[-1].catalogue, earlier[-1].signatures) == (seen.catalogue, seen.signatures):
        return []
    ended: dict[bool, list[str]] = {False: [], True: []}
    others = server.fleet.latest()
    sound = _sound_again(server, catalogue, seen, earlier)
    for name, full in analysis.paid(sound, _UNITS_PER_OBSERVER * len(others), LeftOut.RESOLUTIONS):
        everywhere = not any(
            other.observer_id != seen.observer_id
            and server.catalogue_of(other).tools.get(name) == full
            and _fault(server, other, name, AFTER_ALL_US)
            for other in others
        )
        ended[everywhere] += uids_of_signature(server, seen.server_id, name, full)
    return _by_reach(ended, "signature_returned", seen)


def _by_reach(ended: Mapping[bool, Uids], reason: Reason, seen: Seen) -> list[Resolution]:
    own = seen.observer_id
    return [
        *resolutions(ended[False], reason, seen, own),
        *resolutions(ended[True], reason, seen, own, everywhere=True),
    ]


def _sound_again(
    server: ServerBindings, catalogue: Catalogue, seen: Seen, earlier: list[Seen]
) -> Iterator[tuple[str, str]]:
    """Yield the definitions whose signatures are sound now and were not when this observer last saw them."""
    before = start_of(seen.time_us)
    for name, full in sorted(catalogue.tools.items()):
        if full is None or _fault(server, seen, name, seen.time_us):
            continue
        last = next((old for old in reversed(earlier) if name in server.catalogue_of(old).tools), None)
        if last is None or server.catalogue_of(last).tools[name] != full:
            continue
        if _fault(server, last, name, before):
            yield name, full


def _fault(server: ServerBindings, seen: Seen, name: str, when: When) -> str | None:
    result = check_signature(server.controls, seen, name, when)
    return None if result is None else result.error_code
