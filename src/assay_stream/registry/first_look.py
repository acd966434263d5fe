"""First sight: a server that nobody had listed before, or an observer that had not listed it.

A first list has no baseline, so nothing in it is a change. Its text is searched all the same: a definition with
indicators of medium severity or higher is reported as an addition, and the others are part of the inventory. A low
indicator, such as the name of another tool, means little where there is no text that it was added to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from assay_stream.drift.severity import Level
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.definition_facts import Catalogue
from assay_stream.model.facts import Seen
from assay_stream.model.fields import ITEM_SUBJECTS
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.registry.comparison import Signs
from assay_stream.registry.offers import ItemOffer
from assay_stream.registry.server import ServerBindings
from assay_stream.schemes.assay.manifest import action_class


def first_look(
    server: ServerBindings, catalogue: Catalogue, seen: Seen, lists: Iterable[ItemOffer]
) -> Iterator[Finding]:
    """Yield what is new about who lists the server: the server itself, or the observer."""
    if seen.observer_id in server.observers:
        return
    if server.observers:
        yield _found(Kind.OBSERVER_ADDED, seen)
        return
    privileged = sorted(name for name in catalogue.tools if action_class(name) is not None)
    listed = {items.subject: len(items.items) for items in lists}
    yield _found(
        Kind.FIRST_LOOK,
        seen,
        after=catalogue.digest,
        inventory=(
            ("tools", len(catalogue.tools)),
            *((subject.plural, listed[subject]) for subject in ITEM_SUBJECTS if subject in listed),
            ("privileged", len(privileged)),
        ),
        privileged=tuple(privileged[: DEFAULT_LIMITS.privileged_named_max]),
    )


def names_at_first_sight(names: Set[str]) -> Set[str]:
    """Return the names in a list without a baseline whose definitions are searched: all of them."""
    return names


def stands_out(indicators: Signs) -> bool:
    """Tell whether a definition of a first list is reported by itself."""
    return any(level >= Level.MEDIUM for _, level, _ in indicators)


def _found(kind: Kind, seen: Seen, **more: object) -> Finding:
    return Finding(
        kind=kind,
        server_id=seen.server_id,
        observer_id=seen.observer_id,
        time_us=seen.time_us,
        origin=seen.origin,
        snapshot_id=seen.snapshot_id,
        **more,  # type: ignore[arg-type]
    )
