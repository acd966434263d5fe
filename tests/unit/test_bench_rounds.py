"""Ratios of interleaved rounds: their interval, and whether the machine was quiet."""

from __future__ import annotations

import pytest

from bench.ratio_gate import RATIO_MIN, is_slower
from bench.rounds import change_of, ratio_of


def test_a_ratio_is_that_of_the_median_round() -> None:
    """One round in which one of them was disturbed decides nothing."""
    assert ratio_of([1.0, 2.0, 30.0], [2.0, 4.0, 10.0]).median == pytest.approx(0.5)


def test_the_gate_fails_where_every_round_is_slower() -> None:
    """A join that takes a third more beside the same client is slower, whatever the noise of a few per cent."""
    assert is_slower(change_of([0.30, 0.31, 0.29, 0.30], [0.40, 0.41, 0.39, 0.40]))


def test_the_gate_passes_what_noise_may_explain() -> None:
    """A median below the bound is no verdict while the interval reaches above it."""
    change = change_of([0.30, 0.45, 0.33, 0.36], [0.40, 0.41, 0.39, 0.40])
    assert change.median < RATIO_MIN < change.high
    assert not is_slower(change)
