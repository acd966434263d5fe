"""Everything known of one server: the facts about it, and the indexes over them.

References between facts are resolved on access. A dangling one means that the binding topic has lost a fact: an
``IntegrityError``, never a guess.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from typing import Any, NoReturn

from assay_stream.bindings.controls import Controls, check_pins
from assay_stream.bindings.fleet import Fleet, Observations
from assay_stream.bindings.offers import unpack
from assay_stream.bindings.sightings import Row, Sightings, SnapshotIndex, bytes_of_id, row_of, rows_of, shared_part
from assay_stream.bindings.timeline import AFTER_ALL_US, Endings, Timeline, latest_of_equal
from assay_stream.errors import IntegrityError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.control import Checked, ControlFact, PinResult, PinStatus, Signatures
from assay_stream.model.facts import (
    Allowance,
    Announcement,
    Catalogue,
    Fact,
    FormerTool,
    Horizon,
    ItemFact,
    ItemList,
    Rejection,
    RunCut,
    Seen,
    SeenRun,
    ToolFact,
)
from assay_stream.model.fields import Subject
from assay_stream.model.record import Origin, Position
from assay_stream.model.wire import FactKey, origin_of_key
from assay_stream.schemes.fingerprint import Fingerprint


@dataclass(slots=True, eq=False)
class AnswerBound:
    """The bound that the answers about many servers share; each answer is kept until its server changes.

    An answer follows from the state alone, so caching never changes a result.

    Args:
        answers_max: how many are kept. When there is no room for another, all are dropped.
    """

    answers_max: int = DEFAULT_LIMITS.answers_max
    count: int = 0
    of_servers: dict[int, Answers] = field(default_factory=dict)
    """The non-empty ones, by identity."""


class Answers(dict[tuple[Any, ...], Any]):
    __slots__ = ("_bound",)

    def __init__(self, bound: AnswerBound) -> None:
        super().__init__()
        self._bound = bound

    def keep(self, question: tuple[Any, ...], answer: object) -> None:
        if question not in self:
            if self._bound.count >= self._bound.answers_max:
                for answers in list(self._bound.of_servers.values()):
                    answers.clear()
            self._bound.count += 1
            self._bound.of_servers[id(self)] = self
        self[question] = answer

    def clear(self) -> None:
        if self:
            self._bound.count -= len(self)
            del self._bound.of_servers[id(self)]
            super().clear()


_SMALL_MAX = 4
"""Observations over which no index is kept: made-up servers have few, and an index takes more than all else."""
_NAMED_KEPT_MAX = 4
"""Different lists with one snapshot id that are cached as an answer: some proxies give all their lists the same."""


@dataclass(slots=True, eq=False)
class ServerBindings:
    """Everything known of one server.

    Args:
        answers: those about it, with the bound that many servers share.
        table: holds the observations of many servers.
    """

    answers: Answers = field(default_factory=lambda: Answers(AnswerBound()))
    table: Sightings = field(default_factory=Sightings)
    tools: dict[tuple[bool, str], Fingerprint] = field(default_factory=dict)
    packed: dict[tuple[bool, str], str] = field(default_factory=dict)
    """The definitions themselves: a registry keeps and compares them, a join does not."""
    items: dict[tuple[Subject, str], str | None] = field(default_factory=dict)
    """Prompts and resource templates, packed, by full digest; kept where definitions are."""
    item_lists: dict[tuple[Subject, str], ItemList] = field(default_factory=dict)
    catalogues: dict[str, Catalogue] = field(default_factory=dict)
    observers: dict[str, Timeline] = field(default_factory=dict)
    endings: Endings = field(default_factory=Endings)
    formers: dict[str, FormerTool] = field(default_factory=dict)
    """By name, the last definition of each tool that no kept list names, in case it reappears."""
    controls: Controls = field(default_factory=Controls)
    allowance: Allowance | None = None
    """What the analysis of its lists may still cost, if any was charged for."""
    definitions_bytes: int = 0
    """Length of the kept definitions, packed."""
    _horizons: list[int] = field(default_factory=list)
    """For each observer with folded history, the time before which it is gone, sorted."""
    _snapshots: SnapshotIndex | None = None
    _fleet: Fleet | None = None
    _observations: Observations | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no fact of it that a join uses is left."""
        return not (self.tools or self.catalogues or self.controls or any(self.endings) or any(self.observers.values()))

    @property
    def observations(self) -> Observations:
        """The index over its observations, built on first use."""
        if self._observations is None:
            self._observations = Observations(self.table, self._rows())
        return self._observations

    def _rows(self) -> Iterator[int]:
        return chain.from_iterable(timeline.numbers for timeline in self.observers.values())

    @property
    def fleet(self) -> Fleet:
        """The index over what it offers, built on first use."""
        if self._fleet is None:
            is_in_force = partial(self.in_force, time_us=AFTER_ALL_US)
            self._fleet = Fleet(self.observers, self.catalogues, self.item_lists, is_in_force)
        return self._fleet

    def drop_small_indexes(self) -> None:
        """Drop the indexes over so few observations that rebuilding costs less than keeping them."""
        if len(self.observers) <= _SMALL_MAX and sum(map(len, self.observers.values())) <= _SMALL_MAX:
            self._fleet = self._observations = None

    @property
    def rejections(self) -> list[Rejection]:
        return sorted((end for end in self.endings if isinstance(end, Rejection)), key=attrgetter("position"))

    def is_folded_at(self, time_us: int) -> bool:
        """Return True if any observer's observations at a time may have been folded away."""
        return self.horizon_us is not None and time_us < self.horizon_us

    @property
    def horizon_us(self) -> int | None:
        """The latest horizon of any observer: before it some observer's history may be gone."""
        return self._horizons[-1] if self._horizons else None

    def apply(self, fact: Fact, *, keep_definitions: bool) -> None:
        self.answers.clear()
        match fact:
            case ToolFact():
                place = (fact.server_scoped, fact.full)
                self.tools[place] = fact.fingerprint
                self._keep_definition(place, fact.packed if keep_definitions else None)
            case Catalogue():
                self.list_catalogue(fact)
            case Seen() | SeenRun() | RunCut():
                self._apply_list(fact)
                self.endings.without_list.discard(fact.observer_id)
            case Rejection() | Announcement():
                self.endings.add(fact, self.observers)
                if self._fleet is not None and isinstance(fact, Rejection):
                    self._fleet.force_changed(fact.observer_id)
            case Horizon():
                self.truncate_history(fact.observer_id, fact.time_us)
            case ItemFact():
                self._keep_item((fact.subject, fact.full), fact.packed)
            case ItemList():
                self._list_items(fact)
            case Allowance():
                self.allowance = fact
            case FormerTool():
                self.formers[fact.tool_name] = fact
            case ControlFact() | Signatures() | Checked():
                self.controls.apply(fact)

    def forget(self, key: FactKey) -> None:
        """Undo ``apply``, as if the fact with this key had never been read."""
        self.answers.clear()
        kind, _, *place = key
        match kind:
            case "seen" | "seen_run" | "run_cut":
                self._forget_list(kind, str(place[0]), origin_of_key(place[1:]))
            case "rejection" | "announcement":
                observer_id = self.endings.remove(origin_of_key(place[-3:]))
                if self._fleet is not None:
                    self._fleet.force_changed(observer_id)
            case "catalogue":
                self._drop_catalogue(str(place[0]))
            case "tool":
                tool = bool(place[0]), str(place[1])
                self.tools.pop(tool, None)
                self._keep_definition(tool, None)
            case "item":
                item = Subject(str(place[0])), str(place[1])
                self._keep_item(item, None)
                del self.items[item]
            case "item_list":
                self._drop_item_list((Subject(str(place[0])), str(place[1])))
            case "former_tool":
                self.formers.pop(str(place[0]), None)
            case "allowance":
                self.allowance = None
            case "horizon":
                self.truncate_history(str(place[0]), None)
            case _:
                self.controls.forget(key)

    def _apply_list(self, fact: Seen | SeenRun | RunCut) -> None:
        timeline, key = self.timeline(fact.observer_id), fact.origin
        gone = {key.offset + further for further in timeline.cuts.get(key, ())}
        match fact:
            case SeenRun():
                # Its rows are all that there is of it, but for those that its cut names.
                shared = shared_part(fact)
                rows = [row for row in rows_of(fact) if row[1] not in gone]
                here = timeline.in_run(key) if timeline.table.has(shared) else ()
                offsets = {timeline.table.offsets[number] for number in here}
                self._remove_observations(fact.observer_id, key, offsets - {offset for _, offset, _ in rows})
                self.add_observations(shared, rows)
            case RunCut():
                timeline.put_cut(key, fact.gone)
                cut = {key.offset + further for further in fact.gone}
                self._remove_observations(fact.observer_id, key, cut - gone)
            case _ if not timeline.is_cut(key):
                self.add_observation(fact)

    def _forget_list(self, kind: str, observer_id: str, origin: Origin) -> None:
        """Forget a fact of one of the three kinds; a single one absorbed by a run is already forgotten."""
        timeline = self.observers.get(observer_id)
        if timeline is None:
            return
        if kind == SeenRun.fact_kind:
            offsets = {timeline.table.offsets[number] for number in timeline.in_run(origin)}
            self._remove_observations(observer_id, origin, offsets)
        elif kind == RunCut.fact_kind:
            # Its run is written again, or taken back, with it.
            timeline.put_cut(origin, ())
        elif (number := timeline.row_at(origin)) is not None and timeline.table.run_of(number) is None:
            self.remove_observation(observer_id, origin)

    def _remove_observations(self, observer_id: str, key: Origin, offsets: set[int]) -> None:
        for offset in sorted(offsets):
            self.remove_observation(observer_id, key._replace(offset=offset))

    def truncate_history(self, observer_id: str, time_us: int | None) -> None:
        """Record that observations of an observer before a time were folded away; ``None`` takes that back."""
        timeline = self.timeline(observer_id)
        if timeline.horizon_us is not None:
            del self._horizons[bisect_left(self._horizons, timeline.horizon_us)]
        if time_us is not None:
            insort(self._horizons, time_us)
        timeline.horizon_us = time_us
        self._drop_if_bare(observer_id)

    def _keep_definition(self, place: tuple[bool, str], packed: str | None) -> None:
        self.definitions_bytes += len(packed or "") - len(self.packed.pop(place, ""))
        if packed is not None:
            self.packed[place] = packed

    def _keep_item(self, place: tuple[Subject, str], packed: str | None) -> None:
        self.definitions_bytes += len(packed or "") - len(self.items.get(place) or "")
        self.items[place] = packed

    def add_observation(self, seen: Seen) -> None:
        self.add_observations(shared_part(seen), [row_of(seen)])

    def add_observations(self, shared: Seen, rows: list[Row]) -> None:
        """Add those observations of one kind that are not here yet."""
        timeline = self.timeline(shared.observer_id)
        added = timeline.add(shared, rows) if rows else ()
        if not added:
            return
        self.answers.clear()
        if self._snapshots is not None:
            self._snapshots.add(added)
        if self._observations is not None:
            for number in added:
                self._observations.add(number)
        if self._fleet is not None:
            self._fleet.refresh(shared.observer_id)

    def remove_observation(self, observer_id: str, origin: Origin) -> None:
        timeline = self.observers.get(observer_id)
        if timeline is None or (number := timeline.row_at(origin)) is None:
            return
        self.answers.clear()
        if self._snapshots is not None:
            self._snapshots.remove(number)
        if self._observations is not None:
            self._observations.remove(number)
        timeline.remove(number)
        if self._fleet is not None:
            self._fleet.refresh(observer_id)
        self._drop_if_bare(observer_id)

    def clear(self) -> None:
        """Release its rows of the table and its share of cached answers."""
        self.answers.clear()
        for timeline in self.observers.values():
            timeline.clear()
        self.table.observers -= len(self.observers)
        self.observers.clear()

    def _drop_if_bare(self, observer_id: str) -> None:
        """Drop an observer that no fact names any more: made-up ones must not leave their names behind."""
        timeline = self.observers[observer_id]
        if not timeline and not any(timeline.keys("", observer_id)):
            del self.observers[observer_id]
            self.table.observers -= 1

    def named(self, snapshot_id: str, observer_id: str) -> list[Seen]:
        """Return the observations that a snapshot id names for a caller, in order; of equal lists the latest one.

        They are those of the caller's own observer. An id that it did not publish names the list that others published
        under it, unless their lists differ: then it names nothing.
        """
        own, question = self.named_by(snapshot_id, observer_id), ("named", snapshot_id)
        if own:
            return own
        known: list[Seen] | None = self.answers.get(question)
        if known is not None:
            return known
        found = self._named_among(self._candidates(snapshot_id), snapshot_id)
        one = found if len(found) == 1 else []
        if found:  # Made-up ids must not fill the memory.
            self.answers.keep(question, one)
        return one

    def named_by(self, snapshot_id: str, observer_id: str) -> list[Seen]:
        """Return the observations that an observer published under a snapshot id, as ``named``."""
        own, question = self.observers.get(observer_id), ("named_by", (snapshot_id, observer_id))
        known: list[Seen] | None = self.answers.get(question)
        if own is None or known is not None:
            return known or []
        numbers: Sequence[int] = list(islice(self._candidates(snapshot_id), len(own) + 1))
        if len(numbers) > len(own):
            # Very many lists share the id, so those of the observer are fewer.
            numbers = own.numbers
        else:
            numbers = [number for number in numbers if self.table.shared(number).observer_id == observer_id]
        found = self._named_among(numbers, snapshot_id)
        if 1 <= len(found) <= _NAMED_KEPT_MAX:  # Neither made-up ids nor very many lists must fill the memory.
            self.answers.keep(question, found)
        return found

    def _candidates(self, snapshot_id: str) -> Iterator[int]:
        """Yield the rows that may have a snapshot id. Their index is built for the first call that names any."""
        if self._snapshots is None:
            self._snapshots = SnapshotIndex(self.table, self._rows())
        return self._snapshots.candidates(snapshot_id)

    def _named_among(self, numbers: Iterable[int], snapshot_id: str) -> list[Seen]:
        packed = bytes_of_id(snapshot_id)
        alike = (self.table.seen(number) for number in numbers if self.table.id_bytes(number) == packed)
        return latest_of_equal(seen for seen in alike if seen.snapshot_id == snapshot_id)

    def timeline(self, observer_id: str) -> Timeline:
        found = self.observers.get(observer_id)
        if found is None:
            found = self.observers[observer_id] = Timeline(self.table)
            self.table.observers += 1
        return found

    def list_catalogue(self, catalogue: Catalogue) -> None:
        known = self.catalogues.get(catalogue.digest)
        if known is not None and known.nameless != catalogue.nameless:
            self._fleet = None  # An earlier version had written it without these.
        elif self._fleet is not None and known is None:
            self._fleet.add_catalogue(catalogue)
        self.catalogues[catalogue.digest] = catalogue

    def _drop_catalogue(self, digest: str) -> None:
        catalogue = self.catalogues.pop(digest, None)
        if self._fleet is not None and catalogue is not None:
            self._fleet.remove_catalogue(catalogue)

    def _list_items(self, item_list: ItemList) -> None:
        place = (item_list.subject, item_list.digest)
        if self._fleet is not None and place not in self.item_lists:
            self._fleet.add_item_list(item_list)
        self.item_lists[place] = item_list

    def _drop_item_list(self, place: tuple[Subject, str]) -> None:
        item_list = self.item_lists.pop(place, None)
        if self._fleet is not None and item_list is not None:
            self._fleet.remove_item_list(item_list)

    def knows(self, tool_name: str) -> bool:
        """Return True if any observer was ever shown a definition under a name, within the kept history."""
        return tool_name in self.fleet.known or tool_name in self.formers

    def catalogue_of(self, seen: Seen) -> Catalogue:
        found = self.catalogues.get(seen.catalogue)
        return _lost("catalogue", seen.catalogue) if found is None else found

    def item_list(self, subject: Subject, digest: str) -> ItemList:
        found = self.item_lists.get((subject, digest))
        return _lost("item_list", digest) if found is None else found

    def fingerprint_of(self, catalogue: Catalogue, full: str) -> Fingerprint:
        found = self.tools.get((catalogue.server_scoped, full))
        return _lost("tool", full) if found is None else found

    def definition_of(self, full: str) -> dict[str, Any]:
        packed = self.packed.get((True, full)) or self.packed.get((False, full))
        return _lost("definition", full) if packed is None else unpack(packed)

    def fingerprint(self, full: str) -> Fingerprint | None:
        """Return the fingerprint of a definition, whether it is scoped to its server or not; ``None`` if unknown."""
        return self.tools.get((True, full)) or self.tools.get((False, full))

    def is_approved(self, name: str, full: str, found: Fingerprint | None = None) -> bool:
        """Return True if a definition matches the current pins of its tool, and no pin contradicts it.

        Pass the fingerprint of a definition that is not known yet.
        """
        if name not in self.controls.pins:
            return False
        return self.pin_now(name, found or self.fingerprint(full)).status is PinStatus.MATCH

    def pin_now(self, name: str, found: Fingerprint | None) -> PinResult:
        """Check a definition against the current pins and policy of its tool."""
        pins, policy = self.controls.pins_as_of(name, AFTER_ALL_US), self.controls.policy_as_of(name, AFTER_ALL_US)
        return check_pins(pins, found, policy=policy)

    def history(self, observer_id: str, position: Position) -> Iterator[Seen]:
        own = self.observers.get(observer_id)
        return iter(()) if own is None else own.back_from(position)

    def concerned(self, rejection: Rejection) -> Iterable[Timeline]:
        if rejection.observer_id is None:
            return self.observers.values()
        own = self.observers.get(rejection.observer_id)
        return () if own is None else (own,)

    def in_force(self, seen: Seen, time_us: int) -> bool:
        """Return True if no refused record had ended the force of an observation by some time.

        An announced change does not count: enforcement and pins use the definition last shown.
        """
        return not self.endings.rejected(seen, time_us)


def _lost(kind: str, digest: str) -> NoReturn:
    raise IntegrityError(
        "lost_fact",
        f"the binding topic names the {kind} {digest} but no longer holds it: "
        "rebuild the binding topic from the snapshots",
    )
