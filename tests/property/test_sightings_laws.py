"""Laws of sightings: a timeline over the table answers what a plain list of them would."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.bindings import sightings
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.sightings import Sightings
from assay_stream.bindings.timeline import AFTER_ALL_US, BEFORE_ALL_US, Timeline, latest_of_equal
from assay_stream.model.facts import Seen
from tests.support.facts import seen

OBSERVERS = ("alice", "bob")
_ZEROS = f"{0:08}-0000-0000-0000-{0:012}"
UUIDS = (_ZEROS, f"{_ZEROS[:-1]}1", f"01{_ZEROS[2:]}", "0191d3a7-6d0c-7b3e-9f5a-4c1be27f8d60")
TEXTS = ("s", "é\n", UUIDS[3].upper(), UUIDS[3].replace("-", "_"), f" {UUIDS[3][1:]}")
NAMES = (*UUIDS, *TEXTS)
USUAL = st.sampled_from([True] * 7 + [False])
Steps = list[tuple[bool, Seen]]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index so small that a short history splits and merges its parts, and most hashes collide."""
    monkeypatch.setattr(sightings, "_PART_MAX", 4)
    monkeypatch.setattr(sightings, "_hash", lambda packed: packed.count(0) // 4)


@st.composite
def observations(draw: st.DrawFn, names: tuple[str, ...], offset: int) -> Seen:
    """One of few observers, times, places and lists, mostly of the usual ones, so that repeats and ties are common."""
    return seen(
        OBSERVERS[0 if draw(USUAL) else 1],
        draw(st.integers(0, 9)),
        "one" if draw(USUAL) else "two",
        offset=offset,
        snapshot_id=draw(st.sampled_from(names)),
        completeness="complete" if draw(USUAL) else "partial",
        partition=0 if draw(USUAL) else 1,
        attributed=not draw(USUAL),
    )


@st.composite
def histories(draw: st.DrawFn) -> Steps:
    names, offsets = draw(st.sampled_from((UUIDS, NAMES))), draw(st.permutations(range(draw(st.integers(1, 30)))))
    come = [draw(observations(names, offset)) for offset in offsets]
    steps = [(True, fact) for fact in come]
    for place in draw(st.lists(st.integers(0, len(come) - 1), max_size=12)):
        steps.insert(draw(st.integers(place + 1, len(steps))), (draw(st.booleans()), come[place]))
    return steps


def states(steps: Steps) -> Iterator[tuple[ServerBindings, list[Seen]]]:
    server, plain = ServerBindings(), dict[Seen, None]()
    for comes, fact in steps:
        if comes:
            server.see(fact)
            plain[fact] = None
        else:
            server.unsee(fact.observer_id, fact.origin)
            plain.pop(fact, None)
        yield server, sorted(plain, key=lambda each: each.position)


@given(histories())
def test_a_timeline_answers_what_a_scan_does(steps: Steps) -> None:
    """Whatever comes, goes and comes again, in any order."""
    for server, everything in states(steps):
        assert {observer for observer, timeline in server.observers.items() if timeline} == {
            each.observer_id for each in everything
        }
        for observer_id, timeline in server.observers.items():
            plain = [each for each in everything if each.observer_id == observer_id]
            assert list(timeline) == plain
            assert list(timeline.newest_first()) == plain[::-1]
            assert timeline.latest == (plain[-1] if plain else None)
            for time_us in range(-1, 11):
                until = [each for each in plain if each.time_us <= time_us]
                ends_us = [each.time_us for each in plain if each.time_us > time_us]
                assert timeline.as_of(time_us) == (until[-1] if until else None)
                assert timeline.span_at(time_us) == (
                    until[-1].time_us if until else BEFORE_ALL_US,
                    ends_us[0] if ends_us else AFTER_ALL_US,
                )
                assert list(timeline.at(time_us)) == [each for each in plain if each.time_us == time_us]
            for place, entry in enumerate(plain):
                assert timeline.before(entry.position) == plain[:place]
                assert list(timeline.back_from(entry.position)) == plain[:place][::-1]
                force = [(one, other.position) for one, other in pairwise(plain[place:])]
                assert list(timeline.in_force_since(entry.position)) == [*force, (plain[-1], None)]
                assert timeline.first_after(entry.position) == next(iter(plain[place + 1 :]), None)


@given(histories())
def test_an_id_names_what_a_scan_finds(steps: Steps) -> None:
    """Of the caller's own observer, else the one list that others published; whatever hashes collide."""
    for server, everything in states(steps):
        for name in (*NAMES, "never seen"):
            named = [each for each in everything if each.snapshot_id == name]
            for observer_id in (*OBSERVERS, "carol"):
                own = latest_of_equal(each for each in named if each.observer_id == observer_id)
                others = latest_of_equal(named)
                assert server.named_by(name, observer_id) == own
                assert server.named(name, observer_id) == (own or (others if len(others) == 1 else []))


@given(histories(), histories())
def test_a_server_that_is_dropped_leaves_its_rows_to_others(steps: Steps, later: Steps) -> None:
    table = Sightings()
    dropped, server, alone = (ServerBindings(table=table), ServerBindings(table=table), ServerBindings())
    for _, fact in steps:
        dropped.see(fact)
    dropped.clear()
    for comes, fact in later:
        for each in (server, alone):
            if comes:
                each.see(fact)
            else:
                each.unsee(fact.observer_id, fact.origin)
    assert {name: list(found) for name, found in server.observers.items()} == {
        name: list(found) for name, found in alone.observers.items()
    }
    assert len(table.kinds) <= len(steps) + len(later)


@given(histories(), st.integers(1, 20))
def test_only_a_repeat_is_folded_without_loss(steps: Steps, entries_max: int) -> None:
    """What goes first stands between equal lists; where none does, the oldest goes, and history with it."""
    timeline = Timeline()
    for _, fact in steps:
        if fact.observer_id == OBSERVERS[0]:
            timeline.add(fact)
    plain, surplus = list(timeline), timeline.one_too_many(entries_max)
    repeats = [
        seen
        for older, seen, newer in zip(plain, plain[1:], plain[2:], strict=False)
        if len({(each.catalogue, each.completeness) for each in (older, seen, newer)}) == 1
        and older.attributed == seen.attributed
    ]
    if len(plain) <= entries_max:
        assert surplus is None
    else:
        assert surplus == ((repeats[0], False) if repeats else (plain[0], True))
