"""How often somebody may try to sign in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay_stream.console.throttle import Throttle, network_of
from assay_stream.limits.console import CONSOLE_LIMITS

WINDOW_US = CONSOLE_LIMITS.sign_in_window_s * 1_000_000


def a_throttle() -> tuple[Throttle, list[int]]:
    """A throttle, and the time of its clock."""
    now = [0]
    return Throttle(lambda: now[0], b"key"), now


def test_a_name_has_so_many_attempts_in_a_window() -> None:
    """Then it has to wait for the next one."""
    throttle, now = a_throttle()
    assert [throttle.take("alice", 2) for _ in range(4)] == [True, True, False, False]
    now[0] = WINDOW_US - 1
    assert not throttle.take("alice", 2)
    now[0] = WINDOW_US
    assert throttle.take("alice", 2)


def test_an_attempt_that_succeeded_does_not_count() -> None:
    """Nor does one too many forgiven give more."""
    throttle, _ = a_throttle()
    for _ in range(10):
        assert throttle.take("alice", 2)
        throttle.forgive("alice", "bob")
    throttle.forgive("alice")
    assert [throttle.take("alice", 2) for _ in range(3)] == [True, True, False]


def test_a_flood_of_names_makes_no_counter_forgotten() -> None:
    """The names share counters: nobody gets more attempts at one name by trying others."""
    throttle, _ = a_throttle()
    assert [throttle.take("alice", 2) for _ in range(3)] == [True, True, False]
    counters = len(throttle._buckets)
    for number in range(20_000):
        throttle.take(f"name-{number}", 2)
    assert not throttle.take("alice", 2)
    assert len(throttle._buckets) == counters


def test_which_names_share_a_counter_cannot_be_known() -> None:
    """It depends on a key."""

    def sharing(key: bytes) -> list[bool]:
        throttle = Throttle(lambda: 0, key)
        return [throttle.take(f"name-{number}", 1) for number in range(2_000)]

    assert sharing(b"a") != sharing(b"b")
    assert sharing(b"a") == sharing(b"a")


def test_the_window_is_a_limit() -> None:
    """Of the console's."""
    throttle = Throttle(lambda: 5_000_000, b"key", limits=replace(CONSOLE_LIMITS, sign_in_window_s=1))
    assert throttle.take("\udcff", 1)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", ""),
        (None, ""),
        ("unknown", ""),
        ("192.0.2.7:49152", "192.0.2.7"),
        ("[2001:db8:1:2::7]:49152", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::7]", "2001:db8:1:2::/64"),
        ("[::ffff:192.0.2.7]:1", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("[unknown]:1", ""),
        ("_hidden:1", ""),
        (":", ""),
    ],
)
def test_a_source_is_what_one_customer_has(address: str | None, network: str) -> None:
    """Of IPv6 a whole network."""
    assert network_of(address) == network
