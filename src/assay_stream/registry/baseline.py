"""What a snapshot is compared with: the lists before it, of its observer or else of the rest of the fleet.

Lists are merged from the newest one back to the last complete one. A list whose analysis was rationed is no
baseline for the analysis of the next one, only for what ends with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.facts import Seen
from assay_stream.registry.state import ServerBindings
from assay_stream.schemes.fingerprint import Fingerprint


@dataclass(slots=True, kw_only=True)
class Baseline:
    """What was last known of a server's tools before a snapshot.

    Args:
        tools: tool name to the fingerprint last seen, ``None`` where it was always ambiguous.
        ambiguous: full digests of what stood under a name that was ambiguous when it was listed last, sorted.
        complete: whether a complete list is among what this rests on.
        same_rights: whether it was seen under the rights under which the server is asked now.
    """

    tools: dict[str, Fingerprint | None] = field(default_factory=dict)
    ambiguous: dict[str, tuple[str, ...]] = field(default_factory=dict)
    complete: bool = False
    same_rights: bool = True

    def definitions_of(self, name: str) -> tuple[str, ...]:
        """Return full digests of what stood under a name, sorted, none where it was not listed."""
        known = self.tools.get(name)
        return self.ambiguous.get(name) or (() if known is None else (known.full,))


def baselines_for(server: ServerBindings, seen: Seen) -> tuple[Baseline | None, Baseline | None]:
    """Return what was last shown before a snapshot, and what of it was last analysed; ``None`` for a first list.

    The two differ where the analysis of a list was rationed. Such a list is no baseline for the next analysis:
    otherwise what it changed would never be looked at, and a server could slip its poison past the analysis by
    wearing its allowance down first.
    """
    found, has_same_rights = _history_for(server, seen)
    if not found:
        return None, None
    latest = _accumulate(server, found)
    latest.same_rights = has_same_rights
    if not any(old.rationed for old in found):
        return latest, latest
    history = [old for old in found if not old.rationed]
    # Where nothing of it was ever analysed, all of the list is new.
    analysed = _accumulate(server, history) if history else Baseline(complete=True)
    analysed.same_rights = has_same_rights
    return latest, analysed


def _history_for(server: ServerBindings, seen: Seen) -> tuple[list[Seen], bool]:
    """Return what to compare a snapshot with, oldest first, and whether it was seen under the same rights."""
    own = server.observers.get(seen.observer_id)
    history = own.before(seen.position) if own else []
    same = _under_rights_of(seen, history) or _latest_of_fleet(server, seen, under_same_rights=True)
    return same or history or _latest_of_fleet(server, seen), bool(same)


def _under_rights_of(seen: Seen, history: list[Seen]) -> list[Seen]:
    return [old for old in history if old.auth_context == seen.auth_context]


def _latest_of_fleet(server: ServerBindings, seen: Seen, *, under_same_rights: bool = False) -> list[Seen]:
    """Return the history of the observer who saw the server last before this observation."""
    observations = server.observations
    if under_same_rights:
        latest = observations.latest_under_rights(seen.position, seen.auth_context)
    else:
        latest = observations.latest_before(seen.position)
    if latest is None:
        return []
    history = server.observers[latest.observer_id].before(seen.position)
    return _under_rights_of(seen, history) if under_same_rights else history


def _accumulate(server: ServerBindings, history: list[Seen]) -> Baseline:
    """Return what a history adds up to: each distinct list once, up to ``lists_merged_max`` of them, newest first.

    A name that only older ones have is still compared with what was last shown of it (``registry.last_shown``).
    """
    baseline = Baseline()
    merged: set[str] = set()
    for seen in reversed(history):
        if seen.catalogue not in merged:
            merged.add(seen.catalogue)
            catalogue = server.catalogue_of(seen)
            for name, full in catalogue.tools.items():
                if name not in baseline.tools:
                    baseline.tools[name] = None if full is None else server.fingerprint_of(catalogue, full)
                    baseline.ambiguous[name] = catalogue.ambiguous.get(name, ())
        if seen.completeness == "complete":
            baseline.complete = True
            break
        if len(merged) >= DEFAULT_LIMITS.lists_merged_max:
            break
    # A list that names a tool twice hides no change: what it was before is what the next is held against.
    unknown = {name for name, known in baseline.tools.items() if known is None}
    baseline.tools |= _last_known(server, history, unknown)
    return baseline


def _last_known(server: ServerBindings, history: list[Seen], names: set[str]) -> dict[str, Fingerprint]:
    """Return the last definition of each name that stood there alone, looking at each distinct list once."""
    found: dict[str, Fingerprint] = {}
    looked_at: set[str] = set()
    for seen in reversed(history):
        if len(found) == len(names):
            break
        if seen.catalogue in looked_at:
            continue
        looked_at.add(seen.catalogue)
        catalogue = server.catalogue_of(seen)
        for name in names & catalogue.tools.keys():
            full = catalogue.tools[name]
            if full is not None and name not in found:
                found[name] = server.fingerprint_of(catalogue, full)
    return found
