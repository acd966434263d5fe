"""The history that nothing is folded away from."""

from __future__ import annotations

from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.model.record import Origin, Role
from assay_stream.replay.log_cut import History, history_of, in_log_order, unbounded
from tests.support.events import SERVER, TOOL, Story


def test_nothing_is_folded_away() -> None:
    story = Story()
    for number in range(5):
        story.lists({**TOOL, "description": str(number)})
    kept = History(limits=Limits(timeline_entries_max=2))
    whole = History()
    for record in story.records:
        kept.take(record)
        whole.take(record)
    assert len(kept.view.servers[SERVER].observers["proxy-1"]) == 2
    assert len(whole.view.servers[SERVER].observers["proxy-1"]) == 5
    assert unbounded().tools_max == DEFAULT_LIMITS.tools_max


def test_the_order_in_which_records_are_given_does_not_matter() -> None:
    story = Story().lists(TOOL).lists().calls().lists(TOOL)
    one = history_of(lambda: story.records)
    other = history_of(lambda: [*reversed(story.records), *story.records])
    seen = [list(h.view.servers[SERVER].observers["proxy-1"]) for h in (one, other)]
    assert seen[0] == seen[1]
    assert [entry.origin.offset for entry in seen[0]] == [0, 1, 2]


def test_what_was_there_is_remembered_of_every_topic() -> None:
    story = Story().lists(TOOL).calls().calls()
    assert history_of(lambda: story.records[1:]).ranges == {("calls", 0): (0, 1)}
    assert history_of(lambda: story.records).ranges == {("calls", 0): (0, 1), ("snapshots", 0): (0, 0)}


def test_partitions_are_put_together_by_the_time_of_the_log() -> None:
    """A record that is dated before its predecessor stands right behind it all the same."""
    story = Story().lists(TOOL).lists().calls()
    dated = [
        record._replace(timestamp_ms=time_ms, origin=Origin(topic, 0, offset))
        for record, (topic, offset, time_ms) in zip(story.records, [("a", 0, 5), ("a", 1, 1), ("b", 0, 3)], strict=True)
    ]
    assert [record.origin[:1] for record in in_log_order(dated)] == [("b",), ("a",), ("a",)]
    assert all(record.role is not Role.EVIDENCE for record in dated)
