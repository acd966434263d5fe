"""Drift between two lists of tools: what was added, removed, renamed and changed.

The comparison is with what the same observer last saw; an observer's first list is compared with what the rest of the
fleet last saw. Of a server's first list only definitions that stand out are additions (``stands_out``).
An incomplete list removes nothing. A name that its observer had not seen is an addition after a complete list; after
incomplete ones only if no observer ever saw it.

A tool that appears or reappears is compared with the last definition known under its name: disappearing for a while
hides no change.

What a server offers may depend on the rights of the request, so lists are compared within one ``auth_context``. The
first one under other rights is compared with what was seen under any, and removes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from assay_stream.bindings.offers import Offer
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.timeline import finding_in
from assay_stream.canonical.digest import jcs_digest
from assay_stream.drift.lists import renames
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.definition_facts import Catalogue
from assay_stream.model.facts import Seen
from assay_stream.model.fields import LeftOut
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.registry.analysis import Analysis
from assay_stream.registry.baselines import Baseline, last_shown
from assay_stream.registry.comparison import NOT_SEARCHED, Comparison, Signs, stands_out
from assay_stream.schemes.fingerprint import Fingerprint, changed_fields
from assay_stream.schemes.handshake.contract import contract, contract_drift
from assay_stream.schemes.mcptrust.hashes import RISK_LEVELS
from assay_stream.work import Work, WorkExhaustedError

_RENAMES_PART = 4
"""Share of the remaining budget that the search for renamed tools may cost: one part in this many."""


def compare(
    server: ServerBindings,
    baseline: Baseline | None,
    catalogue: Catalogue,
    seen: Seen,
    offer: Offer,
    analysis: Analysis | None = None,
) -> Iterator[Finding]:
    """Yield what a snapshot shows that its baseline did not, sorted by tool name.

    Args:
        analysis: the budget of the record; ``None`` for the default. Once it is exhausted a changed tool is still
            reported, with ``comparison_cut_short`` as its change, and no further tool is reported as renamed.
    """
    drift = _ToolDrift(server, seen, offer, analysis or Analysis(DEFAULT_LIMITS.work_units_max))
    before = baseline or Baseline()
    gone: set[str] = set()
    if baseline is None:
        new = come = set(catalogue.tools)
    else:
        new = catalogue.tools.keys() - before.tools.keys()
        come = {name for name in new if before.complete or not server.knows(name)}
    if before.complete and before.same_rights and seen.completeness == "complete":
        gone = before.tools.keys() - catalogue.tools.keys()
    renamed = drift.renames(before, catalogue, gone, come)
    shown = last_shown(server, seen, new, drift.analysis)
    steps = list(_steps(server, before, catalogue, (new, come, gone), renamed, shown))
    # What new text brings is graver than what a change means: it is looked for first, in all of the list.
    drift.search((None if step.old is None else step.old.full, step.full) for step in steps if step.full is not None)
    for step in steps:
        for finding in drift.findings(step):
            if baseline is not None or finding.kind is not Kind.TOOL_ADDED or stands_out(finding.indicators):
                yield finding


class _Step(NamedTuple):
    """One comparison: its kind, the tool's name, the older definition and the newer one's digest."""

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
    new, come, gone = new_come_gone
    successors = set(renamed.values())
    for name in filter({*catalogue.tools, *gone}.__contains__, before.differing(catalogue)):
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

    Of several it is the first one that is gone, else the first one: text that is new is new compared with any of them.
    """
    was = before.ambiguous.get(name)
    if not was:
        return before.tools[name]
    now = frozenset(catalogue.definitions_of(name))
    full = next((full for full in was if full not in now), was[0])
    return server.tools.get((catalogue.server_scoped, full)) or server.tools.get((not catalogue.server_scoped, full))


class _ToolDrift:
    def __init__(self, server: ServerBindings, seen: Seen, offer: Offer, analysis: Analysis) -> None:
        self.analysis = analysis
        self._server, self._seen, self._offer = server, seen, offer
        self._comparison = Comparison(analysis, offer.tools)
        self._searched: dict[tuple[str | None, str], Signs] = {}
        self._carried_over: dict[tuple[str | None, str], Signs] = {}
        self._unpacked: tuple[str, dict[str, Any]] | None = None

    def renames(
        self, before: Baseline, catalogue: Catalogue, gone: Iterable[str], come: Iterable[str]
    ) -> dict[str, str]:
        """Return the tools that reappeared under another name: old name to new."""
        old = {name: print_.full for name in gone if (print_ := before.tools[name]) is not None}
        new = {name: full for name in come if (full := catalogue.tools[name]) is not None}
        if not old or not new:
            return {}
        # Only a part: a list that swaps every tool must not keep its text from being searched.
        work = self.analysis.work
        part = Analysis(max(1, work.left // _RENAMES_PART))
        question = str(jcs_digest([sorted(old.items()), sorted(new.items())]))
        try:
            found = Comparison(part, ()).kept(f"renames {question}", lambda: self._renames(old, new, part.work))
        except WorkExhaustedError:
            self.analysis.left_out.add(LeftOut.RENAMES)
            found = ()
        work.spend(min(part.work.spent, work.left))
        self.analysis.keep(part.kept_units)
        return dict(found)

    def _renames(self, old: Mapping[str, str], new: Mapping[str, str], work: Work) -> tuple[tuple[str, str], ...]:
        were = {name: self._server.definition_of(full) for name, full in sorted(old.items())}
        are = {name: self._offer.definitions[full] for name, full in sorted(new.items())}
        return tuple(renames(were, are, work))

    def search(self, pairs: Iterable[tuple[str | None, str]]) -> None:
        """Search for signs in new text, then for carried-over ones, as far as the budget suffices."""
        pairs = list(pairs)
        changed = [pair for pair in pairs if pair[0] is not None]
        for asked, searched, ask in (
            (pairs, self._searched, self._signs),
            (changed, self._carried_over, self._carried),
        ):
            ordered = iter(asked)
            for pair in ordered:
                try:
                    searched[pair] = ask(*pair)
                except WorkExhaustedError:
                    self.analysis.left_out.add(LeftOut.TEXT)
                    if not self.analysis.is_rationed:
                        # What was not read must not look harmless, whatever stood before it in the list.
                        searched |= dict.fromkeys([pair, *ordered], NOT_SEARCHED)
                    break

    def findings(self, step: _Step) -> Iterator[Finding]:
        name, old, full = step.name, step.old, step.full
        if step.what is Kind.DEFINITION_AMBIGUOUS:
            # It is about the set: where another definition joins it, something else is found.
            fulls = self._offer.ambiguous[name]
            yield replace(self._found(step.what, name), after=set_digest(fulls))
        elif step.what is Kind.TOOL_REMOVED:
            # A fleet that was shown this very list before learns nothing: tools come and go with who asks.
            if not self._server.observations.was_shown_complete(self._seen.catalogue, self._seen.position):
                yield self._found(step.what, name, before=old)
        elif full is not None and old is None:
            signs = self._searched.get((None, full), ())
            yield self._found(step.what, name, after=self._offer.fingerprints[full], indicators=signs)
        elif full is not None and old is not None:
            yield from self._differing(step.what, name, old, full, renamed_to=step.renamed_to)

    def _differing(
        self, kind: Kind, name: str, old: Fingerprint, full: str, *, renamed_to: str | None
    ) -> Iterator[Finding]:
        new, now = self._offer.fingerprints[full], self._offer.definitions[full]
        was = partial(self._older, old.full)
        yield self._found(
            kind,
            name,
            before=old,
            after=new,
            renamed_to=renamed_to,
            changes=self._comparison.changes(old.full, full, was, now),
            indicators=self._searched.get((old.full, full), ()),
            carried_over=self._carried_over.get((old.full, full), ()),
        )
        if _risk(new) > _risk(old):
            yield self._found(Kind.RISK_LEVEL_CHANGED, name, before=old, after=new)
        question = f"contract {old.full} {full}"
        for reason in self._comparison.kept(question, lambda: tuple(contract_drift(contract(was()), contract(now)))):
            yield self._found(Kind.CONTRACT_VIOLATION, name, before=old, after=new, reason=reason)

    def _signs(self, old_full: str | None, full: str) -> Signs:
        return self._comparison.signs(
            old_full, full, lambda: None if old_full is None else self._older(old_full), self._offer.definitions[full]
        )

    def _carried(self, old_full: str | None, full: str) -> Signs:
        signs = self._searched.get((old_full, full), ())
        return self._comparison.carried_over(full, self._offer.definitions[full], signs)

    def _older(self, full: str) -> dict[str, Any]:
        """Return an older definition. Only the last is cached: together they may be far larger than the list."""
        if self._unpacked is None or self._unpacked[0] != full:
            self._unpacked = full, self._server.definition_of(full)
        return self._unpacked[1]

    def _found(
        self,
        kind: Kind,
        name: str,
        *,
        before: Fingerprint | None = None,
        after: Fingerprint | None = None,
        renamed_to: str | None = None,
        **more: Any,
    ) -> Finding:
        seen, server = self._seen, self._server
        offered_as = renamed_to or name
        known = after is not None and server.has_definition(after.full)
        return finding_in(
            seen,
            kind,
            tool_name=name,
            before=before.full if before else None,
            after=after.full if after else None,
            changed_fields=changed_fields(before, after) if before and after else (),
            known=known,
            approved=after is not None and server.is_approved(offered_as, after.full, after),
            offered_elsewhere=known
            and after is not None
            and server.fleet.shows_others(offered_as, after.full, seen.observer_id),
            renamed_to=renamed_to,
            **more,
        )


def set_digest(fulls: Sequence[str]) -> str:
    """Return the digest of the sorted definitions of an ambiguous name."""
    return str(jcs_digest(list(fulls)))


def _risk(print_: Fingerprint) -> int:
    level = print_.schemes.get("mcptrust.risk_level")
    return RISK_LEVELS.index(level) if level in RISK_LEVELS else -1
