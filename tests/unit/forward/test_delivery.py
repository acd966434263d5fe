"""What becomes of an alert, and the schedule of further attempts."""

from __future__ import annotations

import pytest

from assay_stream.errors import InputError
from assay_stream.forward.forwarder import dead_letter, next_wait_ms
from assay_stream.forward.posting import http_answer, retry_after_ms
from assay_stream.forward.receivers import DELIVERED, DeliveryOutcome
from assay_stream.forward.webhook import signature
from assay_stream.model.record import Origin, Record, Role

NOON_S = 1_772_366_400.0
HOUR_MS = 3_600_000


def test_the_schedule_doubles_to_half_a_minute_without_chance_or_end() -> None:
    """The same failure gives the same wait, also the millionth."""
    waits_ms = [next_wait_ms(failures, 0) for failures in (*range(1, 9), 10**6)]
    assert waits_ms == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]


@pytest.mark.parametrize(
    ("statuses", "outcome"),
    [
        ((200, 202, 204, 299), DeliveryOutcome.DELIVERED),
        ((400, 401, 403, 404, 410, 413, 422, 499), DeliveryOutcome.REFUSED),
        ((100, 301, 307, 408, 429, 500, 502, 503, 504), DeliveryOutcome.UNAVAILABLE),
    ],
)
def test_a_status_says_what_becomes_of_an_alert(statuses: tuple[int, ...], outcome: DeliveryOutcome) -> None:
    """Sending again after a client error would give the same answer; anything else says nothing about the alert."""
    for status in statuses:
        answer = http_answer(status, retry_after=None, now_s=NOON_S)
        assert (answer.outcome, answer.code) == (outcome, "" if answer == DELIVERED else f"http_{status}")


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        (None, 0),
        ("0", 0),
        ("120", 120_000),
        (" 7 ", 7_000),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30_000),
        ("Sun, 01 Mar 2026 11:59:30 GMT", 0),
        ("99999999999999999999", HOUR_MS),
        ("Sun, 01 Mar 2099 12:00:30 GMT", HOUR_MS),
        ("soon", 0),
        ("-1", 0),
        ("1.5", 0),
        ("²", 0),
        ("", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, expected_ms: int) -> None:
    """RFC 9110, 10.2.3; an hour at most, and nonsense asks for nothing."""
    assert retry_after_ms(text, now_s=NOON_S) == expected_ms


def test_a_receiver_is_never_asked_sooner_than_it_wants() -> None:
    """Retry-After lengthens a wait, and never shortens one."""
    busy = http_answer(429, retry_after="90", now_s=NOON_S)
    assert next_wait_ms(1, busy.retry_after_ms) == 90_000
    eager = http_answer(503, retry_after="1", now_s=NOON_S)
    assert next_wait_ms(10, eager.retry_after_ms) == 30_000


def test_the_signature_is_an_hmac_over_key_and_body() -> None:
    """As OpenSSL computes it, with a dot between the two."""
    # printf 'uid:1:1.{}' | openssl dgst -sha256 -hmac Jefe
    expected = "sha256=91e76bacc4c166015f740b1d3ee81e44fdbc21843bd1cb36ed88057de0295f52"
    assert signature(b"Jefe", key="uid:1:1", body=b"{}") == expected


def test_a_dead_letter_keeps_everything() -> None:
    """Bytes, key, headers and time as they were, and behind them why it was refused."""
    record = Record(
        role=Role.ALERTS,
        origin=Origin(topic="assay.tool.drift", partition=1, offset=7),
        key=b"server",
        value=b"\xff",
        headers=(("ce_id", b"1"),),
        timestamp_ms=5,
    )
    letter = dead_letter(record, InputError("refused_by_receiver", "why"))
    assert (letter.role, letter.key, letter.value, letter.timestamp_ms) == (Role.DEAD_LETTERS, b"server", b"\xff", 5)
    assert letter.headers == (
        ("ce_id", b"1"),
        ("error.code", b"refused_by_receiver"),
        ("error.message", b"refused_by_receiver: why"),
        ("error.topic", b"assay.tool.drift"),
        ("error.partition", b"1"),
        ("error.offset", b"7"),
    )
    assert letter.label == "dead:refused_by_receiver"
