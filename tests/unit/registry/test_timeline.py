"""Timelines: the as-of contract, and folding."""

from __future__ import annotations

from assay_stream.model.fields import Completeness
from assay_stream.registry.timeline import Timeline
from tests.support.facts import seen


def a_timeline(*entries: tuple[int, str]) -> Timeline:
    """A timeline of (time, catalogue), with offsets in the order given."""
    timeline = Timeline()
    for offset, (time_us, catalogue) in enumerate(entries):
        timeline.add(seen("alice", time_us, catalogue, offset=offset))
    return timeline


def catalogue_at(timeline: Timeline, time_us: int) -> str | None:
    """The catalogue in force at a time."""
    found = timeline.as_of(time_us)
    return found.catalogue if found else None


def test_nothing_is_in_force_before_the_first_observation() -> None:
    """As of a time before all observations there is no answer, nor in an empty timeline."""
    assert Timeline().as_of(10) is None
    assert a_timeline((5, "one")).as_of(4) is None


def test_an_observation_is_in_force_at_its_very_time() -> None:
    """The as-of bound is inclusive, and the latest observation lasts for ever."""
    timeline = a_timeline((5, "one"), (9, "two"))
    assert [catalogue_at(timeline, time) for time in (5, 8, 9, 10**18)] == ["one", "one", "two", "two"]


def test_of_two_at_the_same_time_the_later_in_the_log_wins() -> None:
    """Ties in time go to the higher partition and offset."""
    assert catalogue_at(a_timeline((5, "one"), (5, "two")), 5) == "two"
    timeline = Timeline()
    timeline.add(seen("alice", 5, "right", offset=0, partition=1))
    timeline.add(seen("alice", 5, "left", offset=9, partition=0))
    assert catalogue_at(timeline, 5) == "right"


def test_arrival_order_does_not_matter() -> None:
    """A late observation takes its place by event time."""
    timeline = a_timeline((9, "two"), (5, "one"))
    assert [entry.catalogue for entry in timeline] == ["one", "two"]


def test_adding_again_changes_nothing() -> None:
    """An observation that is known already is not added, last or not."""
    timeline = a_timeline((5, "one"), (9, "two"))
    timeline.add(seen("alice", 9, "two", offset=1))
    timeline.add(seen("alice", 5, "one", offset=0))
    assert len(timeline) == 2


def test_an_observation_can_be_taken_away() -> None:
    """Removal goes by place in the log, and says what it took, or that there was none."""
    timeline = a_timeline((5, "one"), (9, "two"))
    first, second = (entry.origin for entry in timeline)
    taken = timeline.remove(first)
    assert taken is not None
    assert taken.catalogue == "one"
    assert timeline.remove(first) is None
    assert timeline.remove(second._replace(topic="another")) is None
    assert len(timeline) == 1


def test_what_precedes_a_position_leaves_the_position_out() -> None:
    """Before a position stand the strictly earlier ones, oldest first."""
    timeline = a_timeline((5, "one"), (5, "two"), (9, "three"))
    entries = list(timeline)
    assert timeline.before(entries[1].position) == entries[:1]
    assert timeline.before((9, entries[2].origin._replace(offset=99))) == entries


def test_nothing_is_folded_within_the_limit() -> None:
    """At the limit, or below, there is nothing too many."""
    assert a_timeline((1, "one"), (2, "one"), (3, "one")).one_too_many(3) is None


def test_a_repeat_between_equals_is_folded_first() -> None:
    """An observation between two of the same catalogue goes, and no history is lost with it."""
    timeline = a_timeline((1, "one"), (2, "two"), (3, "two"), (4, "two"))
    surplus = timeline.one_too_many(3)
    assert surplus is not None
    assert (surplus[0].time_us, surplus[1]) == (3, False)


def test_without_a_repeat_the_oldest_goes() -> None:
    """Where every observation says something, the oldest goes, and with it history."""
    surplus = a_timeline((1, "one"), (2, "two"), (3, "one")).one_too_many(2)
    assert surplus is not None
    assert (surplus[0].time_us, surplus[1]) == (1, True)


def test_equal_prompts_are_folded_before_other_ones_and_tools_last() -> None:
    """No call is bound to prompts: what they were goes before an answer on a tool does."""
    timeline = Timeline()
    for offset, prompts in enumerate((None, "p", None, None, None)):
        timeline.add(seen("alice", offset, "one", offset=offset, prompts=prompts))
    taken = []
    for entries_max in (4, 3, 2):
        surplus = timeline.one_too_many(entries_max)
        assert surplus is not None
        taken.append((surplus[0].time_us, surplus[1]))
        timeline.remove(surplus[0].origin)
    assert taken == [(3, False), (1, False), (2, False)]


def test_observations_are_walked_back_from_a_position() -> None:
    """Newest first, the position itself left out."""
    timeline = a_timeline((9, "two"), (5, "one"), (12, "three"))
    newest = timeline.as_of(12)
    assert newest is not None
    assert [entry.time_us for entry in timeline.back_from(newest.position)] == [9, 5]


def test_a_partial_list_is_no_repeat_of_a_complete_one() -> None:
    """Completeness is part of what was seen."""
    timeline = Timeline()
    stated: list[Completeness] = ["complete", "partial", "complete"]
    for offset, completeness in enumerate(stated):
        timeline.add(seen("alice", offset, "one", offset=offset, completeness=completeness))
    surplus = timeline.one_too_many(2)
    assert surplus is not None
    assert surplus[1]
