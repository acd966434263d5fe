"""Drift of prompts and resource templates between two snapshots of one server.

The comparison is with what the same observer last stated of them; where it never did, with what the rest of the
fleet last stated. Nothing is called removed on the word of a list that is not complete. A name that was not stated
is an addition after a complete list; after incomplete ones it is, if nobody ever stated it. Where somebody did, it
is held against what was stated last under its name. The completeness that a snapshot states is that of all its
lists.

A name that stands with several definitions makes no call ambiguous: each definition that was not there before is a
change of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from assay_stream.canonical.digest import jcs_digest
from assay_stream.detect import CUT_SHORT, ToolNames, detect_indicators
from assay_stream.drift import compare_definitions
from assay_stream.drift.definition import differing_fields, not_compared
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.facts import ItemList, Seen
from assay_stream.model.fields import LeftOut, Subject
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Position
from assay_stream.registry.analysis import Analysis
from assay_stream.registry.item_offer import ItemOffer
from assay_stream.registry.list_drift import PAIRS_KEPT, telling_changes
from assay_stream.registry.packed import unpack
from assay_stream.registry.state import ServerBindings
from assay_stream.schemes.fingerprint import ContentCache
from assay_stream.work import WorkExhaustedError

_UNITS_PER_MERGED_ITEM = 5
_NOT_COMPARED = telling_changes([not_compared()])


@dataclass(slots=True, kw_only=True)
class _Baseline:
    """What was last known of a list, by name; whether any list was stated, and a complete one."""

    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    complete: bool = False
    stated: bool = False


def compare_items(
    server: ServerBindings, offer: ItemOffer, seen: Seen, analysis: Analysis | None = None
) -> Iterator[Finding]:
    """Yield what a snapshot shows of prompts, or of templates, that its baseline did not, in the order of names."""
    latest = next(_stated(server, seen.observer_id, offer.subject, seen.position), None)
    if latest is not None and repeats(latest, offer):
        return
    analysis = Analysis(DEFAULT_LIMITS.work_units_max) if analysis is None else analysis
    was = _baseline(server, offer.subject, seen, analysis)
    now = offer.as_fact(seen.server_id).by_name()
    is_complete = seen.completeness == "complete" and not offer.is_cut
    told = _Telling(server, seen, offer, analysis)
    new = now.keys() - was.names.keys()
    known = {name for name in new if server.fleet.is_item_known(offer.subject, name)}
    come = {name for name in new if was.complete or (was.stated and name not in known)}
    shown = _last_stated(server, offer.subject, seen, known - come, analysis)
    for name in sorted(now.keys() | was.names.keys()):
        if name not in now:
            if was.complete and is_complete:
                yield told.found("removed", name, before=was.names[name][0])
        elif name in come:
            for full in now[name]:
                yield told.found("added", name, after=full, signs=told.signs(None, full))
        else:
            older = was.names.get(name) or shown.get(name, ())
            held = frozenset(older)
            for full in now[name]:
                if older and full not in held:
                    yield told.changed(name, older[0], full)


def latest_stating(server: ServerBindings, subject: Subject, seen: Seen) -> Seen | None:
    """Return the observation before a snapshot that its prompts, or templates, are compared with first."""
    own = next(_stated(server, seen.observer_id, subject, seen.position), None)
    if own is not None:
        return own
    latest = server.observations.latest_stating(seen.position, subject)
    if latest is None or not latest.rationed:
        return latest
    return next(_stated(server, latest.observer_id, subject, seen.position), latest)


def repeats(latest: Seen, offer: ItemOffer) -> bool:
    """Tell whether the complete list before is the same: then there is nothing to compare."""
    is_whole = latest.completeness == "complete" and not latest.rationed and not offer.is_cut
    return is_whole and latest.listed(offer.subject) == offer.digest


def _baseline(server: ServerBindings, subject: Subject, seen: Seen, analysis: Analysis) -> _Baseline:
    """Return what a list is compared with. Merging more than one list draws on the budget."""
    observer_id: str | None = seen.observer_id
    if next(_stated(server, seen.observer_id, subject, seen.position), None) is None:
        observer_id = _latest_observer(server, subject, seen.position)
    baseline = _Baseline(stated=observer_id is not None)
    if observer_id is None:
        return baseline
    merged: set[str] = set()
    for old in _stated(server, observer_id, subject, seen.position):
        listed = _list_of(server, old, subject)
        if listed.digest not in merged:
            try:
                analysis.work.spend(_UNITS_PER_MERGED_ITEM * len(listed.items) if merged else 0)
            except WorkExhaustedError:
                analysis.left_out.add(LeftOut.HISTORY)
                break
            merged.add(listed.digest)
            for name, fulls in listed.by_name().items():
                baseline.names.setdefault(name, fulls)
        if old.completeness == "complete" and not listed.is_cut:
            baseline.complete = True
            break
    return baseline


def _last_stated(
    server: ServerBindings, subject: Subject, seen: Seen, names: Set[str], analysis: Analysis
) -> dict[str, tuple[str, ...]]:
    """Return what anybody stated last under each of these names, as far as the budget suffices."""
    missing = set(names)
    found: dict[str, tuple[str, ...]] = {}
    looked_at: set[str] = set()
    try:
        for old in server.observations.back_stating(seen.position, subject) if missing else ():
            analysis.work.spend(1)
            listed = _list_of(server, old, subject)
            if listed.digest in looked_at:
                continue
            looked_at.add(listed.digest)
            analysis.work.spend(_UNITS_PER_MERGED_ITEM * len(listed.items))
            stated = listed.by_name()
            found |= {name: stated[name] for name in missing & stated.keys()}
            missing -= stated.keys()
            if not missing:
                break
    except WorkExhaustedError:
        analysis.left_out.add(LeftOut.HISTORY)
    return found


def _latest_observer(server: ServerBindings, subject: Subject, position: Position) -> str | None:
    found = server.observations.latest_stating(position, subject)
    return None if found is None else found.observer_id


def _stated(server: ServerBindings, observer_id: str, subject: Subject, position: Position) -> Iterator[Seen]:
    """Yield what an observer stated of a list before a position, newest first, but for what was rationed."""
    timeline = server.observers.get(observer_id)
    if timeline is None:
        return
    for seen in timeline.back_from(position):
        if seen.listed(subject) is not None and not seen.rationed:
            yield seen


def _list_of(server: ServerBindings, seen: Seen, subject: Subject) -> ItemList:
    return server.item_list(subject, str(seen.listed(subject)))


class _Telling:
    """Makes the findings about one list of a snapshot."""

    def __init__(self, server: ServerBindings, seen: Seen, offer: ItemOffer, analysis: Analysis) -> None:
        self._server = server
        self._analysis = analysis
        self._work = analysis.work
        self._seen = seen
        self._offer = offer

    @cached_property
    def _names(self) -> ToolNames:
        names = (item.get("name") for item in self._offer.definitions.values())
        spent = self._work.spent
        index = ToolNames({name for name in names if isinstance(name, str)}, self._work)
        self._analysis.keep(self._work.spent - spent)
        return index

    @cached_property
    def _names_digest(self) -> str:
        return str(jcs_digest(sorted(str(item.get("name")) for item in self._offer.definitions.values())))

    def found(
        self,
        what: str,
        name: str,
        *,
        before: str | None = None,
        after: str | None = None,
        changed_fields: tuple[str, ...] = (),
        changes: tuple[tuple[str, str, str], ...] = (),
        signs: tuple[tuple[str, int, str], ...] = (),
    ) -> Finding:
        seen = self._seen
        return Finding(
            kind=Kind(f"{self._offer.subject}_{what}"),
            server_id=seen.server_id,
            item_name=name,
            observer_id=seen.observer_id,
            time_us=seen.time_us,
            origin=seen.origin,
            snapshot_id=seen.snapshot_id,
            before=before,
            after=after,
            changed_fields=changed_fields,
            known=after is not None and (self._offer.subject, after) in self._server.items,
            changes=changes,
            signs=signs,
        )

    def changed(self, name: str, before: str, after: str) -> Finding:
        packed = self._server.items[self._offer.subject, before]
        was = None if packed is None else unpack(packed)
        signs = self.signs(was, after, before)
        if was is None or after in self._offer.oversized:
            return self.found("changed", name, before=before, after=after, changes=_NOT_COMPARED, signs=signs)
        now = self._offer.definitions[after]
        return self.found(
            "changed",
            name,
            before=before,
            after=after,
            changed_fields=tuple(differing_fields(was, now)),
            changes=self._changes(was, now, before, after),
            signs=signs,
        )

    def _changes(
        self, was: Mapping[str, Any], now: Mapping[str, Any], before: str, after: str
    ) -> tuple[tuple[str, str, str], ...]:
        try:
            return self._kept(
                _COMPARED,
                f"{before} {after}",
                lambda: telling_changes(compare_definitions(was, now, self._work)),
            )
        except WorkExhaustedError:
            self._analysis.left_out.add(LeftOut.COMPARISON)
            return _NOT_COMPARED

    def signs(
        self, was: Mapping[str, Any] | None, full: str, before: str | None = None
    ) -> tuple[tuple[str, int, str], ...]:
        try:
            names = self._names
            return self._kept(_SIGNS, f"{before} {full} {self._names_digest}", lambda: self._search(was, full, names))
        except WorkExhaustedError:
            self._analysis.left_out.add(LeftOut.TEXT)
            return () if self._analysis.is_rationed else _NOT_SEARCHED

    def _search(self, was: Mapping[str, Any] | None, full: str, names: ToolNames) -> tuple[tuple[str, int, str], ...]:
        found = detect_indicators(was, self._offer.definitions[full], tool_names=names, work=self._work)
        return tuple((sign.rule, sign.level, sign.path) for sign in found)

    def _kept(self, cache: ContentCache[tuple[_Answer, int]], question: str, ask: Callable[[], _Answer]) -> _Answer:
        """Return an answer that is kept, at the price that it had, or work it out."""
        known = cache.get(question.encode())
        if known is None:
            spent = self._work.spent
            answer = ask()
            known = answer, self._work.spent - spent
            cache.put(question.encode(), known)
        else:
            self._work.spend(known[1])
        self._analysis.keep(known[1])
        return known[0]


_Answer = TypeVar("_Answer")
_Told = tuple[tuple[str, str, str], ...]
_Signs = tuple[tuple[str, int, str], ...]
# As for tools (``registry.list_drift``): a roll-out shows the same change to every observer of a server.
_NOT_SEARCHED: _Signs = ((CUT_SHORT.rule, CUT_SHORT.level, CUT_SHORT.path),)
_COMPARED: ContentCache[tuple[_Told, int]] = ContentCache(PAIRS_KEPT)
_SIGNS: ContentCache[tuple[_Signs, int]] = ContentCache(PAIRS_KEPT)
