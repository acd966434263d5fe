"""Times as they are read and written."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from assay_stream.text.times import rfc3339, time_ms_in, time_ms_text, time_text, timestamp_ms

NOON_MS = 1_772_366_400_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01T12:00:00Z", NOON_MS),
        ("2026-03-01t12:00:00.0019z", NOON_MS + 1),
        ("2026-03-01T13:00:00+01:00", NOON_MS),
        ("2026-03-01T12:00:00", None),
        ("today", None),
        ("2026-02-30T00:00:00Z", None),
        ("2026-03-01T12:00:00." + "0" * 1_000_000 + "Z", None),
        (7, None),
        (None, None),
    ],
)
def test_times_are_milliseconds_or_nothing(text: object, expected: int | None) -> None:
    assert time_ms_in(text) == expected


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_772_323_200_123, "2026-03-01T00:00:00.123Z"),
        (-5, "1970-01-01T00:00:00.000Z"),
    ],
)
def test_milliseconds_are_rfc_3339(time_ms: int, text: str) -> None:
    assert time_ms_text(time_ms) == text
    assert time_ms_text(10**18).startswith("9999-12-31T23:59:59")


def test_times_have_microseconds_where_there_are_some() -> None:
    assert time_text(1_795_226_767_386_001) == "2026-11-21T02:06:07.386001Z"


def test_times_are_utc_with_microseconds() -> None:
    moment = datetime(2026, 1, 1, 1, 0, tzinfo=timezone(timedelta(hours=1)))
    assert rfc3339(moment) == "2026-01-01T00:00:00.000000Z"
    assert timestamp_ms(datetime(1960, 1, 1, tzinfo=UTC)) == 0
    with pytest.raises(ValueError, match="timezone-aware"):
        rfc3339(datetime(2026, 1, 1))  # noqa: DTZ001 - the naive time is the point
