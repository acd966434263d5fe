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
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from assay_stream.bindings.sightings import OrderedRows, Sightings
from assay_stream.bindings.timeline import Timeline
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.definition_facts import Catalogue, FormerTool, ItemList
from assay_stream.model.facts import Rejection, Seen
from assay_stream.model.fields import ITEM_SUBJECTS, Subject
from assay_stream.model.record import Position

_Key = TypeVar("_Key")


class Observations:
    """The observations of one server by any observer, in order; a position is that of an observation."""

    def __init__(self, table: Sightings, numbers: Iterable[int]) -> None:
        self._table = table
        self._all = OrderedRows(table)
        self._of_rights: dict[str | None, OrderedRows] = {}
        self._stating: dict[Subject, OrderedRows] = {}
        self._complete: dict[str, OrderedRows] = {}
        self._of_place: dict[tuple[str, int], OrderedRows] = {}
        self._offsets: dict[tuple[str, int], array[int]] = {}
        self._uses: Counter[tuple[str, str]] = Counter()
        for number in sorted(numbers, key=table.position):
            self.add(number)

    def add(self, number: int) -> None:
        shared, position = self._table.shared(number), self._table.position(number)
        offset = position[1].offset
        self._all.insert(number, position)
        for orders, key in self._orders_of(shared):
            if key not in orders:
                orders[key] = OrderedRows(self._table)
            orders[key].insert(number, position)
        offsets = self._offsets.setdefault(shared.origin[:2], array("q"))
        offsets.insert(bisect_left(offsets, offset), offset)
        self._uses.update(_uses_of(shared))

    def remove(self, number: int) -> None:
        """Remove a row that is still in the table."""
        shared, position = self._table.shared(number), self._table.position(number)
        offset = position[1].offset
        self._all.discard(number, position)
        for orders, key in self._orders_of(shared):
            orders[key].discard(number, position)
            drop_empty(orders, key)
        place = shared.origin[:2]
        del self._offsets[place][bisect_left(self._offsets[place], offset)]
        drop_empty(self._offsets, place)
        for use in _uses_of(shared):
            take_one(self._uses, use)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def any_complete(self) -> bool:
        return bool(self._complete)

    @property
    def latest_us(self) -> int:
        """Event time of the latest observation, 0 where there is none."""
        return self._latest_us(self._all) if len(self._all) else 0

    def back_from(self, position: Position) -> Iterator[Seen]:
        """Yield the shared parts of the observations before a position, newest first."""
        return self._back(self._all, position)

    def back_under_rights(self, position: Position, auth_context: str | None) -> Iterator[Seen]:
        """As ``back_from``, for those under some rights."""
        return self._back(self._of_rights.get(auth_context), position)

    def back_stating(self, position: Position, subject: Subject) -> Iterator[Seen]:
        """As ``back_from``, for those that state prompts, or templates."""
        return self._back(self._stating.get(subject), position)

    def observers_since(self, position: Position) -> Iterable[str]:
        """Return the distinct observers of anything at or after a position."""
        later = self._all.numbers[self._all.count_before(position) :]
        return dict.fromkeys(self._table.shared(number).observer_id for number in later)

    def was_shown_complete(self, catalogue: str, position: Position) -> bool:
        rows = self._complete.get(catalogue)
        return rows is not None and self._table.position(rows.numbers[0]) < position

    def all_before(self, rejection: Rejection) -> bool:
        own = rejection.origin[:2]
        return all(
            self._offsets[place][-1] < rejection.origin.offset
            if place == own
            else self._latest_us(rows) <= rejection.time_us
            for place, rows in self._of_place.items()
        )

    def uses(self, kind: str, digest: str) -> bool:
        """Return True if an observation names a ``catalogue``, ``signatures``, or a list of a ``Subject``."""
        return (kind, digest) in self._uses

    def _latest_us(self, rows: OrderedRows) -> int:
        return self._table.times_us[rows.numbers[-1]]

    def _back(self, rows: OrderedRows | None, position: Position) -> Iterator[Seen]:
        if rows is not None:
            for index in reversed(range(rows.count_before(position))):
                yield self._table.shared(rows.numbers[index])

    def _orders_of(self, shared: Seen) -> Iterator[tuple[dict[Any, OrderedRows], Any]]:
        yield self._of_rights, shared.auth_context
        yield self._of_place, shared.origin[:2]
        for subject in ITEM_SUBJECTS:
            if shared.listed(subject) is not None:
                yield self._stating, subject
        if shared.completeness == "complete":
            yield self._complete, shared.catalogue


def take_one(counts: Counter[_Key], key: _Key) -> None:
    """Decrement the count of a key that is present, and drop it at zero."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def drop_empty(collections: dict[_Key, Any], key: _Key) -> None:
    if key in collections and not collections[key]:
        del collections[key]


def _uses_of(shared: Seen) -> Iterator[tuple[str, str]]:
    yield "catalogue", shared.catalogue
    if shared.signatures is not None:
        yield "signatures", shared.signatures
    for subject in ITEM_SUBJECTS:
        listed = shared.listed(subject)
        if listed is not None:
            yield subject.value, listed


FleetView = tuple[str, ...]
"""Catalogues that make up what an observer is offered, newest first."""


class Fleet:
    """The index of one server.

    Args:
        is_in_force: whether an observation is still in force.
    """

    def __init__(
        self,
        observers: Mapping[str, Timeline],
        catalogues: Mapping[str, Catalogue],
        item_lists: Mapping[tuple[Subject, str], ItemList],
        is_in_force: Callable[[Seen], bool],
    ) -> None:
        self._observers = observers
        self._catalogues = catalogues
        self.is_in_force = is_in_force
        self._tool_uses: Counter[tuple[bool, str]] = Counter()
        self._item_uses: Counter[tuple[Subject, str]] = Counter()
        self._item_names: Counter[tuple[Subject, str]] = Counter()
        self._known: dict[str, Counter[str]] = {}
        self._latest: dict[str, Seen] = {}
        self._latest_of: Counter[str] = Counter()
        self._latest_pairs: Counter[tuple[str, str]] = Counter()
        self._forced: dict[str, str] = {}
        self._forced_of: Counter[str] = Counter()
        self._is_force_known = False
        self._views: dict[str, FleetView] = {}
        self._viewers: Counter[FleetView] = Counter()
        self._offered: dict[str, Counter[str]] = {}
        self._offered_before: dict[tuple[str, str], bool] = {}
        for catalogue in catalogues.values():
            self.add_catalogue(catalogue)
        for item_list in item_lists.values():
            self.add_item_list(item_list)
        for observer_id in observers:
            self.refresh(observer_id)
        self.forget_changes()

    def refresh(self, observer_id: str) -> None:
        """Update the index after an observer's timeline changed."""
        timeline = self._observers[observer_id]
        latest = timeline.latest
        known = self._latest.get(observer_id)
        if known is not latest:
            self._move_latest(observer_id, known, latest)
        if self._is_force_known:
            # An earlier observation may end, or give back, the force of the latest.
            self._refresh_force(observer_id)
        view = _view_of(timeline)
        was = self._views.get(observer_id, ())
        if view != was:
            self._move_view(observer_id, was, view)

    def add_catalogue(self, catalogue: Catalogue) -> None:
        for name, full in catalogue.definitions():
            self._tool_uses[catalogue.server_scoped, full] += 1
            self._known.setdefault(name, Counter())[full] += 1

    def remove_catalogue(self, catalogue: Catalogue) -> None:
        for name, full in catalogue.definitions():
            take_one(self._tool_uses, (catalogue.server_scoped, full))
            take_one(self._known[name], full)
            drop_empty(self._known, name)

    def add_item_list(self, item_list: ItemList) -> None:
        self._item_uses.update({(item_list.subject, full) for _, full in item_list.items})
        self._item_names.update({(item_list.subject, name) for name, _ in item_list.items})

    def remove_item_list(self, item_list: ItemList) -> None:
        for full in {full for _, full in item_list.items}:
            take_one(self._item_uses, (item_list.subject, full))
        for name in {name for name, _ in item_list.items}:
            take_one(self._item_names, (item_list.subject, name))

    def uses_tool(self, server_scoped: bool, full: str) -> bool:
        return (server_scoped, full) in self._tool_uses

    def uses_item(self, subject: Subject, full: str) -> bool:
        return (subject, full) in self._item_uses

    def is_item_known(self, subject: Subject, name: str) -> bool:
        return (subject, name) in self._item_names

    def names_known(self) -> list[str]:
        """Return the tool names of every catalogue, sorted."""
        return sorted(self._known)

    def is_known(self, tool_name: str) -> bool:
        return tool_name in self._known

    def definitions_known(self, tool_name: str) -> list[str]:
        """Return the full digests of every definition of a tool, sorted."""
        return sorted(self._known.get(tool_name, ()))

    def latest(self) -> Mapping[str, Seen]:
        return self._latest

    def catalogues_in_force(self) -> frozenset[str]:
        """Return the digests of the catalogues currently offered to any observer."""
        if not self._is_force_known:
            self._forced, self._forced_of, self._is_force_known = {}, Counter(), True
            for observer_id in self._latest:
                self._refresh_force(observer_id)
        return frozenset(self._forced_of)

    def force_changed(self, observer_id: str | None) -> None:
        """Update what is in force after adding or removing a rejection that names this observer, or none (``None``)."""
        if observer_id is None:
            self._is_force_known = False
        elif self._is_force_known:
            self._refresh_force(observer_id)

    def shows_others(self, tool_name: str, full: str, observer_id: str) -> bool:
        """Return True if another observer's latest list has a definition."""
        shown = self._latest_pairs[tool_name, full]
        own = self._latest.get(observer_id)
        if own is not None and self._latest_of[own.catalogue] == 1:
            shown -= self._catalogues[own.catalogue].lists(tool_name, full)
        return shown > 0

    def offers(self, tool_name: str) -> list[str]:
        """Return the full digests of a tool offered to any observer, sorted."""
        return sorted(self._offered.get(tool_name, ()))

    def names_offered_before(self) -> set[str]:
        """Return the names that were offered at the last ``forget_changes``."""
        names = set(self._offered)
        touched: dict[str, bool] = {}
        for (name, _), was in self._offered_before.items():
            touched[name] = touched.get(name, False) or was
        for name, was in touched.items():
            if was or any((name, full) not in self._offered_before for full in self._offered.get(name, ())):
                names.add(name)
            else:
                names.discard(name)
        return names

    def changes(self) -> Iterator[tuple[tuple[str, str], bool]]:
        """Yield name and full digest of what is offered since ``forget_changes`` (true) or no longer is (false)."""
        for (name, full), was in self._offered_before.items():
            is_offered = full in self._offered.get(name, ())
            if was != is_offered:
                yield (name, full), is_offered

    def forget_changes(self) -> None:
        """Reset the record of changes."""
        self._offered_before = {}

    def _move_latest(self, observer_id: str, known: Seen | None, latest: Seen | None) -> None:
        if latest is None:
            self._latest.pop(observer_id, None)
        else:
            self._latest[observer_id] = latest
        was = None if known is None else known.catalogue
        now = None if latest is None else latest.catalogue
        if was == now:
            return
        if now is not None:
            self._latest_of[now] += 1
            if self._latest_of[now] == 1:
                self._latest_pairs.update(self._catalogues[now].definitions())
        if was is not None:
            take_one(self._latest_of, was)
            if was not in self._latest_of:
                for pair in self._catalogues[was].definitions():
                    take_one(self._latest_pairs, pair)

    def _refresh_force(self, observer_id: str) -> None:
        was, latest = self._forced.pop(observer_id, None), self._latest.get(observer_id)
        if latest is not None and self.is_in_force(latest):
            self._forced[observer_id] = latest.catalogue
            self._forced_of[latest.catalogue] += 1
        if was is not None:
            take_one(self._forced_of, was)

    def _move_view(self, observer_id: str, was: FleetView, view: FleetView) -> None:
        self._views[observer_id] = view
        if view:
            self._viewers[view] += 1
            if self._viewers[view] == 1:
                for name, full in self._pairs(view):
                    self._remember(name, full)
                    self._offered.setdefault(name, Counter())[full] += 1
        else:
            del self._views[observer_id]
        if was:
            take_one(self._viewers, was)
            if was not in self._viewers:
                for name, full in self._pairs(was):
                    self._remember(name, full)
                    take_one(self._offered[name], full)
                    drop_empty(self._offered, name)

    def _remember(self, name: str, full: str) -> None:
        self._offered_before.setdefault((name, full), full in self._offered.get(name, ()))

    def _pairs(self, view: FleetView) -> list[tuple[str, str]]:
        known: dict[str, str | None] = {}
        for digest in reversed(view):
            known.update(self._catalogues[digest].tools)
        return [(name, full) for name, full in known.items() if full is not None]


def _view_of(timeline: Timeline) -> FleetView:
    """Return the catalogues that make up what an observer is offered: back to the last complete one."""
    view: dict[str, None] = {}
    for seen in timeline.newest_first():
        view[seen.catalogue] = None
        if seen.completeness == "complete" or len(view) >= DEFAULT_LIMITS.lists_merged_max:
            break
    return tuple(view)


class FormerTools:
    """The last definitions of names that no kept list contains.

    Observations are folded away to bound the state. A tool that reappears much later must still be compared with its
    last definition, so the registry keeps one definition of each such name: as a fact, so that it survives a restart,
    and within a bound, dropping the earliest first.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, FormerTool] = {}
        self._uses: Counter[tuple[bool, str]] = Counter()
        self._size = 0

    def __contains__(self, tool_name: str) -> bool:
        return tool_name in self._by_name

    def __iter__(self) -> Iterator[FormerTool]:
        return iter(self._by_name.values())

    def get(self, tool_name: str) -> FormerTool | None:
        return self._by_name.get(tool_name)

    def uses(self, place: tuple[bool, str]) -> bool:
        return place in self._uses

    def keep(self, tool: FormerTool) -> None:
        self.drop(tool.tool_name)
        self._by_name[tool.tool_name] = tool
        self._uses[tool.place] += 1
        self._size += tool.size

    def drop(self, tool_name: str) -> None:
        tool = self._by_name.pop(tool_name, None)
        if tool is not None:
            self._size -= tool.size
            self._uses[tool.place] -= 1
            if not self._uses[tool.place]:
                del self._uses[tool.place]

    def surplus(self, tools_max: int, bytes_max: int) -> Iterator[FormerTool]:
        """Yield what exceeds a bound, earliest first, for the caller to drop."""
        count, size = len(self._by_name), self._size
        if count <= tools_max and size <= bytes_max:
            return
        for tool in sorted(self._by_name.values(), key=lambda one: (one.time_us, one.tool_name)):
            if count <= tools_max and size <= bytes_max:
                return
            count, size = count - 1, size - tool.size
            yield tool
