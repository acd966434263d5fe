"""Times: RFC 3339 as events and people write it, and microseconds or milliseconds since the epoch."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from assay_stream.errors import InputError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST_US: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999, the last that RFC 3339 can write."""

_CHARS_MAX = 64
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=1_024)
def time_us_of(text: str) -> int:
    """Return an RFC 3339 time in microseconds since the epoch, finer digits cut off.

    Raises:
        InputError: ``bad_time`` for a date that does not exist.
        TypeError: for a time without an offset.
    """
    try:
        # Lower-case letters are legal in RFC 3339, but not to fromisoformat.
        return (datetime.fromisoformat(text.upper()) - EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        raise InputError("bad_time", "the time does not exist: use RFC 3339", path="$.time") from None


def time_us_in(value: object) -> int | None:
    """Return an RFC 3339 time in microseconds since the epoch, finer digits cut off; ``None`` for anything else."""
    try:
        return time_us_of(value) if isinstance(value, str) and len(value) <= _CHARS_MAX else None
    except (InputError, TypeError):
        return None


def time_ms_in(value: object) -> int | None:
    time_us = time_us_in(value)
    return None if time_us is None else time_us // 1_000


def timestamp_ms(moment: datetime) -> int:
    """Return a timezone-aware time in milliseconds since the epoch; 0 if it is earlier."""
    return max(0, (moment - EPOCH) // _MICROSECOND // 1_000)


def rfc3339(moment: datetime, timespec: str = "microseconds") -> str:
    """Return a timezone-aware time in UTC, with microseconds as in events, or another ``timespec``."""
    if moment.tzinfo is None:
        raise ValueError("event times must be timezone-aware")
    return moment.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def time_text(time_us: int) -> str:
    """Return microseconds since the epoch as people read them: without a fraction where there is none."""
    return rfc3339(EPOCH + timedelta(microseconds=time_us), "auto")


def time_ms_text(time_ms: int) -> str:
    """Return milliseconds since the epoch as RFC 3339 in UTC; times beyond the year 9999 as its end."""
    return rfc3339(EPOCH + timedelta(milliseconds=min(max(time_ms, 0), LAST_US // 1_000)), "milliseconds")
