"""The analysis of a list: what it is compared with, and what that may cost, per record and over time.

1. Lists are merged from the newest back to the last complete one. One whose analysis was rationed is no baseline for
   the next analysis, only for what is resolved.
2. A tool that appears or reappears is compared with its last definition: the same observer's first, then any observer's
   under the same rights, then any observer's, and last the one kept from lists that were folded away.
3. Prompts and templates have no rights of their own: the latest statement counts, by the same observer or by any.

A record whose budget is used up is applied all the same: facts, definitions, verdicts and the pins of what it
shows are never left out. What could not be compared must not look harmless, so a finding lists what was left out.

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
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain, takewhile
from typing import Any, TypeVar

import orjson

from assay_stream.bindings.offers import ItemOffer
from assay_stream.bindings.server import ServerBindings
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.control import ControlDecision
from assay_stream.model.facts import Allowance, Announcement, Catalogue, ItemList, Rejection, Seen
from assay_stream.model.fields import ITEM_SUBJECTS, LeftOut, Subject
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Position
from assay_stream.schemes.fingerprint import Fingerprint
from assay_stream.work import Work, WorkExhaustedError

_Item = TypeVar("_Item")


@dataclass(slots=True, eq=False)
class Analysis:
    """The budget of one record, and what it did not suffice for.

    Args:
        is_rationed: whether the budget is the rest of its server's allowance rather than the limit of a record. A
            rationed server gets one finding: its tools do not stand out one by one.
        kept_units: units of kept answers, which the next list with the same change does not have to spend.
    """

    work: Work
    is_rationed: bool = field(default=False, kw_only=True)
    kept_units: int = 0
    left_out: set[LeftOut] = field(default_factory=set)
    counted: Counter[Kind] = field(default_factory=Counter)
    """Findings that a rationed server does not get one by one."""

    def pays(self, units: int, what: LeftOut) -> bool:
        """Spend units of the budget; return False, with a note of what is left out, if there are too few."""
        try:
            self.work.spend(units)
        except WorkExhaustedError:
            self.left_out.add(what)
            return False
        return True

    def paid(self, items: Iterable[_Item], units_each: int, what: LeftOut) -> Iterator[_Item]:
        return takewhile(lambda _: self.pays(units_each, what), items)

    def finding(self, by: Seen | Rejection | ControlDecision) -> Iterator[Finding]:
        """Yield the finding that lists what was left out, if anything was.

        A rationed server gets one finding, not one per list.
        """
        if self.left_out:
            yield Finding(
                kind=Kind.ANALYSIS_CUT_SHORT,
                server_id=by.server_id,
                time_us=by.time_us,
                origin=by.origin,
                after=by.catalogue if isinstance(by, Seen) and not self.is_rationed else None,
                reason="rationed" if self.is_rationed else "budget",
                left_out=tuple(sorted(part.value for part in self.left_out)),
                counted=tuple(sorted((kind.value, number) for kind, number in self.counted.items())),
            )


def finding_in(fact: Seen | Announcement | Rejection, kind: Kind, **more: Any) -> Finding:
    """Return a finding by an observer's record, at its time if no other is given."""
    more = {"time_us": fact.time_us, "snapshot_id": fact.snapshot_id if isinstance(fact, Seen) else None} | more
    return Finding(kind=kind, server_id=fact.server_id, observer_id=fact.observer_id, origin=fact.origin, **more)


_UNITS_PER_MERGED_ITEM = 5


@dataclass(slots=True, kw_only=True)
class Baseline:
    """What was last known of a server's tools before a snapshot.

    Args:
        tools: tool name to the fingerprint last seen, ``None`` where it was always ambiguous.
        ambiguous: full digests of the definitions under a name that was ambiguous when it was last listed, sorted.
        nameless: full digests of the definitions without a name.
        complete: whether this rests on a complete list.
        same_rights: whether it was seen under the same rights as the snapshot.
        repeats: digest of the one catalogue that it is, ``None`` where it is several or has an ambiguous name.
    """

    tools: dict[str, Fingerprint | None] = field(default_factory=dict)
    ambiguous: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nameless: set[str] = field(default_factory=set)
    complete: bool = False
    same_rights: bool = True
    repeats: str | None = None

    def definitions_of(self, name: str) -> tuple[str, ...]:
        known = self.tools.get(name)
        return self.ambiguous.get(name) or (() if known is None else (known.full,))

    def differing(self, catalogue: Catalogue) -> list[str]:
        """Return the names without one and the same definition here and in a catalogue, sorted."""
        if self.repeats == catalogue.digest:
            return []
        differing = catalogue.tools.keys() - self.tools.keys()
        for name, known in self.tools.items():
            if known is None or known.full != catalogue.tools.get(name) or self.ambiguous.get(name):
                differing.add(name)
        return sorted(differing)


def baselines_for(server: ServerBindings, seen: Seen) -> tuple[Baseline | None, Baseline | None]:
    """Return the last baseline before a snapshot, and the last one that was analysed; ``None`` for a first list.

    The two differ where the analysis of a list was rationed. Such a list is no baseline for the next analysis:
    otherwise its changes would never be analysed, and a server could slip its poison past the analysis by
    exhausting its allowance first.
    """
    back = server.history(seen.observer_id, seen.position)
    newest = next((old for old in back if old.auth_context == seen.auth_context), None)
    if newest is not None and newest.completeness == "complete" and not newest.rationed:
        latest = _merge(server, [newest])
        if None not in latest.tools.values():  # Nothing older counts.
            latest.same_rights, latest.repeats = True, newest.catalogue
            return latest, latest
    history = list(server.history(seen.observer_id, seen.position))
    same = _under_rights_of(seen, history) or _latest_of_fleet(server, seen, "rights", seen.auth_context)
    found = same or history or _latest_of_fleet(server, seen)
    if not found:
        return None, None
    latest = _merge(server, found)
    latest.same_rights = bool(same)
    if not any(old.rationed for old in found):
        return latest, latest
    compared = [old for old in found if not old.rationed]
    # Where nothing of it was ever analysed, all of the list is new.
    analysed = _merge(server, compared) if compared else Baseline(complete=True)
    analysed.same_rights = latest.same_rights
    return latest, analysed


def _under_rights_of(seen: Seen, history: Iterable[Seen]) -> list[Seen]:
    return [old for old in history if old.auth_context == seen.auth_context]


def _latest_of_fleet(server: ServerBindings, seen: Seen, *alike: str | None) -> list[Seen]:
    """Return the history of the observer with the last observation of the server before this one."""
    latest = next(server.observations.back_from(seen.position, *alike), None)
    history = [] if latest is None else list(server.history(latest.observer_id, seen.position))
    return _under_rights_of(seen, history) if alike else history


def _merge(server: ServerBindings, history: list[Seen]) -> Baseline:
    """Merge a history, newest first: each distinct list once, up to ``lists_merged_max`` of them.

    A name that occurs only in older lists is still compared with its last definition (``last_shown``).
    """
    baseline = Baseline()
    merged: set[str] = set()
    for seen in history:
        if seen.catalogue not in merged:
            merged.add(seen.catalogue)
            catalogue = server.catalogue_of(seen)
            baseline.nameless.update(catalogue.nameless)
            for name, full in catalogue.tools.items():
                if name not in baseline.tools:
                    baseline.tools[name] = None if full is None else server.fingerprint_of(catalogue, full)
                    baseline.ambiguous[name] = catalogue.ambiguous.get(name, ())
        if seen.completeness == "complete":
            baseline.complete = True
            break
        if len(merged) >= DEFAULT_LIMITS.lists_merged_max:
            break
    # A list that names a tool twice hides no change: the next is compared with the definition before that list.
    unknown = {name for name, known in baseline.tools.items() if known is None}
    baseline.tools |= _last_in(server, history, unknown)
    return baseline


def _last_in(
    server: ServerBindings, lists: Iterable[Seen], names: Set[str], analysis: Analysis | None = None
) -> dict[str, Fingerprint]:
    """Return the last definition of each name in some lists, the newest first, reading each distinct list once.

    Args:
        analysis: pays for it, as far as it can; without one, only definitions that were not ambiguous count.
    """
    missing, found, looked_at = set(names), dict[str, Fingerprint](), set[str]()
    for old in lists if missing else ():
        units = 1 if old.catalogue in looked_at else 1 + len(missing)
        if analysis is not None and not analysis.pays(units, LeftOut.HISTORY):
            break
        if old.catalogue in looked_at:
            continue
        looked_at.add(old.catalogue)
        catalogue = server.catalogue_of(old)
        for name in sorted(missing & catalogue.tools.keys()):
            fulls = catalogue.definitions_of(name)
            if fulls and (analysis is not None or len(fulls) == 1):
                found[name] = server.fingerprint_of(catalogue, fulls[0])
        missing -= found.keys()
        if not missing:
            break
    return found


def last_shown(server: ServerBindings, seen: Seen, names: Iterable[str], analysis: Analysis) -> dict[str, Fingerprint]:
    """Return the last definition shown before an observation under each of these names, where there is one."""
    known = {name for name in names if server.knows(name)}
    own = (old for old in server.history(seen.observer_id, seen.position) if old.auth_context == seen.auth_context)
    under_rights = server.observations.back_from(seen.position, "rights", seen.auth_context)
    everything = server.observations.back_from(seen.position)
    found = _last_in(server, chain(own, under_rights, everything), known, analysis)
    formers = (server.formers[name] for name in (known - found.keys()) & server.formers.keys())
    return found | {former.tool_name: server.tools[former.place] for former in formers}


@dataclass(slots=True, kw_only=True)
class ItemBaseline:
    """What was last known of the prompts, or of the templates, before a snapshot.

    Args:
        names: name to the full digests of its definitions.
        complete: whether this rests on a complete list.
        stated: whether any list was stated.
    """

    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    complete: bool = False
    stated: bool = False


def latest_stating(server: ServerBindings, subject: Subject, seen: Seen) -> Seen | None:
    """Return the observation that the prompts, or templates, of a snapshot are compared with first."""
    own = next(stated(server, seen.observer_id, subject, seen.position), None)
    if own is not None:
        return own
    latest = next(server.observations.back_from(seen.position, "stating", subject), None)
    if latest is None or not latest.rationed:
        return latest
    return next(stated(server, latest.observer_id, subject, seen.position), latest)


def repeats(latest: Seen, offer: ItemOffer) -> bool:
    """Return True if the list before is complete and the same, so that there is nothing to compare."""
    is_whole = latest.completeness == "complete" and not latest.rationed and not offer.is_cut
    return is_whole and latest.listed(offer.subject) == offer.digest


def item_baseline(server: ServerBindings, subject: Subject, seen: Seen, analysis: Analysis) -> ItemBaseline:
    """Return the baseline of a list of prompts, or templates. Merging more than one list draws on the budget."""
    latest = latest_stating(server, subject, seen)
    if latest is None:
        return ItemBaseline()
    baseline = ItemBaseline(stated=True)
    merged: set[str] = set()
    for old in stated(server, latest.observer_id, subject, seen.position):
        listed = _list_of(server, old, subject)
        if listed.digest not in merged:
            if not analysis.pays(_UNITS_PER_MERGED_ITEM * len(listed.items) if merged else 0, LeftOut.HISTORY):
                break
            merged.add(listed.digest)
            baseline.names = listed.by_name() | baseline.names
        if old.completeness == "complete" and not listed.is_cut:
            baseline.complete = True
            break
    return baseline


def last_stated(
    server: ServerBindings, subject: Subject, seen: Seen, names: Set[str], analysis: Analysis
) -> dict[str, tuple[str, ...]]:
    """Return any observer's last definitions under each of these names, as far as the budget suffices."""
    missing = set(names)
    found: dict[str, tuple[str, ...]] = {}
    looked_at: set[str] = set()
    everything = server.observations.back_from(seen.position, "stating", subject) if missing else ()
    for old in analysis.paid(everything, 1, LeftOut.HISTORY):
        listed = _list_of(server, old, subject)
        if listed.digest in looked_at:
            continue
        looked_at.add(listed.digest)
        if not analysis.pays(_UNITS_PER_MERGED_ITEM * len(listed.items), LeftOut.HISTORY):
            break
        stated = listed.by_name()
        found |= {name: stated[name] for name in missing & stated.keys()}
        missing -= stated.keys()
        if not missing:
            break
    return found


def stated(server: ServerBindings, observer_id: str, subject: Subject, position: Position) -> Iterator[Seen]:
    """Yield the lists of an observer before a position that state a subject, newest first, without rationed ones."""
    for seen in server.history(observer_id, position):
        if seen.listed(subject) is not None and not seen.rationed:
            yield seen


def _list_of(server: ServerBindings, seen: Seen, subject: Subject) -> ItemList:
    return server.item_list(subject, str(seen.listed(subject)))


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


class Ration(Analysis):
    """What one snapshot may cost, and what its server has left afterwards.

    Args:
        time_ms: the log's timestamp of the record, milliseconds since the epoch.
        change: what the snapshot changes, as returned by ``change_of``.
    """

    def __init__(
        self, server: ServerBindings, seen: Seen, time_ms: int, change: _Change | None, limits: Limits
    ) -> None:
        self._limits, self._change = limits, change
        self._allowance = refilled(server.allowance, seen.server_id, time_ms, limits)
        self._was_analysed = change is not None and self._allowance.knows(change[0])
        own = server.observers.get(seen.observer_id) if self._was_analysed else None
        is_back = own is not None and _stated(seen) in map(_stated, own.newest_first())
        self._is_free = self._was_analysed and not is_back
        units_max = limits.work_units_max
        if not self._is_free:
            units_max = min(units_max, max(self._allowance.units, limits.ration_floor_units))
        super().__init__(Work(units_max), is_rationed=units_max < limits.work_units_max)
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
                    self.counted[finding.kind] += 1
                    continue
                changes_left -= 1
            self._reported += 1
            yield finding
        if self.counted:
            self.left_out.add(LeftOut.FINDINGS)

    @property
    def is_cut_short(self) -> bool:
        return self.is_rationed and bool(self.left_out)

    def charge(self) -> Allowance | None:
        """Return the remaining allowance, ``None`` where nothing was charged."""
        units = self.work.spent + self.counted.total() * _UNITS_PER_COUNTED
        # If the change was analysed before, neither kept answers nor findings are charged.
        units += -self.kept_units if self._is_free else self._reported * UNITS_PER_REPORTED
        if not units:
            return None
        is_new = not self._was_analysed and not self.left_out
        return charged(self._allowance, units, self._change if is_new else None, self._limits)


def _stated(seen: Seen) -> tuple[str | None, ...]:
    return seen.catalogue, *(seen.listed(subject) for subject in ITEM_SUBJECTS)


def change_of(
    server: ServerBindings, baseline: Baseline | None, catalogue: Catalogue, seen: Seen, lists: Iterable[ItemOffer]
) -> _Change | None:
    """Return the identity of the change that a snapshot shows, and the number of definitions it concerns.

    ``None`` where it shows none: then nothing is compared. Equal changes are analysed alike for every observer.
    """
    tools: list[tuple[str, str | None]] = []
    if baseline is not None:
        for name in baseline.differing(catalogue):
            is_listed = name in baseline.tools and name in catalogue.tools
            if not is_listed or baseline.definitions_of(name) != catalogue.definitions_of(name):
                known = baseline.tools.get(name)
                tools.append((name, None if known is None else known.full))
        tools += [("", full) for full in catalogue.nameless if full not in baseline.nameless]
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
