"""What a coverage report counts, and which gaps it names."""

import orjson
import pytest

from assay_stream.model.record import Role
from assay_stream.readmodel.queries import load
from assay_stream.report.coverage import GRAVE, CoverageCounts
from assay_stream.report.pins import Row
from assay_stream.verify.evidence import Recorded
from tests.support.events import SERVER, TEN_O_CLOCK_MS, TOOL, Story, an_event
from tests.support.readmodel import written

HOUR_US = 3_600_000_000
START_US = TEN_O_CLOCK_MS * 1_000


def covered(story: Story, *, silent_after_us: int = HOUR_US, **options: int) -> dict[tuple[str, str | None], Row]:
    coverage = CoverageCounts(**options)
    for record in story.records:
        if record.role is Role.SNAPSHOTS:
            coverage.take_snapshot(record)
    for output in story.tell().of(Role.EVIDENCE):
        coverage.take_evidence(Recorded("here", output.value or b""))
    return {(row["what"], row["name"]): row for row in coverage.rows(silent_after_us=silent_after_us)}


def test_calls_count_by_the_rule_that_bound_them() -> None:
    story = Story().lists(TOOL).calls(snapshot_id="snapshot-0").calls().calls(observer_id="gateway").calls("ghost")
    row = covered(story)["server", SERVER]
    counts = {name: row[name] for name in ("lists", "calls", "exact", "observer", "server", "unbound", "bound_share")}
    assert counts == {
        "lists": 1, "calls": 4, "exact": 1, "observer": 1, "server": 1, "unbound": 1, "bound_share": 0.75
    }  # fmt: skip
    assert (row["last_list"], row["last_call"]) == ("2026-03-01T10:00:00Z", "2026-03-01T10:00:04Z")


def test_a_gateway_that_shows_calls_only_is_a_gap_of_its_own() -> None:
    rows = covered(Story().lists(TOOL).calls(observer_id="gateway"))
    assert rows["observer", "gateway"]["gaps"] == ["calls_only"]
    assert rows["observer", "proxy-1"]["gaps"] == ["lists_only"]
    assert rows["server", SERVER]["gaps"] == []


def test_a_server_that_nobody_lists_is_named() -> None:
    rows = covered(Story().lists(TOOL).calls(server_id="dark"))
    assert rows["server", "dark"]["gaps"] == ["never_listed", "calls_unlisted"]
    assert rows["server", SERVER]["gaps"] == ["never_called"]
    assert rows["observer", "proxy-1"]["gaps"] == ["calls_unlisted"]


def test_who_was_last_seen_long_before_the_rest_is_silent() -> None:
    """By event times; at the end that was asked for instead, if any."""
    story = Story().lists(TOOL).calls(observer_id="gone").calls().calls()
    silent = covered(story, silent_after_us=2_000_000)
    assert [name for (_, name), row in silent.items() if "silent" in row["gaps"]] == ["gone"]
    assert silent["observer", "gone"]["silent_since"] == "2026-03-01T10:00:01Z"
    later = covered(story, silent_after_us=HOUR_US, until_us=START_US + 2 * HOUR_US)
    assert all("silent" in row["gaps"] for row in later.values())


def test_a_refused_list_counts_as_such() -> None:
    story = Story().raw(Role.SNAPSHOTS, b"junk", headers=(("assay-observer-id", b"proxy-1"),)).calls()
    rows = covered(story)
    assert [rows[key]["refused"] for key in (("server", SERVER), ("observer", "proxy-1"))] == [1, 1]
    assert "never_listed" in rows["server", SERVER]["gaps"]


def test_earlier_lists_count_where_calls_are_narrowed() -> None:
    """Otherwise a server that was listed before would look as if it never was."""
    row = covered(Story().lists(TOOL).calls().calls(), since_us=START_US + 2_000_000)["server", SERVER]
    assert (row["lists"], row["calls"], row["gaps"]) == (1, 1, [])


def test_names_beyond_the_limit_are_counted_together() -> None:
    """An id for each call: the report stays small, and says so."""
    story = Story().lists(TOOL)
    for number in range(20):
        story.calls(observer_id=f"observer-{number}")
    rows = covered(story, names_max=5)
    assert len(rows) == 1 + 5 + 1
    beyond = rows["observer", None]
    assert beyond["calls"] == 16
    assert "names_beyond_limit" in beyond["gaps"]


@pytest.mark.parametrize(
    "value", [b"junk", b"[]", b"{}", b'{"time":7}', orjson.dumps({"time": "2026-03-01T10:00:00Z"})]
)
def test_what_is_no_evidence_of_ours_is_passed_over(value: bytes) -> None:
    coverage = CoverageCounts()
    coverage.take_evidence(Recorded("here", value))
    assert list(coverage.rows(silent_after_us=0)) == []


def test_what_an_observer_dropped_is_a_gap() -> None:
    """Counted for the server and for the observer; a registry applies nothing of it and refuses nothing."""
    loss = {"server_id": SERVER, "observer_id": "proxy-1", "lists": 1, "calls": 40}
    value = an_event(Role.SNAPSHOTS, 9, 1, loss, type="mcp.observer.loss.observed")
    story = Story().lists(TOOL).raw(Role.SNAPSHOTS, value).calls()
    rows = covered(story)
    for place in (("server", SERVER), ("observer", "proxy-1")):
        assert (rows[place]["lost"], rows[place]["refused"]) == (41, 0)
        assert rows[place]["gaps"] == ["observations_lost"]
    assert {"observations_lost"} <= GRAVE
    assert rows["server", SERVER]["bound_share"] == 1
    told = story.tell()
    assert told.of(Role.REJECTED) == []
    assert "finding:observations_lost" in [output.label for output in told.of(Role.FINDINGS)]


def test_a_store_gives_the_same_rows_but_for_what_it_does_not_count() -> None:
    loss = {"server_id": SERVER, "observer_id": "proxy-1", "lists": 1, "calls": 40}
    value = an_event(Role.SNAPSHOTS, 9, 1, loss, type="mcp.observer.loss.observed")
    story = Story().lists(TOOL).raw(Role.SNAPSHOTS, value).calls(snapshot_id="snapshot-0").calls("ghost").calls()
    story.calls(observer_id="gateway").calls(server_id="dark")
    for options in ({}, {"since_us": START_US + 3_000_000}, {"until_us": START_US + 3_000_000}):
        counts, asked = CoverageCounts(**options), covered(story, **options)
        counts.take_store(load(written(story.records)))
        found = {(row["what"], row["name"]): row for row in counts.rows(silent_after_us=HOUR_US)}
        unknown = dict.fromkeys(("incomplete", "refused", "lost"))
        assert found == {key: row | unknown for key, row in asked.items()}
