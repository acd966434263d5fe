"""The controls of a server, as of any time and any position."""

import pytest

from assay_stream.bindings.controls import position_of
from assay_stream.model.control import AnyControlFact, FirstUse
from assay_stream.model.record import Origin
from tests.support.facts import SERVER, a_discovery, a_key_decision, a_pin, a_policy, signed_by, with_facts


def a_first_use(time_us: int, *, offset: int = 0, key: str = "k") -> FirstUse:
    return FirstUse(
        server_id=SERVER,
        domain="example.com",
        tool_name="t",
        fingerprint=key,
        time_us=time_us,
        origin=Origin(topic="mcp.tools.list", partition=0, offset=offset),
    )


@pytest.mark.parametrize("offset", [0, 2**62])
def test_a_time_counts_every_record_of_it(offset: int) -> None:
    assert (5, Origin(topic="~", partition=2**31, offset=offset)) < position_of(5)
    assert position_of(5) < (6, Origin(topic="", partition=0, offset=0))


def test_the_same_fact_again_changes_nothing() -> None:
    facts = (a_pin("a", time_us=5, offset=0), a_policy(time_us=6, offset=1), a_discovery("k", time_us=7, offset=2))
    once, twice = with_facts(*facts), with_facts(*facts, *facts)
    assert twice.epoch(9) == once.epoch(9) == 3
    assert twice.pins == once.pins
    assert twice.discoveries == once.discoveries


def test_positions_between_are_half_open() -> None:
    facts = [a_pin("a", time_us=time_us, offset=time_us) for time_us in (1, 2, 3)]
    positions = [fact.position for fact in facts]
    controls = with_facts(*facts)
    assert list(controls.positions_between(positions[1], positions[2])) == positions[1:2]
    assert list(controls.positions_between(positions[1], None)) == positions[1:]


def test_a_first_use_counts_from_its_own_time_and_makes_an_epoch() -> None:
    """Between two epochs no answer changes, and a first use changes answers."""
    controls = with_facts(a_discovery("k", time_us=1, offset=0), a_first_use(5))
    assert controls.first_use_as_of("example.com", "t", 4) is None
    assert controls.first_use_as_of("example.com", "t", 5) == a_first_use(5)
    assert controls.epoch(4) != controls.epoch(5)


def test_what_is_forgotten_is_gone_with_its_position() -> None:
    signatures, checked = signed_by("k", "t")
    discovery = a_discovery("k", time_us=1, offset=0)
    controls = with_facts(discovery, a_first_use(2))
    controls.apply(signatures)
    controls.apply(checked)
    for _ in range(2):
        for fact in (discovery, a_first_use(2), signatures, checked):
            controls.forget(fact.key())
    assert not controls
    assert (controls.epoch(9), controls.discoveries, controls.checked) == (0, {}, {})


def test_operators_decisions_are_never_forgotten() -> None:
    facts: list[AnyControlFact] = [
        a_pin("a", time_us=1, offset=0),
        a_policy(time_us=2, offset=1),
        a_key_decision("revoke", "k", time_us=3, offset=2),
    ]
    controls = with_facts(*facts)
    for fact in facts:
        controls.forget(fact.key())
    assert controls.epoch(9) == 3
    assert len(controls.key_acts_as_of(9)) == 1
