"""Times as people write them in options: ``2d``, ``yesterday``, a date, or RFC 3339. All of them in UTC."""

import re

from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.cloudevents import time_us_of

ACCEPTED = "90s, 15m, 1h, 2d or 1w; now, today or yesterday; 2026-03-01 or 2026-03-01T10:00:00Z"
"""What ``operator_time_us`` reads, for help texts and errors."""

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
_UNITS_US = {"s": _SECOND_US, "m": 60 * _SECOND_US, "h": 3_600 * _SECOND_US, "d": _DAY_US, "w": 7 * _DAY_US}
_SPAN = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def operator_time_us(text: str, *, now_us: int, ahead: bool = False) -> int:
    """Parse a time given by an operator into microseconds since the epoch. A day means its first moment in UTC.

    Args:
        now_us: the current time, microseconds since the epoch.
        ahead: whether a span is added to now, as for the end of a rule, rather than subtracted.

    Raises:
        InputError: ``bad_time``.
    """
    word = text.strip().lower()
    today_us = now_us - now_us % _DAY_US
    days = {"now": now_us, "today": today_us, "yesterday": today_us - _DAY_US}
    if word in days:
        return days[word]
    if span := _SPAN.fullmatch(word):
        length_us = int(span[1]) * _UNITS_US[span[2]]
        time_us = now_us + length_us if ahead else now_us - length_us
        if 0 <= time_us <= DEFAULT_LIMITS.time_max_s * _SECOND_US:
            return time_us
    try:
        return time_us_of(f"{word}T00:00:00Z" if _DATE.fullmatch(word) else word)
    except (InputError, TypeError):
        raise InputError("bad_time", f"write the time as {ACCEPTED}") from None
