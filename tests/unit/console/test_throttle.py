"""How often somebody may try to sign in."""

import pytest

from assay_stream.console.sessions import Throttle
from assay_stream.errors import AssayStreamError, InputError
from assay_stream.text.urls import network_of


def attempts(throttle: Throttle, name: str, most: int, *, error: type[AssayStreamError] = InputError) -> bool:
    try:
        with throttle.attempt({name: most}):
            raise error("sign_in_refused", "")
    except AssayStreamError as raised:
        return raised.code != "sign_in_limited"


def test_a_flood_of_names_makes_no_counter_forgotten() -> None:
    """The names share counters, by a key of the process: nobody gets more attempts at one name by trying others."""
    throttle, other = Throttle(lambda: 0), Throttle(lambda: 0)
    assert [attempts(throttle, "alice", 2) for _ in range(3)] == [True, True, False]
    counters = len(throttle._counts)
    for number in range(20_000):
        attempts(throttle, f"name-{number}", 2)
        attempts(other, f"name-{number}", 2)
    assert not attempts(throttle, "alice", 2)
    assert len(throttle._counts) == counters
    assert throttle._counts != other._counts


def test_a_refused_attempt_counts_nowhere() -> None:
    """Else people who try a name that strangers have used up would lock their whole office out."""
    throttle = Throttle(lambda: 0)
    assert attempts(throttle, "user alice", 1)
    for _ in range(3):
        with pytest.raises(InputError, match="sign_in_limited"), throttle.attempt({"office": 2, "user alice": 1}):
            pass
    assert attempts(throttle, "office", 2)


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
    assert network_of(address) == network
