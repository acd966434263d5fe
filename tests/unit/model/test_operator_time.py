"""Times as operators write them."""

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from assay_stream.errors import InputError
from assay_stream.model.cloudevents import ACCEPTED, operator_time_us
from tests.support.errors import raises_code

NOW = "2026-03-02T10:30:00Z"


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("90s", "2026-03-02T10:28:30Z"),
        ("15m", "2026-03-02T10:15:00Z"),
        ("1h", "2026-03-02T09:30:00Z"),
        ("2d", "2026-02-28T10:30:00Z"),
        ("1w", "2026-02-23T10:30:00Z"),
        ("now", NOW),
        ("today", "2026-03-02T00:00:00Z"),
        ("Yesterday", "2026-03-01T00:00:00Z"),
        ("2026-02-28", "2026-02-28T00:00:00Z"),
        ("2026-02-28T10:00:00z", "2026-02-28T10:00:00Z"),
        ("2026-02-28T10:00:00+01:00", "2026-02-28T09:00:00Z"),
    ],
)
def test_spans_days_dates_and_rfc_3339_are_read(text: str, meant: str) -> None:
    assert operator_time_us(text, now_us=us(NOW)) == us(meant)


def test_a_span_may_lie_ahead() -> None:
    assert operator_time_us("2d", now_us=us(NOW), ahead=True) == us("2026-03-04T10:30:00Z")


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "h", "-1h", "1y", "1.5h", "٣d", "999999w", "9999999s", "soon", "2026-03-01T10:00:00"),
        *("2026-02-30", "2026-02-30T10:00:00Z", "yesterdays", "20260301"),
    ],
)
def test_what_could_mean_several_times_or_none_is_refused(text: str) -> None:
    with raises_code("bad_time") as caught:
        operator_time_us(text, now_us=us(NOW))
    assert caught.value.message == f"{text!r} is not a time: write {ACCEPTED}"


def test_a_span_ends_where_times_do() -> None:
    with pytest.raises(InputError, match="bad_time"):
        operator_time_us("999999w", now_us=us(NOW), ahead=True)


@given(st.text())
def test_any_text_gives_a_time_or_our_error(text: str) -> None:
    with suppress(InputError):
        assert isinstance(operator_time_us(text, now_us=us(NOW)), int)


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1)))  # noqa: DTZ001 - made aware below
def test_what_is_printed_is_read_back(moment: datetime) -> None:
    aware = moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    exact_us = since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds
    assert operator_time_us(aware.isoformat(), now_us=0) == exact_us
