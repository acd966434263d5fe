"""Drift between two snapshots of one server: tools added, removed and changed.

The comparison is with what the same observer last saw; an observer's first look is compared with what the
rest of the fleet last saw. Nothing is called removed on the word of an incomplete list. A name that its observer
was not shown is an addition after a complete list; after incomplete ones it is, if nobody was ever shown it.

A tool that comes, or comes back, is compared with the last definition known under its name
(``registry.last_shown``): by going away for a while no change is hidden.

What a server offers may depend on the rights under which it is asked: lists are compared within one
``auth_context``. The first one under other rights is compared with what was seen under any, and nothing is called
removed on its word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple, TypedDict, Unpack

import orjson

from assay_stream.canonical.digest import Digest, jcs_digest
from assay_stream.detect import CUT_SHORT, ToolNames, detect_indicators
from assay_stream.drift import Change, compare_definitions
from assay_stream.drift.definition import not_compared
from assay_stream.drift.lists import renames
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.facts import Catalogue, Seen
from assay_stream.model.fields import LeftOut
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.registry.analysis import Analysis
from assay_stream.registry.approval import is_approved
from assay_stream.registry.baseline import Baseline
from assay_stream.registry.last_shown import last_shown
from assay_stream.registry.offer import Offer
from assay_stream.registry.state import ServerBindings
from assay_stream.schemes.fingerprint import ContentCache, Fingerprint, changed_fields
from assay_stream.schemes.handshake.contract import contract, contract_drift
from assay_stream.schemes.mcptrust import RISK_LEVELS
from assay_stream.work import Work, WorkExhaustedError

PAIRS_KEPT = 2 * DEFAULT_LIMITS.analysed_pairs_max
"""Comparisons of two definitions that are remembered: more than a server is let off for (``registry.allowance``)."""

_RENAMES_PART = 4
"""The part of what is left of the budget, one in as many, that the search for renamed tools may cost."""


def compare(
    server: ServerBindings,
    baseline: Baseline | None,
    catalogue: Catalogue,
    seen: Seen,
    offer: Offer,
    analysis: Analysis | None = None,
) -> Iterator[Finding]:
    """Yield what a snapshot shows that its baseline did not, in the order of tool names."""
    analysis = Analysis(DEFAULT_LIMITS.work_units_max) if analysis is None else analysis
    before = baseline or Baseline()
    told = _Telling(server, seen, offer, analysis)
    gone: set[str] = set()
    new = {} if baseline is None else {name: full for name, full in catalogue.tools.items() if name not in before.tools}
    come = {name for name in new if before.complete or not server.knows(name)}
    if before.complete and before.same_rights and seen.completeness == "complete":
        gone = before.tools.keys() - catalogue.tools.keys()
    renamed = _renames(server, before, catalogue, offer, (gone, come), analysis)
    shown = last_shown(server, seen, new, analysis)
    steps = list(_steps(server, before, catalogue, (new, come, gone), renamed, shown))
    # What new text brings is graver than what a change means: it is looked for first, in all of the list.
    told.search((None if step.old is None else step.old.full, step.full) for step in steps if step.full is not None)
    for step in steps:
        if step.what is Kind.DEFINITION_AMBIGUOUS:
            yield told.ambiguous(step.name, catalogue.definitions_of(step.name))
        elif step.what is Kind.TOOL_REMOVED:
            yield from told.removed(step.name, step.old)
        elif step.what is Kind.TOOL_ADDED and step.full is not None:
            yield told.added(step.name, step.full)
        elif step.old is not None and step.full is not None:
            yield from told.differing(step.what, step.name, step.old, step.full, renamed_to=step.renamed_to)


class _Step(NamedTuple):
    """One comparison: of which kind, about which name, the older definition and the newer one's digest."""

    what: Kind
    name: str
    old: Fingerprint | None
    full: str | None = None
    renamed_to: str | None = None


def _steps(
    server: ServerBindings,
    before: Baseline,
    catalogue: Catalogue,
    new_come_gone: tuple[Collection[str], Collection[str], Collection[str]],
    renamed: Mapping[str, str],
    shown: Mapping[str, Fingerprint],
) -> Iterator[_Step]:
    """Yield what is to be compared, in the order of names."""
    new, come, gone = new_come_gone
    successors = set(renamed.values())
    for name in sorted({*catalogue.tools, *gone}):
        old = before.tools.get(name)
        if name in renamed:
            yield _Step(Kind.TOOL_RENAMED, name, old, catalogue.tools[renamed[name]], renamed[name])
            continue
        if name in gone:
            yield _Step(Kind.TOOL_REMOVED, name, old)
            continue
        now = catalogue.definitions_of(name)
        if catalogue.tools[name] is None:
            yield _Step(Kind.DEFINITION_AMBIGUOUS, name, None)
        if name in new:
            for full in now:
                if name in come and name not in successors:
                    yield _Step(Kind.TOOL_ADDED, name, None, full)
                if name in shown and shown[name].full != full:
                    yield _Step(Kind.TOOL_CHANGED, name, shown[name], full)
        elif name in before.tools:
            was = frozenset(before.definitions_of(name))
            held_against = _held_against(server, before, catalogue, name)
            for full in now:
                if full not in was and held_against is not None:
                    yield _Step(Kind.TOOL_CHANGED, name, held_against, full)


def _held_against(server: ServerBindings, before: Baseline, catalogue: Catalogue, name: str) -> Fingerprint | None:
    """Return the older definition that new ones under a name are compared with.

    Of several it is the first one that went, else the first one: what is new in a text is new beside any of them.
    """
    was = before.ambiguous.get(name)
    if not was:
        return before.tools[name]
    now = frozenset(catalogue.definitions_of(name))
    full = next((full for full in was if full not in now), was[0])
    return server.tools.get((catalogue.server_scoped, full)) or server.tools.get((not catalogue.server_scoped, full))


def _renames(
    server: ServerBindings,
    before: Baseline,
    catalogue: Catalogue,
    offer: Offer,
    gone_and_come: tuple[Iterable[str], Iterable[str]],
    analysis: Analysis,
) -> dict[str, str]:
    """Return which tools came back under another name: old name to new."""
    gone, come = gone_and_come
    old = {name: print_ for name in gone if (print_ := before.tools[name]) is not None}
    new = {name: full for name in come if (full := catalogue.tools[name]) is not None}
    if not old or not new:
        return {}
    # No more than a part: a list that swaps every tool must not keep its text from being searched.
    part = Work(max(1, analysis.work.left // _RENAMES_PART))
    fulls = [sorted((name, print_.full) for name, print_ in old.items()), sorted(new.items())]
    key = sha256(orjson.dumps(fulls)).digest()
    known = _RENAMES.get(key)
    try:
        if known is None:
            were = {name: server.definition_of(print_.full) for name, print_ in sorted(old.items())}
            are = {name: offer.definitions[full] for name, full in sorted(new.items())}
            known = renames(were, are, part), part.spent
            _RENAMES.put(key, known, sum(map(len, fulls)))
        else:
            part.spend(known[1])
    except WorkExhaustedError:
        analysis.left_out.add(LeftOut.RENAMES)
        known = [], 0
    analysis.work.spend(min(part.spent, analysis.work.left))
    analysis.keep(known[1])
    return dict(known[0])


class _Telling:
    """Makes the findings of one snapshot."""

    def __init__(self, server: ServerBindings, seen: Seen, offer: Offer, analysis: Analysis) -> None:
        self._server = server
        self._analysis = analysis
        self._work = analysis.work
        self._seen = seen
        self._offer = offer
        self._searched: dict[tuple[str | None, str], _Signs] = {}

    def search(self, pairs: Iterable[tuple[str | None, str]]) -> None:
        """Look for what new text brings, in as many definitions as the budget suffices for."""
        ordered = iter(pairs)
        for pair in ordered:
            try:
                self._searched[pair] = self._signs(*pair)
            except WorkExhaustedError:
                self._analysis.left_out.add(LeftOut.TEXT)
                if not self._analysis.is_rationed:
                    # What was not read must not look harmless, whatever stood before it in the list.
                    self._searched |= dict.fromkeys([pair, *ordered], _NOT_SEARCHED)
                return

    @cached_property
    def _names(self) -> ToolNames:
        spent = self._work.spent
        names = ToolNames(self._offer.tools, self._work)
        # The index is built where a text is searched, so it costs nothing where all answers are kept.
        self._analysis.keep(self._work.spent - spent)
        return names

    @cached_property
    def _names_digest(self) -> Digest:
        return jcs_digest(sorted(self._offer.tools))

    def removed(self, name: str, old: Fingerprint | None) -> Iterator[Finding]:
        """A fleet that was shown this very list before learns nothing by it: tools come and go with who asks."""
        if not self._server.observations.was_shown_complete(self._seen.catalogue, self._seen.position):
            yield self.found(Kind.TOOL_REMOVED, name, before=old)

    def found(
        self,
        kind: Kind,
        name: str,
        *,
        before: Fingerprint | None = None,
        after: Fingerprint | None = None,
        renamed_to: str | None = None,
        **more: Unpack[_More],
    ) -> Finding:
        seen = self._seen
        offered_as = renamed_to or name
        known = after is not None and self._is_known(after.full)
        return Finding(
            kind=kind,
            server_id=seen.server_id,
            tool_name=name,
            observer_id=seen.observer_id,
            time_us=seen.time_us,
            origin=seen.origin,
            snapshot_id=seen.snapshot_id,
            before=before.full if before else None,
            after=after.full if after else None,
            changed_fields=changed_fields(before, after) if before and after else (),
            known=known,
            approved=known and after is not None and is_approved(self._server, offered_as, after.full),
            offered_elsewhere=known and after is not None and self._is_offered_elsewhere(offered_as, after.full),
            renamed_to=renamed_to,
            **more,
        )

    def added(self, name: str, full: str) -> Finding:
        signs = self._searched.get((None, full), ())
        return self.found(Kind.TOOL_ADDED, name, after=self._offer.fingerprints[full], signs=signs)

    def ambiguous(self, name: str, fulls: Sequence[str]) -> Finding:
        """It is about the set: where another definition joins it, something else is found."""
        return replace(self.found(Kind.DEFINITION_AMBIGUOUS, name), after=set_digest(fulls))

    def differing(
        self, kind: Kind, name: str, old: Fingerprint, full: str, *, renamed_to: str | None = None
    ) -> Iterator[Finding]:
        new = self._offer.fingerprints[full]
        changes, reasons = self._compared(old.full, full)
        yield self.found(
            kind,
            name,
            before=old,
            after=new,
            renamed_to=renamed_to,
            changes=changes,
            signs=self._searched.get((old.full, full), ()),
        )
        if _risk(new) > _risk(old):
            yield self.found(Kind.RISK_LEVEL_CHANGED, name, before=old, after=new)
        for reason in reasons:
            yield self.found(Kind.CONTRACT_VIOLATION, name, before=old, after=new, reason=reason)

    def _compared(self, old_full: str, full: str) -> tuple[_Changes, tuple[str, ...]]:
        key = f"{old_full} {full}".encode()
        known = _COMPARED.get(key)
        try:
            if known is not None:
                changes, reasons, units = known
                self._work.spend(units)
                self._analysis.keep(units)
                return changes, reasons
            was, now = self._server.definition_of(old_full), self._offer.definitions[full]
            reasons = tuple(contract_drift(contract(was), contract(now)))
            spent_before = self._work.spent
            changes = telling_changes(compare_definitions(was, now, self._work))
            units = self._work.spent - spent_before
            self._analysis.keep(units)
            _COMPARED.put(key, (changes, reasons, units))
            return changes, reasons
        except WorkExhaustedError:
            self._analysis.left_out.add(LeftOut.COMPARISON)
            return telling_changes([not_compared()]), reasons

    def _signs(self, old_full: str | None, full: str) -> _Signs:
        names = self._names
        key = f"{old_full} {full} {self._names_digest}".encode()
        known = _SIGNS.get(key)
        if known is None:
            was = None if old_full is None else self._server.definition_of(old_full)
            spent = self._work.spent
            found = detect_indicators(was, self._offer.definitions[full], tool_names=names, work=self._work)
            signs = tuple((sign.rule, sign.level, sign.path) for sign in found)
            units = self._work.spent - spent
            self._analysis.keep(units)
            _SIGNS.put(key, (signs, units))
            return signs
        signs, units = known
        self._work.spend(units)
        self._analysis.keep(units)
        return signs

    def _is_offered_elsewhere(self, name: str, full: str) -> bool:
        return self._server.fleet.shows_others(name, full, self._seen.observer_id)

    def _is_known(self, full: str) -> bool:
        tools = self._server.tools
        return (True, full) in tools or (False, full) in tools


_Changes = tuple[tuple[str, str, str], ...]
_Signs = tuple[tuple[str, int, str], ...]
# A roll-out shows the same change to every observer of a server, one after the other.
# What a comparison cost is kept with it, so that a hit spends the same.
_COMPARED: ContentCache[tuple[_Changes, tuple[str, ...], int]] = ContentCache(PAIRS_KEPT)
_SIGNS: ContentCache[tuple[_Signs, int]] = ContentCache(PAIRS_KEPT)
_NOT_SEARCHED: _Signs = ((CUT_SHORT.rule, CUT_SHORT.level, CUT_SHORT.path),)
_RENAMES: ContentCache[tuple[list[tuple[str, str]], int]] = ContentCache(PAIRS_KEPT, PAIRS_KEPT)


class _More(TypedDict, total=False):
    reason: str | None
    changes: tuple[tuple[str, str, str], ...]
    signs: _Signs


def set_digest(fulls: Sequence[str]) -> str:
    """Return the digest of the definitions of an ambiguous name."""
    return str(jcs_digest(list(fulls)))


def telling_changes(changes: Iterable[Change]) -> tuple[tuple[str, str, str], ...]:
    """Return what a finding tells of changes: of one code in one top-level field the first."""
    first: dict[tuple[str, str], Change] = {}
    for change in changes:
        top = change.path.removeprefix("$").lstrip(".").partition(".")[0].partition("[")[0]
        first.setdefault((change.code, top), change)
    return tuple((change.code, change.path, change.direction.value) for change in first.values())


def _risk(print_: Fingerprint) -> int:
    level = print_.schemes.get("mcptrust.risk_level")
    return RISK_LEVELS.index(level) if level in RISK_LEVELS else -1
