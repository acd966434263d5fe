"""The budget of one record, and the finding that says what it did not suffice for."""

import pytest

from assay_stream.alerts.rules import severity_under
from assay_stream.drift.severity import PROFILES, Level
from assay_stream.limits import Limits
from assay_stream.model.facts import Allowance
from assay_stream.model.fields import LeftOut
from assay_stream.model.finding import decode_finding
from assay_stream.model.kinds import Kind
from assay_stream.registry.analysis import Analysis, charged, refilled
from assay_stream.work import Work
from tests.support.facts import seen


def test_what_was_paid_for_is_kept() -> None:
    analysis = Analysis(Work(25))
    assert list(analysis.paid(range(9), 10, LeftOut.RESOLUTIONS)) == [0, 1]
    assert analysis.left_out == {LeftOut.RESOLUTIONS}
    assert analysis.work.is_exhausted


def test_nothing_is_found_where_nothing_was_left_out() -> None:
    analysis = Analysis(Work(20))
    assert list(analysis.paid(range(2), 10, LeftOut.TEXT)) == [0, 1]
    assert list(analysis.finding(seen("o", 1, "c", offset=1))) == []


def test_a_list_that_was_cut_short_is_found_by_its_catalogue() -> None:
    analysis = Analysis(Work(1))
    analysis.left_out |= {LeftOut.TEXT, LeftOut.COMPARISON}
    [one] = analysis.finding(seen("o", 1, "one", offset=1))
    [other] = analysis.finding(seen("o", 1, "other", offset=1))
    assert one.uid() != other.uid()
    assert one.left_out == ("comparison", "text")
    assert decode_finding(one.encode()) == one
    analysis.counted.update({Kind.TOOL_ADDED: 50})
    analysis.is_rationed = True
    [rationed] = analysis.finding(seen("o", 1, "one", offset=1))
    assert rationed.counted == (("tool_added", 50),)
    assert decode_finding(rationed.encode()) == rationed
    [again] = analysis.finding(seen("o", 1, "other", offset=1))
    assert rationed.uid() == again.uid() != one.uid()


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_it_is_high(profile: object) -> None:
    analysis = Analysis(Work(1))
    analysis.left_out.add(LeftOut.TEXT)
    [finding] = analysis.finding(seen("o", 1, "one", offset=1))
    assert severity_under(profile)(finding) == Level.HIGH  # type: ignore[arg-type]


LIMITS = Limits(
    allowance_units_per_s=1_000, allowance_burst_units=5_000, analysed_changes_max=2, analysed_pairs_max=100
)
USED_UP = Allowance(server_id="s", time_ms=10_000, units=0)


def test_a_server_that_was_never_charged_has_saved_up_all() -> None:
    assert refilled(None, "s", 10_000, LIMITS) == Allowance(server_id="s", time_ms=10_000, units=5_000)
    assert refilled(None, "s", -1, LIMITS).time_ms == 0


def test_time_of_the_log_refills_it() -> None:
    assert refilled(USED_UP, "s", 12_500, LIMITS).units == 2_500
    assert refilled(USED_UP, "s", 99_000, LIMITS).units == 5_000


def test_an_earlier_timestamp_refills_nothing() -> None:
    earlier = refilled(USED_UP, "s", 1, LIMITS)
    assert earlier == USED_UP
    assert refilled(earlier, "s", 10_500, LIMITS).units == 500


def test_a_clock_that_ran_ahead_is_set_back() -> None:
    """One record dated years ahead must not leave its server without an allowance until then."""
    ahead = refilled(USED_UP, "s", 4_000_000_000_000, LIMITS)
    back = refilled(charged(ahead, 5_000, None, LIMITS), "s", 20_000, LIMITS)
    assert (back.time_ms, back.units) == (20_000, 0)
    assert refilled(back, "s", 21_000, LIMITS).units == 1_000


def test_what_a_list_cost_is_taken_from_it() -> None:
    full = refilled(None, "s", 0, LIMITS)
    assert charged(full, 3_000, None, LIMITS).units == 2_000
    assert charged(full, 5_500, None, LIMITS).units == -500
    in_debt = charged(full, 9_000, None, LIMITS)
    assert in_debt.units == -1_000
    assert refilled(in_debt, "s", 1_500, LIMITS).units == 500


def test_few_changes_are_remembered() -> None:
    allowance = USED_UP
    for change in ("a", "b", "c"):
        allowance = charged(allowance, 1, (change, 10), LIMITS)
    assert [allowance.knows(change) for change in ("a", "b", "c")] == [False, True, True]
    allowance = charged(allowance, 1, ("large", 85), LIMITS)
    assert allowance.analysed == (("c", 10), ("large", 85))
    assert charged(allowance, 1, ("too large", 101), LIMITS).analysed == ()
