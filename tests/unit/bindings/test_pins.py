"""Pins held against what was observed, and what the policy makes of it."""

import itertools
from hashlib import sha256

import pytest

from assay_stream.bindings.controls import NO_PINS, Controls, PinsInForce, check_pins, pin_states, pins_in_force
from assay_stream.model.control import Pin, PinAct, PinStatus
from assay_stream.schemes.fingerprint import fingerprint
from assay_stream.schemes.hangar import DigestPolicy
from tests.support.facts import a_fingerprint, a_pin

SEEN = a_fingerprint("a")


def approved(**pins: str) -> PinsInForce:
    return PinsInForce(approved={name.replace("__", "."): value for name, value in pins.items()}, rejected={})


def test_what_was_not_observed_neither_matches_nor_differs() -> None:
    result = check_pins(PinsInForce(approved={"assay.v1": "x"}, rejected={}), None)
    assert result.status is PinStatus.UNOBSERVED
    assert "observed" not in result.as_json()


def test_to_be_unreadable_is_no_way_around_a_pin() -> None:
    pins = PinsInForce(approved={"assay.p60": "x"}, rejected={})
    refused = a_fingerprint("a")
    object.__setattr__(refused, "errors", {"assay.p60": "too_deep"})
    for result in (check_pins(pins, refused), check_pins(pins, None, listed=True)):
        assert result.status is PinStatus.MISMATCH
        assert "observed" not in result.as_json()
    assert check_pins(pins, SEEN).status is PinStatus.UNOBSERVED


def test_of_several_pins_the_gravest_is_told() -> None:
    pins = {"assay.meta_hash": "mh:a", "assay.p60": "x", "assay.schema_hash": "other", "assay.v1": "v1:a"}
    result = check_pins(PinsInForce(approved=pins, rejected={}), SEEN)
    assert (result.status, result.scheme) == (PinStatus.MISMATCH, "assay.schema_hash")
    del pins["assay.schema_hash"]
    assert check_pins(PinsInForce(approved=pins, rejected={}), SEEN).status is PinStatus.UNOBSERVED


def test_a_rejected_value_outweighs_every_pin() -> None:
    pins = PinsInForce(approved={"assay.meta_hash": "mh:a"}, rejected={"assay.v1": ("v1:a", "v1:c")})
    result = check_pins(pins, SEEN)
    assert (result.status, result.scheme, result.observed) == (PinStatus.REJECTED, "assay.v1", "v1:a")
    assert check_pins(pins, a_fingerprint("b")).status is PinStatus.MISMATCH
    assert check_pins(PinsInForce(approved={}, rejected=pins.rejected), a_fingerprint("b")).status is PinStatus.UNPINNED


@pytest.mark.parametrize(
    ("enforcement", "unknown", "mismatch", "unpinned"),
    [
        ("audit", "allow_degraded", "allow", "allow"),
        ("warn", "warn", "warn", "warn"),
        ("block", "block", "block", "block"),
        ("block", "allow_unverified", "block", "allow"),
    ],
)
def test_the_policy_says_what_it_would_have_done(enforcement: str, unknown: str, mismatch: str, unpinned: str) -> None:
    policy = DigestPolicy(enforcement=enforcement, unknown=unknown)
    pins = approved(assay__v1="v1:a")
    actions = [
        check_pins(pins, observed, policy=policy).as_json()["action"] for observed in (SEEN, a_fingerprint("b"), None)
    ]
    assert actions == ["allow", mismatch, unpinned]
    assert check_pins(NO_PINS, SEEN, policy=policy).as_json()["action"] == unpinned


@pytest.mark.parametrize("spelling", ["current", "older"])
def test_a_pin_may_hold_either_spelling_of_a_peers_hash(spelling: str) -> None:
    """What MCPTrust prints of U+0008 and U+000C depends on the Go that built it."""
    seen = fingerprint({"name": "t", "inputSchema": {"pattern": "\b"}}, server_id=None)
    written = {"current": b'{"pattern":"\\b"}', "older": b'{"pattern":"\\u0008"}'}
    value = f"sha256:{sha256(written[spelling]).hexdigest()}"
    scheme = "mcptrust.input_schema_hash"
    result = check_pins(PinsInForce(approved={scheme: value}, rejected={}), seen)
    assert (result.status, result.observed) == (PinStatus.MATCH, value)
    result = check_pins(PinsInForce(approved={}, rejected={scheme: (value,)}), seen)
    assert (result.status, result.observed) == (PinStatus.REJECTED, value)
    assert check_pins(PinsInForce(approved={scheme: "sha256:" + "0" * 64}, rejected={}), seen).status is (
        PinStatus.MISMATCH
    )


Act = tuple[PinAct, str | None]

HISTORIES: dict[str, list[Act]] = {
    "undecided": [],
    "approved": [("set", "a")],
    "rejected": [("reject", "a")],
    "superseded": [("set", "a"), ("set", "b")],
    "withdrawn": [("set", "a"), ("remove", "a")],
}
"""Acts after which value ``a`` is in each state. The last two leave it as undecided as the first."""

NEXT: list[Act] = [("set", "a"), ("set", "c"), ("reject", "a"), ("remove", "a"), ("remove", None)]
WANTED = {
    "undecided": ("approved", None, "rejected", None, None),
    "approved": ("approved", None, "rejected", None, None),
    "rejected": ("approved", "rejected", "rejected", None, "rejected"),
    "superseded": ("approved", None, "rejected", None, None),
    "withdrawn": ("approved", None, "rejected", None, None),
}
"""What is decided on ``a`` after each of ``NEXT``, written down by hand."""

LINES = [(state, act, after) for state, afters in WANTED.items() for act, after in zip(NEXT, afters, strict=True)]


def acts(*given: Act, scheme: str = "assay.v1") -> list[Pin]:
    return [
        a_pin(value, act=act, time_us=number, offset=number, scheme=scheme) for number, (act, value) in enumerate(given)
    ]


@pytest.mark.parametrize(("state", "act", "after"), LINES)
def test_a_value_after_one_more_act(state: str, act: Act, after: str | None) -> None:
    """A value brought into a state by acts is decided, after one more act, as an operator would expect."""
    history = HISTORIES[state]
    before = state if state in ("approved", "rejected") else None
    assert pin_states(acts(*history)).get(("assay.v1", "a")) == before
    assert pin_states(acts(*history, act)).get(("assay.v1", "a")) == after


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_later_act_wins_whatever_the_order_of_arrival(order: tuple[int, ...]) -> None:
    history = [
        a_pin("a", act="set", time_us=1, offset=0),
        a_pin("b", act="reject", time_us=2, offset=1),
        a_pin("b", act="set", time_us=2, offset=2),
        a_pin("a", act="reject", time_us=3, offset=3),
    ]
    controls = Controls()
    for index in order:
        controls.apply(history[index])
    assert controls.pins_as_of("t", 1).approved == {"assay.v1": "a"}
    assert controls.pins_as_of("t", 2).approved == {"assay.v1": "b"}
    assert controls.pins_as_of("t", 3) == pins_in_force(history)
    assert controls.pins_as_of("t", 3).rejected == {"assay.v1": ("a",)}
