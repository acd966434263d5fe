"""Progress on standard error."""

from __future__ import annotations

import pytest

from assay_stream.cli.progress import Meter


def test_rate_and_time_left_are_of_this_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A thousand calls in ten seconds, nine thousand to go: ninety seconds."""
    now = iter(range(0, 1_000, 10))
    meter = Meter(True, clock_s=lambda: next(now))
    meter.replaying([("calls:0", 0, 10_000)])
    meter.replaying([("calls:0", 1_000, 10_000)])
    said = capsys.readouterr().err
    assert "10 % of 10,000 calls" in said
    assert "calls:0 10 %" in said
    assert "s left" in said


def test_nothing_is_said_where_it_is_not_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    """Not on a pipe unless asked for."""
    meter = Meter(False, clock_s=lambda: 10_000.0)
    meter.reading(5)
    meter.end()
    assert capsys.readouterr().err == ""
