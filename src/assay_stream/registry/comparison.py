"""Comparison of two definitions within the budget of one record: what changed, and what new text brings.

Every answer is kept with its cost, so that a cache hit spends the same and the cache changes no finding. A
roll-out shows the same change to every observer of a server, one after the other.

A first list has no baseline, so nothing in it is a change. Its text is searched all the same: a definition with
indicators of medium severity or higher is reported as an addition, and the others are part of the inventory. A low
indicator, such as the name of another tool, means little where there is no text that it was added to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar, cast

from assay_stream.bindings.offers import ItemOffer
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.timeline import finding_in
from assay_stream.canonical.digest import jcs_digest
from assay_stream.detect import CUT_SHORT, ToolNames, detect_indicators
from assay_stream.drift import Change, compare_definitions
from assay_stream.drift.definition import not_compared
from assay_stream.drift.severity import Level
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.definition_facts import Catalogue
from assay_stream.model.facts import Seen
from assay_stream.model.fields import ITEM_SUBJECTS, LeftOut
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.registry.analysis import Analysis
from assay_stream.schemes.assay.manifest import action_class
from assay_stream.schemes.fingerprint import ContentCache
from assay_stream.work import WorkExhaustedError

Changes = tuple[tuple[str, str, str], ...]
Signs = tuple[tuple[str, int, str], ...]
_Definition = Mapping[str, Any]
_Answer = TypeVar("_Answer")

NOT_SEARCHED: Signs = ((CUT_SHORT.rule, CUT_SHORT.level, CUT_SHORT.path),)
_ANSWERS: ContentCache[tuple[Any, int]] = ContentCache(
    DEFAULT_LIMITS.analysis_answers_max, DEFAULT_LIMITS.analysis_answers_bytes_max
)
_BYTES_PER_ANSWER = 400
_BYTES_PER_ENTRY = 250
"""Bytes of a change or a sign: a tuple of two or three strings."""


class Comparison:
    """Compares definitions of one list.

    Args:
        names: the names in the list: a text that names another tool is a sign.
    """

    def __init__(self, analysis: Analysis, names: Collection[str], names_digest: Iterable[str] | None = None) -> None:
        self.analysis = analysis
        self._given = names
        self._digested = names if names_digest is None else names_digest

    @cached_property
    def _names(self) -> ToolNames:
        spent = self.analysis.work.spent
        names = ToolNames(self._given, self.analysis.work)
        # The index is built where a text is searched, so it costs nothing where all answers are kept.
        self.analysis.keep(self.analysis.work.spent - spent)
        return names

    @cached_property
    def _names_digest(self) -> str:
        return str(jcs_digest(sorted(self._digested)))

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
        """Return the signs in the text that the older definition did not have.

        Raises:
            WorkExhaustedError: if the budget does not suffice.
        """
        names = self._names
        question = f"signs {before} {after} {self._names_digest}"
        return self.kept(question, lambda: self._search(was(), now, names))

    def carried_over(self, after: str, now: _Definition, signs: Signs) -> Signs:
        """Return the signs, at high or above, that a changed definition would show in a first list beside its new ones.

        Raises:
            WorkExhaustedError: if the budget does not suffice.
        """
        shown = {(rule, path) for rule, _, path in signs}
        whole = self.signs(None, after, lambda: None, now)
        return tuple(row for row in whole if row[1] >= Level.HIGH and (row[0], row[2]) not in shown)

    def _search(self, was: _Definition | None, now: _Definition, names: ToolNames) -> Signs:
        found = detect_indicators(was, now, tool_names=names, work=self.analysis.work)
        return tuple((sign.rule, sign.level, sign.path) for sign in found)

    def kept(self, question: str, ask: Callable[[], _Answer]) -> _Answer:
        """Return a kept answer at its original cost, or compute it.

        Raises:
            WorkExhaustedError: if the budget does not suffice.
        """
        key, work = question.encode(), self.analysis.work
        known = _ANSWERS.get(key)
        if known is None:
            spent = work.spent
            answer = ask()
            known = answer, work.spent - spent
            _ANSWERS.put(key, known, _BYTES_PER_ANSWER + _BYTES_PER_ENTRY * len(cast("tuple[Any, ...]", answer)))
        else:
            work.spend(known[1])
        self.analysis.keep(known[1])
        return cast("_Answer", known[0])


def reported_changes(changes: Iterable[Change]) -> Changes:
    """Return the changes to report: the first of each code in each top-level field."""
    first: dict[tuple[str, str], Change] = {}
    for change in changes:
        top = change.path.removeprefix("$").lstrip(".").partition(".")[0].partition("[")[0]
        first.setdefault((change.code, top), change)
    return tuple((change.code, change.path, change.direction.value) for change in first.values())


NOT_COMPARED = reported_changes([not_compared()])


def first_look(
    server: ServerBindings, catalogue: Catalogue, seen: Seen, lists: Iterable[ItemOffer]
) -> Iterator[Finding]:
    """Yield findings of a server, or an observer, that was never seen before."""
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
    """Return True if a definition in a first list gets a finding of its own."""
    return any(level >= Level.MEDIUM for _, level, _ in indicators)
