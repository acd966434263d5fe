"""Drift between two lists of prompts, or of resource templates, and of a server's instructions: a list of one.

The comparison is with the same observer's last statement; where there is none, with the last statement of the rest of
the fleet. Of the first list ever stated, only definitions that stand out are additions (``stands_out``). An incomplete
list removes nothing. A name missing from the baseline is an addition after a complete list; after incomplete ones only
if no observer ever stated it, else it is compared with the last statement under its name. The completeness stated by a
snapshot is that of all its lists.

A name with several definitions makes no call ambiguous: each new definition is a change of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from assay_stream.bindings.offers import ItemOffer, unpack
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.timeline import finding_in
from assay_stream.drift.definition import differing_fields
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.facts import Seen
from assay_stream.model.fields import LeftOut
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.registry.analysis import Analysis
from assay_stream.registry.baselines import item_baseline, last_stated, repeats, stated
from assay_stream.registry.comparison import NOT_COMPARED, NOT_SEARCHED, Comparison, Signs, stands_out
from assay_stream.work import WorkExhaustedError


def compare_items(
    server: ServerBindings,
    offer: ItemOffer,
    seen: Seen,
    analysis: Analysis | None = None,
    named_with: Iterable[str] = (),
) -> Iterator[Finding]:
    """Yield what a snapshot shows of one list that its baseline did not, sorted by name.

    Args:
        named_with: other names that the texts of the list may mention as the server's own.
    """
    latest = next(stated(server, seen.observer_id, offer.subject, seen.position), None)
    if latest is not None and repeats(latest, offer):
        return
    analysis = Analysis(DEFAULT_LIMITS.work_units_max) if analysis is None else analysis
    was = item_baseline(server, offer.subject, seen, analysis)
    now = offer.as_fact(seen.server_id).by_name()
    is_complete = seen.completeness == "complete" and not offer.is_cut
    drift = _ItemDrift(server, seen, offer, analysis, named_with)
    new = now.keys() - was.names.keys()
    known = {name for name in new if server.fleet.is_item_known(offer.subject, name)}
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
        self, server: ServerBindings, seen: Seen, offer: ItemOffer, analysis: Analysis, named_with: Iterable[str]
    ) -> None:
        self._server, self._seen, self._offer, self._analysis = server, seen, offer, analysis
        names = [*(item.get("name") for item in offer.definitions.values()), *named_with]
        self._comparison = Comparison(analysis, {name for name in names if isinstance(name, str)}, map(str, names))

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
