"""The progress of a long command."""

import pytest

from assay_stream.cli.sources import Meter


def test_speed_and_time_left_are_of_this_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run at 100 calls a second with 9,900 to go: 99 seconds; what was done before does not count."""
    monkeypatch.setenv("COLUMNS", "100")
    now_s = 0.0
    meter = Meter(True, clock_s=lambda: now_s)
    for done in (100_000, 100_100, 100_200, 100_300):
        now_s += 1.0
        meter.replaying([("calls:0", done, 110_200)])
    last = capsys.readouterr().err.splitlines()[-1].split()
    assert last[0] == "calls:0"
    assert last[-4:] == ["100300/110200", "91%", "100/s", "0:01:39"]


def test_each_partition_and_all_of_them_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    meter = Meter(True, clock_s=lambda: now_s)
    now_s = 2.0
    meter.replaying([("calls:0", 1, 4), ("calls:1", 1, 4)])
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()] == ["calls", "calls:0", "calls:1"]


def test_it_reports_once_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    meter = Meter(True, clock_s=lambda: now_s)
    for _ in range(20):
        now_s += 0.125
        meter.reading(5)
    assert capsys.readouterr().err.count("records read") == 2


def test_nothing_is_said_where_it_is_not_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    meter = Meter(None, clock_s=lambda: now_s)
    now_s = 2.0
    meter.reading(5)
    meter.end()
    assert capsys.readouterr().err == ""
