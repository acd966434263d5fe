"""Times as they are read and written."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from assay_stream.files.local import decode_toml
from assay_stream.text.times import rfc3339, time_ms_in, time_ms_text, time_text, timestamp_ms
from tests.support.errors import raises_code

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


# --- toml -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "code", "said"),
    [
        (b"servers:\n  - server_id: docs\n", "not_toml", "line 1: not TOML. YAML and JSON are not read"),
        (b"# of ours\nservers:\n", "not_toml", "line 2: "),
        (b'{"servers": []}', "not_toml", "line 1: "),
        (b"servers = [", "not_toml", "not TOML"),
        (b"a = 1\na = 2", "not_toml", "not TOML"),
        pytest.param(b"a = " + b"[" * 50_000, "not_toml", "not TOML", id="deep"),
        pytest.param(b"a = " + b"1" * 5_000, "not_toml", "not TOML", id="long number"),
        (b"secret-\xff", "not_utf8", "byte 7"),
        pytest.param(b"#" * 20_000_000, "too_large", "allowed", id="large"),
    ],
)
def test_what_is_no_toml_is_refused_and_not_quoted(raw: bytes, code: str, said: str) -> None:
    with raises_code(code) as caught:
        decode_toml(raw)
    assert said in caught.value.message
    assert "secret" not in caught.value.message


def test_what_is_toml_is_decoded() -> None:
    assert decode_toml(b'[[servers]]\nserver_id = "docs"\n') == {"servers": [{"server_id": "docs"}]}
