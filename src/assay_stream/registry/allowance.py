"""Allowance: what the analysis of one server's lists may cost over time, so that its neighbours need not wait.

1. A server has an allowance of work, refilled by the log's timestamps: a replay decides as the live stage did.
2. The cost of a list is charged to its server's allowance, unless the same change was analysed before: a fleet whose
   observers all see one upgrade pays for it once. Only kept answers are free: recomputing an answer costs again. So
   does a change back to a list that its observer saw before: a server that alternates between two lists has as many
   findings each time.
3. A list that finds the allowance used up is applied and bound, and analysed with what little is left.
4. The allowance is a fact, published with the other facts of the list, and only where something was charged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256

import orjson

from assay_stream.bindings.offers import ItemOffer
from assay_stream.bindings.server import ServerBindings
from assay_stream.limits import Limits
from assay_stream.model.facts import Allowance, Catalogue, Seen
from assay_stream.model.fields import ITEM_SUBJECTS, LeftOut
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.registry.baselines import Analysis, Baseline, CutReason, latest_stating, repeats


def refilled(known: Allowance | None, server_id: str, time_ms: int, limits: Limits) -> Allowance:
    if known is None:
        return Allowance(server_id=server_id, time_ms=max(time_ms, 0), units=limits.allowance_burst_units)
    if time_ms < known.time_ms - limits.late_limit_ms:
        return replace(known, time_ms=max(time_ms, 0))
    passed_ms = max(0, time_ms - known.time_ms)
    units = known.units + passed_ms * limits.allowance_units_per_s // 1_000
    return replace(known, time_ms=known.time_ms + passed_ms, units=min(units, limits.allowance_burst_units))


def charged(allowance: Allowance, units: int, change: tuple[str, int] | None, limits: Limits) -> Allowance:
    """Charge the cost of a list, down to a debt of one second's refill.

    Without the debt, a flood would get each refill in full instead of what is left after the cost of its facts.
    """
    analysed = list(allowance.analysed)
    if change is not None:
        analysed.append(change)
    pairs = sum(size for _, size in analysed)
    while len(analysed) > limits.analysed_changes_max or pairs > limits.analysed_pairs_max:
        pairs -= analysed.pop(0)[1]
    return replace(
        allowance, units=max(-limits.allowance_units_per_s, allowance.units - units), analysed=tuple(analysed)
    )


_CHANGE_DIGITS = 32
UNITS_PER_REPORTED = 10_000
"""Units charged per finding on top of its analysis: writing it, reading it and counting it on an alert takes up to a
millisecond of a worker. The record's budget does not pay for this: findings are not dropped."""

_Change = tuple[str, int]

_UNITS_PER_COUNTED = 1_000
"""Units per finding that is only counted: its definition was fingerprinted and published all the same."""


class Ration:
    """What one snapshot may cost, and what its server has left afterwards.

    Args:
        time_ms: the log's timestamp of the record, milliseconds since the epoch.
        change: what the snapshot changes, as returned by ``change_of``.
    """

    def __init__(
        self, server: ServerBindings, seen: Seen, time_ms: int, change: _Change | None, limits: Limits
    ) -> None:
        self._seen = seen
        self._limits = limits
        self._change = change
        self._allowance = refilled(server.allowance, seen.server_id, time_ms, limits)
        self._was_analysed = change is not None and self._allowance.knows(change[0])
        self._is_free = self._was_analysed and not _is_back(server, seen)
        units_max = limits.work_units_max
        if not self._is_free:
            units_max = min(units_max, max(self._allowance.units, limits.ration_floor_units))
        self._cut = CutReason.BUDGET if units_max == limits.work_units_max else CutReason.RATIONED
        self.analysis = Analysis(units_max, is_rationed=self._cut is CutReason.RATIONED)
        self._free_units = 0
        self._reported = 0
        self._counted: Counter[Kind] = Counter()

    def compared(self) -> None:
        """End the comparison. If the change was analysed before, kept answers are not charged."""
        if self._is_free:
            self._free_units = self.analysis.kept_units
            self._reported = 0

    def reported(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings to report one by one: all of them, unless a ration cut the comparison short.

        Then only findings with signs and the first changes are reported; the others are counted.
        """
        findings = list(findings)
        is_rationed = self.is_cut_short
        changes_left = self._limits.rationed_changes_max
        for finding in findings:
            is_change = finding.before is not None and finding.after is not None
            if is_rationed and not (finding.indicators or finding.carried_over):
                if not is_change or changes_left == 0:
                    self._counted[finding.kind] += 1
                    continue
                changes_left -= 1
            self._reported += 1
            yield finding
        if self._counted:
            self.analysis.left_out.add(LeftOut.FINDINGS)

    @property
    def is_cut_short(self) -> bool:
        return self._cut is CutReason.RATIONED and bool(self.analysis.left_out)

    def charge(self) -> Allowance | None:
        """Return the remaining allowance, ``None`` where nothing was charged."""
        units = self.analysis.work.spent - self._free_units
        units += self._reported * UNITS_PER_REPORTED + self._counted.total() * _UNITS_PER_COUNTED
        if not units:
            return None
        is_new = not self._was_analysed and not self.analysis.left_out
        return charged(self._allowance, units, self._change if is_new else None, self._limits)

    def findings(self) -> Iterator[Finding]:
        return self.analysis.finding(self._seen, self._cut, self._counted)


def _is_back(server: ServerBindings, seen: Seen) -> bool:
    own = server.observers.get(seen.observer_id)
    return own is not None and _stated(seen) in map(_stated, own.newest_first())


def _stated(seen: Seen) -> tuple[str | None, ...]:
    return seen.catalogue, *(seen.listed(subject) for subject in ITEM_SUBJECTS)


def change_of(
    server: ServerBindings, baseline: Baseline | None, catalogue: Catalogue, seen: Seen, lists: Iterable[ItemOffer]
) -> _Change | None:
    """Return the identity of the change that a snapshot shows, and the number of definitions it concerns.

    ``None`` where it shows none: then nothing is compared. Equal changes are analysed alike for every observer.
    """
    tools = [] if baseline is None else list(_differing(baseline, catalogue))
    items: list[tuple[str | int, ...]] = []
    size = len(tools)
    for offer in lists:
        latest = latest_stating(server, offer.subject, seen)
        if latest is None or repeats(latest, offer):
            continue
        # What an incomplete list is compared with depends on all before it: no such change equals another.
        was = str(latest.listed(offer.subject)) if latest.completeness == "complete" else seen.origin.offset
        items.append((offer.subject.value, was, offer.digest))
        size += len(offer.items)
    if not size:
        return None
    complete = baseline is not None and baseline.complete
    content = orjson.dumps([catalogue.digest, seen.completeness, complete, tools, items])
    return sha256(content).hexdigest()[:_CHANGE_DIGITS], size


def _differing(baseline: Baseline, catalogue: Catalogue) -> Iterator[tuple[str, str | None]]:
    for name in baseline.differing(catalogue):
        is_listed = name in baseline.tools and name in catalogue.tools
        if not is_listed or baseline.definitions_of(name) != catalogue.definitions_of(name):
            known = baseline.tools.get(name)
            yield name, None if known is None else known.full
