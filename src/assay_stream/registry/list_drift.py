"""Drift between two lists of tools, prompts or templates: what was added, removed, renamed and changed.

The comparison is with what the same observer last saw; an observer's first list is compared with what the rest of the
fleet last saw. Of a server's first list only definitions that stand out are additions (``stands_out``).
An incomplete list removes nothing. A name that its observer had not seen is an addition after a complete list; after
incomplete ones only if no observer ever saw it.

A tool that appears or reappears is compared with the last definition known under its name: disappearing for a while
hides no change. A name with several definitions makes no call ambiguous: each new definition is a change of its own.

What a server offers may depend on the rights of the request, so lists are compared within one ``auth_context``. The
first one under other rights is compared with what was seen under any, and removes nothing.

Prompts and templates are compared likewise, whatever the rights. The completeness stated by a snapshot is that of all
its lists.

A tool without a name binds nothing, and is reported as an addition only where its text stands out: once for each
definition, without a name, and never as changed or removed.

A first list has no baseline, so nothing in it is a change. Its text is searched all the same: a definition with
indicators of medium severity or higher is reported as an addition, and the others are part of the inventory. A low
indicator, such as the name of another tool, means little where there is no text that it was added to.

Every answer is kept with its cost, so that a cache hit spends the same and the cache changes no finding. A
roll-out shows the same change to every observer of a server, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import orjson

from assay_stream.bindings.offers import ItemOffer, Offer, unpack
from assay_stream.bindings.server import ServerBindings
from assay_stream.canonical.digest import jcs_digest
from assay_stream.detect import (
    CUT_SHORT,
    Indicator,
    Siblings,
    ToolNames,
    claims_of,
    detect_indicators,
    level_beside,
    rules_shown,
)
from assay_stream.drift import Change, compare_definitions
from assay_stream.drift.definition import differing_fields, not_compared
from assay_stream.drift.lists import renames
from assay_stream.drift.severity import Level
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.facts import Catalogue, Seen
from assay_stream.model.fields import ITEM_SUBJECTS, LeftOut
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.registry.analysis import (
    Analysis,
    Baseline,
    finding_in,
    item_baseline,
    last_shown,
    last_stated,
    repeats,
    stated,
)
from assay_stream.schemes.assay_manifest import action_class
from assay_stream.schemes.fingerprint import ContentCache, Fingerprint, changed_fields
from assay_stream.schemes.handshake_contract import contract, contract_drift
from assay_stream.schemes.mcptrust_hashes import RISK_LEVELS
from assay_stream.work import Work, WorkExhaustedError

_Change = tuple[str, str, str]
_Sign = tuple[str, int, str]
Changes = tuple[_Change, ...]
Signs = tuple[_Sign, ...]
_Definition = Mapping[str, Any]
_Answer = TypeVar("_Answer")
_Row = TypeVar("_Row", _Change, _Sign)

NOT_SEARCHED: Signs = ((CUT_SHORT.rule, CUT_SHORT.level, CUT_SHORT.path),)
_UNCOMPARED = not_compared()
NOT_COMPARED: Changes = ((_UNCOMPARED.code, _UNCOMPARED.path, _UNCOMPARED.direction.value),)
_ANSWERS: ContentCache[tuple[Any, int]] = ContentCache(
    DEFAULT_LIMITS.analysis_answers_max, DEFAULT_LIMITS.analysis_answers_bytes_max
)
_NAMES: ContentCache[tuple[Any, int]] = ContentCache(DEFAULT_LIMITS.name_indexes_max, DEFAULT_LIMITS.indexed_names_max)
_BYTES_PER_ANSWER = 400
_BYTES_PER_ENTRY = 200
"""Bytes of a change or a sign besides its characters: a tuple of two or three strings."""


class Comparison:
    """Compares definitions of one list.

    Args:
        names: the names in the list: a text that names another tool is a sign.
        tools: the definitions in a list of tools, by digest: one that imitates another is a sign.
    """

    def __init__(
        self, analysis: Analysis, names: Collection[str], tools: Mapping[str, _Definition] | None = None
    ) -> None:
        self.analysis = analysis
        self._given = names
        self._tools = tools or {}

    @cached_property
    def _names(self) -> ToolNames:
        """The index of the names: built where a text is searched, and mostly the one of the server's last list."""
        work, size = self.analysis.work, len(self._given)
        return self.kept(self._names_digest, lambda: ToolNames(self._given, work), size_of=lambda _: size)

    @cached_property
    def _names_digest(self) -> str:
        return str(jcs_digest(sorted(self._given)))

    @cached_property
    def _tools_digest(self) -> str:
        return str(jcs_digest(sorted(self._tools)))

    def changes(self, before: str, after: str, was: Callable[[], _Definition], now: _Definition) -> Changes:
        try:
            return self.kept(
                f"changes {before} {after}",
                lambda: reported_changes(compare_definitions(was(), now, self.analysis.work)),
            )
        except WorkExhaustedError:
            self.analysis.left_out.add(LeftOut.COMPARISON)
            return NOT_COMPARED

    def signs(self, before: str | None, after: str, was: Callable[[], _Definition | None], now: _Definition) -> Signs:
        """Return the signs in the text that the older definition did not have."""
        names = self._names
        question = f"signs {before} {after} {self._names_digest}"

        def search() -> Signs:
            return _rows(detect_indicators(was(), now, tool_names=names, work=self.analysis.work))

        signs = self.kept(question, search)
        if not self._tools:
            return signs
        claims = self._claims(after, now)
        older = was() if claims else None
        if older is not None:
            claims -= self._claims(str(before), older)
        if not claims:
            return signs
        siblings = self._siblings
        # An answer of its own: other tools of the list may differ where their names are the same.
        question = f"imitated {before} {after} {self._tools_digest}"
        return signs + self.kept(question, lambda: _rows(siblings.imitated_by(now, claims, self.analysis.work)))

    def _claims(self, full: str, definition: _Definition) -> frozenset[str]:
        return frozenset(self.kept(f"claims {full}", lambda: tuple(claims_of(definition, self.analysis.work))))

    @cached_property
    def _siblings(self) -> Siblings:
        """The tools of the list: paid for by the first text that claims something, also where its answer is kept."""
        siblings = Siblings(self._tools.values())

        def read() -> tuple[()]:
            siblings.read(self.analysis.work)
            return ()

        self.kept(f"siblings {self._tools_digest}", read)
        return siblings

    def carried_over(self, after: str, now: _Definition, signs: Signs) -> Signs:
        """Return the signs, at high or above, that a changed definition would show in a first list beside new ones."""
        shown = {(rule, path) for rule, _, path in signs}
        whole = self.signs(None, after, lambda: None, now)
        return tuple(row for row in whole if row[1] >= Level.HIGH and (row[0], row[2]) not in shown)

    def kept(
        self, question: str, ask: Callable[[], _Answer], *, size_of: Callable[[Any], int] | None = None
    ) -> _Answer:
        """Return a kept answer at its original cost, or compute it; indexes of names come with a size of their own."""
        answers, size_of = (_ANSWERS, _size_of) if size_of is None else (_NAMES, size_of)
        key, work = question.encode(), self.analysis.work
        known: tuple[_Answer, int] | None = answers.get(key)
        if known is None:
            spent = work.spent
            answer = ask()
            known = answer, work.spent - spent
            answers.put(key, known, size_of(answer))
        else:
            work.spend(known[1])
        self.analysis.kept_units += known[1]
        return known[0]


def _size_of(answer: Any) -> int:
    return _BYTES_PER_ANSWER + sum(_BYTES_PER_ENTRY + len(str(entry)) for entry in answer)


def _rows(found: Iterable[Indicator]) -> Signs:
    # The gravest come first: what is left out is no graver than the first of it.
    return _fitting(
        ((sign.rule, sign.level, sign.path) for sign in found), lambda row: (CUT_SHORT.rule, row[1], CUT_SHORT.path)
    )


def _fitting(rows: Iterable[_Row], standing_for: Callable[[_Row], _Row]) -> tuple[_Row, ...]:
    """Return the rows of a finding, as many as fit into it, and one that stands for the others.

    Args:
        standing_for: makes it, of the first that does not fit.
    """
    fitting: list[_Row] = []
    size_bytes = 0
    for row in rows:
        size_bytes += len(orjson.dumps(row))
        if size_bytes > DEFAULT_LIMITS.finding_rows_bytes_max:
            others = standing_for(row)
            fitting += [] if others[0] in [each[0] for each in fitting] else [others]
            break
        fitting.append(row)
    return tuple(fitting)


def reported_changes(changes: Iterable[Change]) -> Changes:
    """Return the changes to report: the first of each code in each top-level field."""
    first: dict[tuple[str, str], Change] = {}
    for change in changes:
        top = change.path.removeprefix("$").lstrip(".").partition(".")[0].partition("[")[0]
        first.setdefault((change.code, top), change)
    return _fitting(
        ((each.code, each.path, each.direction.value) for each in first.values()), lambda _: NOT_COMPARED[0]
    )


def first_look(
    server: ServerBindings, catalogue: Catalogue, seen: Seen, lists: Iterable[ItemOffer]
) -> Iterator[Finding]:
    if seen.observer_id in server.observers:
        return
    if server.observers:
        yield finding_in(seen, Kind.OBSERVER_ADDED)
        return
    privileged = sorted(name for name in catalogue.tools if action_class(name) is not None)
    listed = {items.subject: len(items.items) for items in lists}
    yield finding_in(
        seen,
        Kind.FIRST_LOOK,
        after=catalogue.digest,
        inventory=(
            ("tools", len(catalogue.tools)),
            *((subject.plural, listed[subject]) for subject in ITEM_SUBJECTS if subject in listed),
            ("privileged", len(privileged)),
        ),
        privileged=tuple(privileged[: DEFAULT_LIMITS.privileged_named_max]),
    )


def stands_out(indicators: Signs) -> bool:
    return any(level >= Level.MEDIUM for _, level, _ in indicators)


def compare_items(
    server: ServerBindings, offer: ItemOffer, seen: Seen, analysis: Analysis, names: Iterable[Any]
) -> Iterator[Finding]:
    """Yield what a snapshot shows of one list that its baseline did not, sorted by name.

    Args:
        names: what the texts of the list may mention as the server's own; what is no text is no name.
    """
    latest = next(stated(server, seen.observer_id, offer.subject, seen.position), None)
    if latest is not None and repeats(latest, offer):
        return
    was = item_baseline(server, offer.subject, seen, analysis)
    now = offer.as_fact(seen.server_id).by_name()
    is_complete = seen.completeness == "complete" and not offer.is_cut
    drift = _ItemDrift(server, seen, offer, analysis, names)
    new = now.keys() - was.names.keys()
    known = {name for name in new if (offer.subject, name) in server.fleet.item_names}
    come = {name for name in new if was.complete or (was.stated and name not in known)}
    first = set() if was.stated else new
    shown = last_stated(server, offer.subject, seen, known - come - first, analysis)
    for name in sorted(now.keys() | was.names.keys()):
        if name not in now:
            if was.complete and is_complete:
                yield drift.found("removed", name, before=was.names[name][0])
        elif name in come or name in first:
            for full in now[name]:
                signs = drift.signs(None, full)
                if name in come or stands_out(signs):
                    yield drift.found("added", name, after=full, indicators=signs)
        else:
            older = was.names.get(name) or shown.get(name, ())
            for full in now[name]:
                if older and full not in older:
                    yield drift.changed(name, older[0], full)


class _ItemDrift:
    def __init__(
        self, server: ServerBindings, seen: Seen, offer: ItemOffer, analysis: Analysis, names: Iterable[Any]
    ) -> None:
        self._server, self._seen, self._offer, self._analysis = server, seen, offer, analysis
        self._comparison = Comparison(analysis, {name for name in names if isinstance(name, str)})

    def found(self, what: str, name: str, *, after: str | None = None, **more: Any) -> Finding:
        subject = self._offer.subject
        known = after is not None and (subject, after) in self._server.items
        return finding_in(self._seen, Kind(f"{subject}_{what}"), item_name=name, after=after, known=known, **more)

    def changed(self, name: str, before: str, after: str) -> Finding:
        packed = self._server.items[self._offer.subject, before]
        was = None if packed is None else unpack(packed)
        signs = self.signs(was, after, before)
        now = self._offer.definitions[after]
        compared: dict[str, Any] = {"changes": NOT_COMPARED}
        if was is not None and after not in self._offer.oversized:
            compared["changed_fields"] = tuple(differing_fields(was, now))
            compared["changes"] = self._comparison.changes(before, after, lambda: was, now)
        carried_over = self._paid(lambda: self._comparison.carried_over(after, now, signs))
        return self.found(
            "changed", name, before=before, after=after, indicators=signs, carried_over=carried_over, **compared
        )

    def signs(self, was: Mapping[str, Any] | None, full: str, before: str | None = None) -> Signs:
        return self._paid(lambda: self._comparison.signs(before, full, lambda: was, self._offer.definitions[full]))

    def _paid(self, search: Callable[[], Signs]) -> Signs:
        try:
            return search()
        except WorkExhaustedError:
            self._analysis.left_out.add(LeftOut.TEXT)
            return () if self._analysis.is_rationed else NOT_SEARCHED


class _Step(NamedTuple):
    """One comparison: its kind, the tool's name (``""`` for none), the older definition and the newer one's digest."""

    what: Kind
    name: str
    old: Fingerprint | None = None
    full: str | None = None
    renamed_to: str | None = None


class ToolDrift:
    """What a snapshot shows of its tools that its baseline did not.

    Args:
        baseline: ``None`` for a first list.
        analysis: the budget of the record. Once it is exhausted a changed tool is still reported, with
            ``comparison_cut_short`` as its change, and no further tool is reported as renamed.
    """

    def __init__(
        self,
        server: ServerBindings,
        baseline: Baseline | None,
        catalogue: Catalogue,
        seen: Seen,
        offer: Offer,
        analysis: Analysis,
    ) -> None:
        self._server, self._seen, self._offer = server, seen, offer
        self._catalogue, self._analysis = catalogue, analysis
        self._is_first, self._before = baseline is None, baseline or Baseline()
        self._comparison = Comparison(analysis, offer.tools, offer.definitions)
        self._searched: dict[tuple[str | None, str], Signs] = {}
        self._carried_over: dict[tuple[str | None, str], Signs] = {}

    def findings(self) -> Iterator[Finding]:
        """Yield the findings, sorted by tool name."""
        steps = list(self._steps())
        # What new text brings is graver than what a change means: it is looked for first, in all of the list.
        self._search([(step.old.full if step.old else None, step.full) for step in steps if step.full is not None])
        self._hold_against_earlier()
        for step in steps:
            for finding in self._shown_by(step):
                is_told = finding.kind is not Kind.TOOL_ADDED or (step.name and not self._is_first)
                if is_told or stands_out(finding.indicators):
                    yield finding

    def _steps(self) -> Iterator[_Step]:
        server, before, catalogue = self._server, self._before, self._catalogue
        new, gone = catalogue.tools.keys() - before.tools.keys(), set[str]()
        come = {name for name in new if self._is_first or before.complete or not server.knows(name)}
        if before.complete and before.same_rights and self._seen.completeness == "complete":
            gone = before.tools.keys() - catalogue.tools.keys()
        renamed = self._renames(gone, come)
        come -= set(renamed.values())
        shown = last_shown(server, self._seen, new, self._analysis)
        for name in filter({*catalogue.tools, *gone}.__contains__, before.differing(catalogue)):
            if name in renamed:
                full = catalogue.tools[renamed[name]]
                yield _Step(Kind.TOOL_RENAMED, name, before.tools[name], full, renamed[name])
                continue
            if name in gone:
                yield _Step(Kind.TOOL_REMOVED, name, before.tools[name])
                continue
            if catalogue.tools[name] is None:
                yield _Step(Kind.DEFINITION_AMBIGUOUS, name)
            was = before.definitions_of(name)
            older = shown.get(name) if name in new else self._compared_with(name)
            for full in catalogue.definitions_of(name):
                if name in come:
                    yield _Step(Kind.TOOL_ADDED, name, None, full)
                if older is not None and full not in (older.full, *was):
                    yield _Step(Kind.TOOL_CHANGED, name, older, full)
        for full in catalogue.nameless:
            is_come = self._is_first or before.complete or full not in server.fleet.nameless
            if is_come and full not in before.nameless:
                yield _Step(Kind.TOOL_ADDED, "", None, full)

    def _compared_with(self, name: str) -> Fingerprint | None:
        """Return the older definition that new ones under a name are compared with.

        Of several it is the first one that is gone, else the first one: text that is new is new compared with any.
        """
        was = self._before.ambiguous.get(name)
        if not was:
            return self._before.tools[name]
        now = frozenset(self._catalogue.definitions_of(name))
        return self._server.fingerprint(next((full for full in was if full not in now), was[0]))

    def _renames(self, gone: Iterable[str], come: Iterable[str]) -> dict[str, str]:
        old = {name: print_.full for name in gone if (print_ := self._before.tools[name]) is not None}
        new = {name: full for name in come if (full := self._catalogue.tools[name]) is not None}
        if not old or not new:
            return {}
        question = str(jcs_digest([sorted(old.items()), sorted(new.items())]))

        def pairs(work: Work) -> tuple[tuple[str, str], ...]:
            were = {name: self._server.definition_of(full) for name, full in sorted(old.items())}
            are = {name: self._offer.definitions[full] for name, full in sorted(new.items())}
            return tuple(renames(were, are, work))

        found = self._in_part(f"renames {question}", pairs)
        if found is None:
            self._analysis.left_out.add(LeftOut.RENAMES)
        return dict(found or ())

    def _in_part(self, question: str, ask: Callable[[Work], tuple[_Answer, ...]]) -> tuple[_Answer, ...] | None:
        """Return an answer if a part of the budget suffices: the rest is for what else the list needs."""
        with self._analysis.work.quarter() as work:
            part = Analysis(work)
            try:
                return Comparison(part, ()).kept(question, lambda: ask(work))
            except WorkExhaustedError:
                return None
            finally:
                self._analysis.kept_units += part.kept_units

    def _search(self, pairs: list[tuple[str | None, str]]) -> None:
        """Search for signs in new text, then for carried-over ones, as far as the budget suffices."""
        changed = [pair for pair in pairs if pair[0] is not None]

        def signs(old_full: str | None, full: str) -> Signs:
            older = None if old_full is None else partial(self._server.definition_of, old_full)
            return self._comparison.signs(old_full, full, older or (lambda: None), self._offer.definitions[full])

        def carried_over(old_full: str | None, full: str) -> Signs:
            shown = self._searched.get((old_full, full), ())
            return self._comparison.carried_over(full, self._offer.definitions[full], shown)

        for asked, searched, ask in ((pairs, self._searched, signs), (changed, self._carried_over, carried_over)):
            ordered = iter(asked)
            for pair in ordered:
                try:
                    searched[pair] = ask(*pair)
                except WorkExhaustedError:
                    self._analysis.left_out.add(LeftOut.TEXT)
                    if not self._analysis.is_rationed:
                        # What was not read must not look harmless, whatever stood before it in the list.
                        searched |= dict.fromkeys([pair, *ordered], NOT_SEARCHED)
                    break

    def _hold_against_earlier(self) -> None:
        """Lower signs at medium by rules that the earlier list shows as well; they stay if the budget is too small."""
        if all(level != Level.MEDIUM for signs in self._searched.values() for _, level, _ in signs):
            return
        before = self._before
        fulls = sorted({full for name in before.tools for full in before.definitions_of(name)})
        if not fulls:
            return
        shown = self._in_part(
            f"shown {jcs_digest(fulls)}",
            lambda work: tuple(
                sorted(rules_shown(map(self._server.definition_of, fulls), ToolNames(before.tools, work), work))
            ),
        )
        rules = frozenset(shown or ())
        for pair, signs in self._searched.items():
            self._searched[pair] = tuple((rule, level_beside(rules, rule, level), path) for rule, level, path in signs)

    def _shown_by(self, step: _Step) -> Iterator[Finding]:
        name, old, full, fleet = step.name, step.old, step.full, self._server.fleet
        if step.what is Kind.DEFINITION_AMBIGUOUS:
            # It is about the set: where another definition joins it, something else is found.
            yield replace(self._found(step), after=set_digest(self._offer.ambiguous[name]))
        elif full is None:
            # A fleet that was shown this very list before learns nothing: tools come and go with who asks.
            if not self._server.observations.was_shown_complete(self._seen.catalogue, self._seen.position):
                yield self._found(step)
        elif old is not None:
            yield from self._changed(step, old, full)
        elif name:
            yield self._found(step, indicators=self._searched.get((None, full), ()))
        else:
            signs, known = self._searched.get((None, full), ()), full in fleet.nameless
            elsewhere = known and fleet.shows_others("", full, self._seen.observer_id)
            yield finding_in(
                self._seen, step.what, after=full, indicators=signs, known=known, offered_elsewhere=elsewhere
            )

    def _changed(self, step: _Step, old: Fingerprint, full: str) -> Iterator[Finding]:
        now, was, pair = self._offer.definitions[full], partial(self._server.definition_of, old.full), (old.full, full)
        yield self._found(
            step,
            changes=self._comparison.changes(*pair, was, now),
            indicators=self._searched.get(pair, ()),
            carried_over=self._carried_over.get(pair, ()),
        )
        if _risk(self._offer.fingerprints[full]) > _risk(old):
            yield self._found(step._replace(what=Kind.RISK_LEVEL_CHANGED))
        question = f"contract {old.full} {full}"
        for reason in self._comparison.kept(question, lambda: tuple(contract_drift(contract(was()), contract(now)))):
            yield self._found(step._replace(what=Kind.CONTRACT_VIOLATION), reason=reason)

    def _found(self, step: _Step, **more: Any) -> Finding:
        server, old = self._server, step.old
        after = None if step.full is None else self._offer.fingerprints[step.full]
        offered_as = step.renamed_to or step.name
        known = after is not None and server.fingerprint(after.full) is not None
        return finding_in(
            self._seen,
            step.what,
            tool_name=step.name,
            before=old.full if old else None,
            after=step.full,
            changed_fields=changed_fields(old, after) if old and after else (),
            known=known,
            approved=after is not None and server.is_approved(offered_as, after.full, after),
            offered_elsewhere=known and server.fleet.shows_others(offered_as, str(step.full), self._seen.observer_id),
            renamed_to=step.renamed_to,
            **more,
        )


def set_digest(fulls: Sequence[str]) -> str:
    return str(jcs_digest(list(fulls)))


def _risk(print_: Fingerprint) -> int:
    level = print_.schemes.get("mcptrust.risk_level")
    return RISK_LEVELS.index(level) if level in RISK_LEVELS else -1
