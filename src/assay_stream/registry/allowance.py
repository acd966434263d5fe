"""Allowance: what the analysis of one server's lists may cost over time, so that its neighbours need not wait.

1. A server has an allowance of work, refilled by the log's timestamps: a replay decides as the live stage did.
2. What a list cost is taken from the allowance of its server, unless the same change was analysed before: a fleet
   that is shown one upgrade by every observer pays for it once.
   Only what is kept is free: what would be worked out again is paid for again. So is a change back to a list that its
   observer saw before: a server that goes back and forth between two lists has as many findings each time.
3. A list that finds the allowance used up is applied and bound, and analysed for what little is left.
4. The allowance is a fact, published with the other facts of the list and only where something was taken from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256

import orjson

from assay_stream.limits.core import Limits
from assay_stream.model.definition_facts import Catalogue
from assay_stream.model.facts import Allowance, Seen
from assay_stream.model.fields import ITEM_SUBJECTS, LeftOut
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.registry.analysis import Analysis, CutReason
from assay_stream.registry.baselines import Baseline, latest_stating, repeats
from assay_stream.registry.offers import ItemOffer
from assay_stream.registry.server import ServerBindings


def refilled(known: Allowance | None, server_id: str, time_ms: int, limits: Limits) -> Allowance:
    if known is None:
        return Allowance(server_id=server_id, time_ms=max(time_ms, 0), units=limits.allowance_burst_units)
    if time_ms < known.time_ms - limits.late_limit_ms:
        return replace(known, time_ms=max(time_ms, 0))
    passed_ms = max(0, time_ms - known.time_ms)
    units = known.units + passed_ms * limits.allowance_units_per_s // 1_000
    return replace(known, time_ms=known.time_ms + passed_ms, units=min(units, limits.allowance_burst_units))


def charged(allowance: Allowance, units: int, change: tuple[str, int] | None, limits: Limits) -> Allowance:
    """Return an allowance from which the cost of a list was taken, down to a debt of what one second refills.

    Without the debt a flood would get each refill whole, and not what is left after the cost of its facts.
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
"""Units that a finding takes from the allowance beside its analysis: it is written, read, and counted on an alert,
which takes up to a millisecond of a worker. The budget of the record does not pay for it: what was found is not
left out."""

_Change = tuple[str, int]

_UNITS_PER_COUNTED = 1_000
"""Units for a finding that is counted: its definition was fingerprinted and published all the same."""


class Ration:
    """What one snapshot may cost, and what its server has left afterwards.

    Args:
        time_ms: the log's timestamp of the record, milliseconds since the epoch.
        change: what the snapshot changes, as ``change_of`` gives it.
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
        """End the comparison: if the change was analysed before, what is kept is not charged."""
        if self._is_free:
            self._free_units = self.analysis.kept_units
            self._reported = 0

    def reported(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield what is reported one by one of what a comparison found: all of it, unless a ration cut it short.

        Then what has signs is reported, and the first changes; the others are counted.
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
        """Return the allowance that is left, ``None`` where nothing was taken from it."""
        units = self.analysis.work.spent - self._free_units
        units += self._reported * UNITS_PER_REPORTED + self._counted.total() * _UNITS_PER_COUNTED
        if not units:
            return None
        is_new = not self._was_analysed and not self.analysis.left_out
        return charged(self._allowance, units, self._change if is_new else None, self._limits)

    def findings(self) -> Iterator[Finding]:
        """Yield the finding that says what was left out, if anything was."""
        seen = self._seen
        return self.analysis.finding(
            seen.server_id, seen.origin, seen.time_us, catalogue=seen.catalogue, cut=self._cut, counted=self._counted
        )


def _is_back(server: ServerBindings, seen: Seen) -> bool:
    own = server.observers.get(seen.observer_id)
    return own is not None and _stated(seen) in map(_stated, own.newest_first())


def _stated(seen: Seen) -> tuple[str | None, ...]:
    return seen.catalogue, *(seen.listed(subject) for subject in ITEM_SUBJECTS)


def change_of(
    server: ServerBindings, baseline: Baseline | None, catalogue: Catalogue, seen: Seen, lists: Iterable[ItemOffer]
) -> _Change | None:
    """Return what identifies the change that a snapshot shows, and how many definitions that is about.

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
    """Yield the tools that differ, with what they were before, in the order of names."""
    for name in baseline.differing(catalogue):
        is_listed = name in baseline.tools and name in catalogue.tools
        if not is_listed or baseline.definitions_of(name) != catalogue.definitions_of(name):
            known = baseline.tools.get(name)
            yield name, None if known is None else known.full
