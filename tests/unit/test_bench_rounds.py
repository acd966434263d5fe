"""Ratios of interleaved rounds: their interval, and whether the machine was quiet."""

from __future__ import annotations

import math
from pathlib import Path

import orjson
import pytest

from bench.ratio_gate import BASELINE, RATIO_MIN, is_slower
from bench.rounds import QUIET_BUSY_MAX, ROUNDS_MIN, QuietCheck, Ticks, change_of, ratio_of


def test_a_ratio_is_that_of_the_median_round() -> None:
    """One round in which one of them was disturbed decides nothing."""
    assert ratio_of([1.0, 2.0, 30.0], [2.0, 4.0, 10.0]).median == pytest.approx(0.5)


def test_the_interval_is_students() -> None:
    """Worked out by hand: logarithms -1, 0 and 1 have a deviation of 1, and 4.303 is the quantile of two degrees."""
    found = ratio_of([math.e**-1, 1.0, math.e], [1.0, 1.0, 1.0])
    assert (found.low, found.high) == pytest.approx((math.exp(-4.303 / 3**0.5), math.exp(4.303 / 3**0.5)))


def test_rounds_that_agree_have_a_narrow_interval() -> None:
    """What slows both down in a round widens nothing."""
    found = ratio_of([1.0, 10.0, 100.0], [2.0, 20.0, 200.0])
    assert (found.low, found.high) == pytest.approx((0.5, 0.5))


def test_too_few_rounds_say_nothing() -> None:
    """Two rounds give no interval worth the name."""
    with pytest.raises(ValueError, match="at least 3 rounds, there are 2"):
        ratio_of([1.0, 1.0], [1.0, 1.0])


def test_the_machine_is_looked_at_as_the_kernel_counts(tmp_path: Path) -> None:
    """What is waited for is not used; what a hypervisor takes is."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_text("cpu  100 0 50 1000 10 0 0 5 0 0\ncpu0 1 2 3\n", encoding="ascii")
    after.write_text("cpu  103 0 52 1090 11 0 0 9 0 0\ncpu0 1 2 3\n", encoding="ascii")
    assert Ticks.read(after).share_since(Ticks.read(before)) == pytest.approx(0.09)


def test_one_busy_look_is_enough_not_to_be_quiet() -> None:
    """A run is as quiet as its loudest pause."""
    check = QuietCheck()
    check.busy += [0.0, QUIET_BUSY_MAX]
    assert check.is_quiet
    check.busy.append(QUIET_BUSY_MAX + 0.01)
    assert not check.is_quiet
    assert "NOT QUIET" in str(check)


def test_the_gate_fails_where_every_round_is_slower() -> None:
    """A join that takes a third more beside the same client is slower, whatever the noise of a few per cent."""
    assert is_slower(change_of([0.30, 0.31, 0.29, 0.30], [0.40, 0.41, 0.39, 0.40]))


def test_the_gate_passes_what_noise_may_explain() -> None:
    """A median below the bound is no verdict while the interval reaches above it."""
    change = change_of([0.30, 0.45, 0.33, 0.36], [0.40, 0.41, 0.39, 0.40])
    assert change.median < RATIO_MIN < change.high
    assert not is_slower(change)


def test_the_gate_says_nothing_of_two_rounds() -> None:
    """Of either run."""
    with pytest.raises(ValueError, match="at least 3 rounds of each run: 2 and 3"):
        change_of([1.0, 1.0], [1.0, 1.0, 1.0])


def test_the_ratios_of_the_release_before_are_kept() -> None:
    """With the extension and without it."""
    kept = orjson.loads(BASELINE.read_bytes())
    assert set(kept) == {"with the extension", "without the extension"}
    assert all(len(each["ratios"]) >= ROUNDS_MIN and each["release"] for each in kept.values())
