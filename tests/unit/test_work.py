"""A budget of work: what is spent is counted, and what is exhausted stays so."""

from contextlib import suppress

import pytest

from assay_stream.work import Work, WorkExhaustedError


def test_units_are_counted() -> None:
    work = Work(10)
    work.spend(3)
    work.spend(4)
    assert (work.spent, work.left, work.is_exhausted) == (7, 3, False)


def test_the_bound_itself_may_be_spent() -> None:
    work = Work(10)
    work.spend(10)
    assert work.is_exhausted


def test_what_is_exhausted_stays_so_even_for_small_work() -> None:
    work = Work(10)
    with pytest.raises(WorkExhaustedError):
        work.spend(11)
    with pytest.raises(WorkExhaustedError):
        work.spend(1)
    assert work.left == 0


def test_a_part_holds_no_more_than_is_left() -> None:
    work = Work(10)
    work.spend(6)
    assert work.part(100).left == 4
    assert work.part(3).left == 3


@pytest.mark.parametrize(("units", "left"), [(2, 6), (3, 6)])
def test_what_a_quarter_spends_is_spent(units: int, left: int) -> None:
    """All of it where that does not suffice."""
    work = Work(8)
    with suppress(WorkExhaustedError), work.quarter() as part:
        part.spend(units)
    assert work.left == left


def test_nothing_left_makes_no_part() -> None:
    work = Work(1)
    work.spend(1)
    with pytest.raises(WorkExhaustedError):
        work.part(1)


@pytest.mark.parametrize("units_max", [0, -1])
def test_a_budget_of_nothing_is_refused(units_max: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Work(units_max)
