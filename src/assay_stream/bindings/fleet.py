"""Indexes over the observations of one server: all in order (``Observations``), and what is offered (``Fleet``).

Without them each query takes time in the number of observers or the length of history, both of which the writers of
observations control.

1. An index follows from the facts of the server alone: it is built on first use and kept up to date, so that a
   restart rebuilds it. A process that never needs it, such as a join, never builds it.
2. Only the observer whose lists changed is evaluated again.
3. Observers that are shown the same share one entry: the counts are of distinct catalogues.
4. ``Observations`` returns what an observation shares with others (``shared_part``), without time and id.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from assay_stream.bindings.sightings import OrderedRows, Sightings
from assay_stream.bindings.timeline import Timeline
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.facts import Catalogue, ItemList, Rejection, Seen
from assay_stream.model.fields import ITEM_SUBJECTS, Subject
from assay_stream.model.record import Position

_Key = TypeVar("_Key", bound=Hashable)


class Observations:
    """The observations of one server by any observer, in order; a position is that of an observation."""

    def __init__(self, table: Sightings, numbers: Iterable[int]) -> None:
        self._table = table
        self._orders: dict[tuple[str | None, ...], OrderedRows] = {}
        """All rows, and those alike in something: its name, and the value they share."""
        self._offsets: dict[tuple[str, int], array[int]] = {}
        """By topic and partition, sorted."""
        for number in sorted(numbers, key=table.position):
            self.add(number)

    def add(self, number: int) -> None:
        position = self._table.position(number)
        for key in _orders_of(self._table.shared(number)):
            if key not in self._orders:
                self._orders[key] = OrderedRows(self._table)
            self._orders[key].insert(number, position)
        insort(self._offsets.setdefault(position[1][:2], array("q")), position[1].offset)

    def remove(self, number: int) -> None:
        position = self._table.position(number)
        for key in _orders_of(self._table.shared(number)):
            self._orders[key].discard(number, position)
            drop_empty(self._orders, key)
        offsets = self._offsets[position[1][:2]]
        del offsets[bisect_left(offsets, position[1].offset)]
        drop_empty(self._offsets, position[1][:2])

    def __len__(self) -> int:
        return len(self._orders.get(_ALL, ()))

    @property
    def any_complete(self) -> bool:
        return _COMPLETE in self._orders

    @property
    def latest_us(self) -> int:
        """Event time of the latest observation, 0 where there is none."""
        return self._latest_us(self._orders[_ALL]) if len(self) else 0

    def back_from(self, position: Position, *alike: str | None) -> Iterator[Seen]:
        """Yield the shared parts of the observations before a position, newest first.

        Args:
            alike: only those under some rights (``rights`` and their digest), or that state a list (``stating`` and
                its subject).
        """
        rows = self._orders.get(alike or _ALL)
        if rows is not None:
            for index in reversed(range(rows.count_before(position))):
                yield self._table.shared(rows.numbers[index])

    def observers_since(self, position: Position) -> Iterable[str]:
        rows = self._orders.get(_ALL)
        later = () if rows is None else rows.numbers[rows.count_before(position) :]
        return dict.fromkeys(self._table.shared(number).observer_id for number in later)

    def was_shown_complete(self, catalogue: str, position: Position) -> bool:
        rows = self._orders.get((*_COMPLETE, catalogue))
        return rows is not None and self._table.position(rows.numbers[0]) < position

    def all_before(self, rejection: Rejection) -> bool:
        own = rejection.origin[:2]
        return all(
            offsets[-1] < rejection.origin.offset
            if place == own
            else self._latest_us(self._orders["place", *map(str, place)]) <= rejection.time_us
            for place, offsets in self._offsets.items()
        )

    def uses(self, kind: str, digest: str) -> bool:
        """Return True if an observation names a ``catalogue``, ``signatures``, or a list of a ``Subject``."""
        return (kind, digest) in self._orders

    def _latest_us(self, rows: OrderedRows) -> int:
        return self._table.times_us[rows.numbers[-1]]


_ALL = ("all",)
_COMPLETE = ("complete",)


def _orders_of(shared: Seen) -> Iterator[tuple[str | None, ...]]:
    yield _ALL
    yield "rights", shared.auth_context
    yield "place", *map(str, shared.origin[:2])
    yield "catalogue", shared.catalogue
    if shared.completeness == "complete":
        yield _COMPLETE
        yield *_COMPLETE, shared.catalogue
    if shared.signatures is not None:
        yield "signatures", shared.signatures
    for subject in ITEM_SUBJECTS:
        listed = shared.listed(subject)
        if listed is not None:
            yield "stating", subject
            yield subject, listed


class Definitions(dict[str, Counter[str]]):
    """How often each name has each definition; both only as long as they have any."""

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        for name, full in pairs:
            self.setdefault(name, Counter())[full] += 1

    def take(self, pairs: Iterable[tuple[str, str]]) -> None:
        for name, full in pairs:
            take_one(self[name], full)
            drop_empty(self, name)


@dataclass(slots=True)
class Shares(Generic[_Key]):
    """What each observer has, and the definitions in all of it: what several have counts once."""

    of: dict[str, _Key] = field(default_factory=dict)
    users: Counter[_Key] = field(default_factory=Counter)
    definitions: Definitions = field(default_factory=Definitions)

    def move(
        self,
        observer_id: str,
        now: _Key | None,
        definitions_of: Callable[[_Key], Iterable[tuple[str, str]]] = lambda _: (),
    ) -> None:
        """Give an observer something else, or nothing."""
        was = self.of.pop(observer_id, None)
        if now is not None:
            self.of[observer_id] = now
            self.users[now] += 1
            if self.users[now] == 1:
                self.definitions.add(definitions_of(now))
        if was is not None:
            take_one(self.users, was)
            if was not in self.users:
                self.definitions.take(definitions_of(was))


def take_one(counts: Counter[_Key], key: _Key) -> None:
    counts[key] -= 1
    drop_empty(counts, key)


def drop_empty(collections: dict[_Key, Any], key: _Key) -> None:
    if not collections[key]:
        del collections[key]


FleetView = tuple[str, ...]
"""Catalogues that make up what an observer is offered, newest first."""


@dataclass(eq=False, repr=False)
class Fleet:
    """The index of one server.

    Args:
        is_in_force: whether an observation is still in force.
    """

    observers: Mapping[str, Timeline]
    catalogues: Mapping[str, Catalogue]
    item_lists: Mapping[tuple[Subject, str], ItemList]
    is_in_force: Callable[[Seen], bool]

    def __post_init__(self) -> None:
        self.tool_uses: Counter[tuple[bool, str]] = Counter()
        self.item_uses: Counter[tuple[Subject, str]] = Counter()
        self.item_names: Counter[tuple[Subject, str]] = Counter()
        self.known = Definitions()
        """The definitions of each name in any kept list, and below those without a name."""
        self.nameless: Counter[str] = Counter()
        self._lists: Shares[str] = Shares()
        """Catalogues of the latest lists."""
        self._forced: Shares[str] | None = None
        """Those of them that are in force, once they were asked for."""
        self._views: Shares[FleetView] = Shares()
        self._offered = self._views.definitions
        self._offered_before: dict[tuple[str, str], bool] = {}
        for catalogue in self.catalogues.values():
            self.add_catalogue(catalogue)
        for item_list in self.item_lists.values():
            self.add_item_list(item_list)
        for observer_id in self.observers:
            self.refresh(observer_id)
        self.forget_changes()

    def refresh(self, observer_id: str) -> None:
        timeline = self.observers[observer_id]
        latest = timeline.latest
        catalogue = None if latest is None else latest.catalogue
        self._lists.move(observer_id, catalogue, lambda digest: self.catalogues[digest].shown())
        # An earlier observation may end, or give back, the force of the latest.
        self._refresh_force(observer_id)
        self._views.move(observer_id, _view_of(timeline) or None, self._remembered)

    def add_catalogue(self, catalogue: Catalogue) -> None:
        self.tool_uses.update((catalogue.server_scoped, full) for _, full in catalogue.definitions())
        self.known.add(catalogue.definitions())
        self.nameless.update(catalogue.nameless)

    def remove_catalogue(self, catalogue: Catalogue) -> None:
        for _, full in catalogue.definitions():
            take_one(self.tool_uses, (catalogue.server_scoped, full))
        self.known.take(catalogue.definitions())
        for full in catalogue.nameless:
            take_one(self.nameless, full)

    def add_item_list(self, item_list: ItemList) -> None:
        self.item_uses.update({(item_list.subject, full) for _, full in item_list.items})
        self.item_names.update({(item_list.subject, name) for name, _ in item_list.items})

    def remove_item_list(self, item_list: ItemList) -> None:
        for full in {full for _, full in item_list.items}:
            take_one(self.item_uses, (item_list.subject, full))
        for name in {name for name, _ in item_list.items}:
            take_one(self.item_names, (item_list.subject, name))

    def latest(self) -> list[Seen]:
        return [latest for timeline in self.observers.values() if (latest := timeline.latest) is not None]

    def catalogues_in_force(self) -> frozenset[str]:
        """Return the digests of the catalogues currently offered to any observer."""
        if self._forced is None:
            self._forced = Shares()
            for observer_id in self.observers:
                self._refresh_force(observer_id)
        return frozenset(self._forced.users)

    def force_changed(self, observer_id: str | None) -> None:
        """Update what is in force after adding or removing a rejection that names this observer, or none (``None``)."""
        if observer_id is None:
            self._forced = None
        else:
            self._refresh_force(observer_id)

    def shows_others(self, tool_name: str, full: str, observer_id: str) -> bool:
        shown = self._lists.definitions.get(tool_name, Counter[str]())[full]
        own = self._lists.of.get(observer_id)
        if own is not None and self._lists.users[own] == 1:
            shown -= self.catalogues[own].lists(tool_name, full)
        return shown > 0

    def offers(self, tool_name: str) -> list[str]:
        return sorted(self._offered.get(tool_name, ()))

    def names_offered_before(self) -> set[str]:
        """Return the names that were offered at the last ``forget_changes``."""
        before = self._offered_before
        names = {name for (name, _), was in before.items() if was}
        return names.union(n for n, fulls in self._offered.items() if any((n, full) not in before for full in fulls))

    def changes(self) -> Iterator[tuple[tuple[str, str], bool]]:
        """Yield name and full digest of what is offered since ``forget_changes`` (true) or no longer is (false)."""
        for (name, full), was in self._offered_before.items():
            is_offered = full in self._offered.get(name, ())
            if was != is_offered:
                yield (name, full), is_offered

    def forget_changes(self) -> None:
        self._offered_before = {}

    def _refresh_force(self, observer_id: str) -> None:
        if self._forced is not None:
            timeline = self.observers.get(observer_id)
            latest = None if timeline is None else timeline.latest
            is_in_force = latest is not None and self.is_in_force(latest)
            self._forced.move(observer_id, latest.catalogue if latest is not None and is_in_force else None)

    def _remembered(self, view: FleetView) -> list[tuple[str, str]]:
        """Return name and full digest of what a view offers; for ``changes``, whether each was offered so far."""
        known: dict[str, str | None] = {}
        for digest in reversed(view):
            known.update(self.catalogues[digest].tools)
        pairs = [(name, full) for name, full in known.items() if full is not None]
        for name, full in pairs:
            self._offered_before.setdefault((name, full), full in self._offered.get(name, ()))
        return pairs


def _view_of(timeline: Timeline) -> FleetView:
    """Return the catalogues that make up what an observer is offered: back to the last complete one."""
    view: dict[str, None] = {}
    for seen in timeline.newest_first():
        view[seen.catalogue] = None
        if seen.completeness == "complete" or len(view) >= DEFAULT_LIMITS.lists_merged_max:
            break
    return tuple(view)
