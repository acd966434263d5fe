"""Laws of packed observations: they are what plain ones are, and a state of them answers as one of plain ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.model.facts import Seen
from assay_stream.registry import snapshot_index
from assay_stream.registry.as_of import bind, span_of
from assay_stream.registry.server import ServerBindings
from assay_stream.registry.sightings import PackedSightings
from assay_stream.registry.timeline import Timeline
from tests.support.facts import a_catalogue, a_fingerprint, announcement, rejection, seen
from tests.support.plain_sightings import plain_lists, plain_timeline

OBSERVERS = ("alice", "bob")
_ZEROS = f"{0:08}-0000-0000-0000-{0:012}"
UUIDS = (_ZEROS, f"{_ZEROS[:-1]}1", f"01{_ZEROS[2:]}", "0191d3a7-6d0c-7b3e-9f5a-4c1be27f8d60")
TEXTS = ("s", "é\n", UUIDS[3].upper(), UUIDS[3].replace("-", "_"), f" {UUIDS[3][1:]}")
NAMES = (*UUIDS, *TEXTS)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index so small that a short history splits and merges its parts, and most hashes collide."""
    monkeypatch.setattr(snapshot_index, "_PART_MAX", 4)
    monkeypatch.setattr(snapshot_index, "_hash", lambda name: name.count("0"))


USUAL = st.sampled_from([True] * 7 + [False])


@st.composite
def observations(draw: st.DrawFn, names: tuple[str, ...]) -> Seen:
    """One of few observers, times, places and lists, mostly of the usual ones, so that runs and ties are common."""
    return seen(
        OBSERVERS[0 if draw(USUAL) else 1],
        draw(st.integers(0, 9)),
        "one" if draw(USUAL) else "two",
        offset=draw(st.integers(0, 30)),
        snapshot_id=draw(st.sampled_from(names)),
        completeness="complete" if draw(USUAL) else "partial",
        partition=0 if draw(USUAL) else 1,
        attributed=not draw(USUAL),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[bool, Seen]]:
    """Observations that come, and some of those that go again."""
    come = draw(st.lists(observations(draw(st.sampled_from((UUIDS, NAMES)))), min_size=1, max_size=30))
    steps = [(True, fact) for fact in come]
    for place in draw(st.lists(st.integers(0, len(come) - 1), max_size=12)):
        steps.insert(draw(st.integers(place + 1, len(steps))), (False, come[place]))
    return steps


STEPS = histories()


def both(steps: list[tuple[bool, Seen]]) -> Iterator[tuple[Timeline, Timeline]]:
    """The packed and the plain timeline after each step: an observation comes, or that of an origin goes."""
    packed, plain = Timeline(PackedSightings()), plain_timeline()
    for comes, fact in steps:
        if comes:
            assert packed.add(fact) == plain.add(fact)
        else:
            assert packed.remove(fact.origin) == plain.remove(fact.origin)
        yield packed, plain


@given(STEPS)
def test_a_packed_timeline_is_the_plain_one(steps: list[tuple[bool, Seen]]) -> None:
    """Whatever comes and goes, in any order, every question has the same answer."""
    for packed, plain in both(steps):
        assert list(packed) == list(plain)
        assert len(packed) == len(plain)
        assert list(packed.newest_first()) == list(plain.newest_first())
        assert packed.latest == plain.latest
        for name in NAMES:
            assert list(packed.named(name)) == list(plain.named(name))
        for time_us in range(-1, 11):
            assert packed.as_of(time_us) == plain.as_of(time_us)
            assert packed.span_at(time_us) == plain.span_at(time_us)
            assert list(packed.at(time_us)) == list(plain.at(time_us))
    for entry in plain:
        assert list(packed.before(entry.position)) == list(plain.before(entry.position))
        assert list(packed.back_from(entry.position)) == list(plain.back_from(entry.position))
        assert list(packed.in_force_since(entry.position)) == list(plain.in_force_since(entry.position))
        assert packed.first_after(entry.position) == plain.first_after(entry.position)
    for entries_max in range(len(steps)):
        assert packed.one_too_many(entries_max) == plain.one_too_many(entries_max)


@given(STEPS, st.lists(st.tuples(st.integers(0, 9), st.sampled_from([None, *OBSERVERS]), st.booleans()), max_size=3))
def test_calls_are_bound_alike_to_packed_and_to_plain_lists(
    steps: list[tuple[bool, Seen]], ends: list[tuple[int, str | None, bool]]
) -> None:
    """By snapshot id, by observer and by what all saw; and each answer holds for the same time."""
    packed, plain = ServerBindings(), ServerBindings()
    for server in (packed, plain):
        for catalogue in (a_catalogue("one", {"t": "a"}), a_catalogue("two", {"t": "b"})):
            server.list_catalogue(catalogue)
            for full in catalogue.tools.values():
                server.tools[True, str(full)] = a_fingerprint(str(full).removeprefix("full:"))
        with plain_lists() if server is plain else nullcontext():
            for comes, fact in steps:
                if comes:
                    server.see(fact)
                else:
                    server.unsee(fact.observer_id, fact.origin)
        for offset, (time_us, observer_id, told) in enumerate(ends):
            if told and observer_id is not None:
                server.end(announcement(observer_id, time_us, offset=31 + offset))
            else:
                server.end(rejection(time_us, offset=31 + offset, observer_id=observer_id))
    for name in (None, *NAMES, "never seen"):
        for observer_id in (*OBSERVERS, "carol"):
            for time_us in range(-1, 11):
                answers = [
                    bind(server, tool_name="t", observer_id=observer_id, snapshot_id=name, time_us=time_us)
                    for server in (packed, plain)
                ]
                assert answers[0] == answers[1]
                if answers[0].fingerprint is not None:
                    spans = [
                        span_of(server, answers[0], observer_id=observer_id, time_us=time_us)
                        for server in (packed, plain)
                    ]
                    assert spans[0] == spans[1]
