"""Drift between two snapshots of one server: tools added, removed and changed.

The comparison is with what the same observer last saw; an observer's first look is compared with what the
rest of the fleet last saw. Nothing is called removed on the word of an incomplete list, and nothing is called
added where no complete list came before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from assay_stream.core.bindings import ServerBindings
from assay_stream.core.facts import Catalogue, Seen
from assay_stream.core.finding import Finding
from assay_stream.core.fingerprint import Fingerprint, changed_fields
from assay_stream.core.kinds import Kind
from assay_stream.core.offer import Offer
from assay_stream.core.record import Position
from assay_stream.schemes.handshake_contract import contract, contract_drift


@dataclass(slots=True, kw_only=True)
class Baseline:
    """What was last known of a server's tools before a snapshot.

    Args:
        tools: tool name to the fingerprint last seen, ``None`` where it was ambiguous.
        complete: whether a complete list is among what this rests on.
    """

    tools: dict[str, Fingerprint | None] = field(default_factory=dict)
    complete: bool = False


def baseline_for(server: ServerBindings, observer_id: str, position: Position) -> Baseline | None:
    """Return what a snapshot is to be compared with, or ``None`` for the first one of its server.

    Args:
        server: the state before the snapshot.
        observer_id: who took the snapshot.
        position: the snapshot's position.
    """
    own = server.observers.get(observer_id)
    history = own.before(position) if own else []
    if not history:
        others = [seen for timeline in server.observers.values() for seen in timeline.before(position)]
        if not others:
            return None
        latest = max(others, key=lambda seen: seen.position)
        history = server.observers[latest.observer_id].before(position)
    return _accumulate(server, history)


def _accumulate(server: ServerBindings, history: list[Seen]) -> Baseline:
    since_complete: list[Seen] = []
    complete = False
    for seen in reversed(history):
        since_complete.append(seen)
        if seen.completeness == "complete":
            complete = True
            break
    baseline = Baseline(complete=complete)
    for seen in reversed(since_complete):
        catalogue = server.catalogue_of(seen)
        for name, full in catalogue.tools.items():
            baseline.tools[name] = None if full is None else server.fingerprint_of(catalogue, full)
    for name, known in baseline.tools.items():
        if known is None:
            # A list that names a tool twice hides no change: what it was before is what the next is held against.
            baseline.tools[name] = _last_known(server, history, name)
    return baseline


def _last_known(server: ServerBindings, history: list[Seen], name: str) -> Fingerprint | None:
    for seen in reversed(history):
        catalogue = server.catalogue_of(seen)
        full = catalogue.tools.get(name)
        if full is not None:
            return server.fingerprint_of(catalogue, full)
    return None


def compare(
    server: ServerBindings,
    baseline: Baseline | None,
    catalogue: Catalogue,
    seen: Seen,
    offer: Offer,
) -> Iterator[Finding]:
    """Yield what a snapshot shows that its baseline did not, in the order of tool names.

    Args:
        server: the state before the snapshot.
        baseline: what to compare with.
        catalogue: what the snapshot offers.
        seen: the observation itself.
        offer: its content.
    """
    before = baseline or Baseline()
    names = set(catalogue.tools)
    if before.complete and seen.completeness == "complete":
        names |= before.tools.keys()
    for name in sorted(names):
        if name not in catalogue.tools:
            old = before.tools[name]
            yield _finding(Kind.TOOL_REMOVED, seen, name, before=old)
            continue
        full = catalogue.tools[name]
        if full is None:
            yield _finding(Kind.DEFINITION_AMBIGUOUS, seen, name)
            continue
        yield from _compare_tool(server, before, seen, name, offer.fingerprints[full], offer.definitions[full])


def _compare_tool(
    server: ServerBindings,
    before: Baseline,
    seen: Seen,
    name: str,
    new: Fingerprint,
    definition: dict[str, Any],
) -> Iterator[Finding]:
    known = (True, new.full) in server.tools or (False, new.full) in server.tools
    if name not in before.tools:
        if before.complete:
            yield _finding(Kind.TOOL_ADDED, seen, name, after=new, known=known)
    else:
        old = before.tools[name]
        if old is not None and old.full != new.full:
            yield _finding(Kind.TOOL_CHANGED, seen, name, before=old, after=new, known=known)
            if "_meta" in changed_fields(old, new):
                broken = contract_drift(contract(server.definition_of(old.full)), contract(definition))
                for reason in broken:
                    yield _finding(
                        Kind.CONTRACT_VIOLATION, seen, name, before=old, after=new, known=known, reason=reason
                    )


def _finding(
    kind: Kind,
    seen: Seen,
    tool_name: str,
    *,
    before: Fingerprint | None = None,
    after: Fingerprint | None = None,
    known: bool = False,
    reason: str | None = None,
) -> Finding:
    return Finding(
        kind=kind,
        server_id=seen.server_id,
        tool_name=tool_name,
        observer_id=seen.observer_id,
        time_us=seen.time_us,
        origin=seen.origin,
        snapshot_id=seen.snapshot_id,
        before=before.full if before else None,
        after=after.full if after else None,
        changed_fields=changed_fields(before, after) if before and after else (),
        known=known,
        reason=reason,
    )
