"""Evidence and what it names, put together in little memory."""

from __future__ import annotations

import random
from operator import attrgetter

import pytest

from assay_stream.model.record import Origin, Record, Role
from assay_stream.verify.evidence import Offsets, Pairing, Recorded
from tests.support.events import TOOL, Story

ORIGIN = attrgetter("origin")


def a_run() -> tuple[list[Recorded], Story]:
    story = Story().lists(TOOL)
    for _ in range(6):
        story.calls()
    outputs = story.tell().of(Role.EVIDENCE)
    return [Recorded(f"line {number}", output.value or b"") for number, output in enumerate(outputs)], story


@pytest.mark.parametrize("waiting_max", [1, 2, 100])
@pytest.mark.parametrize("seed", range(4))
def test_everything_finds_its_other_in_any_order(waiting_max: int, seed: int) -> None:
    evidence, story = a_run()
    calls = [record for record in story.records if record.role is Role.CALLS]
    choose = random.Random(seed)
    choose.shuffle(evidence)
    choose.shuffle(calls)
    pairing = Pairing(ORIGIN, waiting_max=waiting_max)
    found = list(pairing.pairs(evidence, calls))
    assert {(given and given.where, given and given.value, call) for given, call in found} == {
        (given.where, given.value, call) for given in evidence for call in calls if given.call == call.origin
    }


@pytest.mark.parametrize("waiting_max", [1, 100])
def test_what_finds_nothing_is_left(waiting_max: int) -> None:
    evidence, story = a_run()
    calls = [record for record in story.records if record.role is Role.CALLS]
    pairing = Pairing(ORIGIN, waiting_max=waiting_max)
    again = Recorded("again", evidence[1].value)
    found = pairing.pairs([*evidence[:5], again], calls[1:], keep=True)
    left = [(given, call) for given, call in found if given is None or call is None]
    assert {(given.where, pairing.is_paired(given.call)) for given, _ in left if given is not None} == {
        ("line 0", False),
        ("again", True),
    }
    assert [call.origin for _, call in left if call is not None] == [calls[5].origin]


def test_evidence_is_paired_with_other_evidence() -> None:
    evidence, _ = a_run()
    pairing = Pairing(attrgetter("call"), waiting_max=1)
    found = list(pairing.pairs(evidence, reversed(evidence), keep=True))
    assert all(given and other and given.value == other.value for given, other in found)
    assert len(found) == len(evidence)


def test_offsets_that_follow_each_other_are_one_run() -> None:
    numbers = [*range(20), *range(30, 35)]
    random.Random(1).shuffle(numbers)
    offsets = Offsets()
    for number in [*numbers, *numbers]:
        offsets.add(Origin("calls", 0, number))
    assert [number for number in range(40) if Origin("calls", 0, number) in offsets] == sorted(numbers)
    assert Origin("calls", 1, 3) not in offsets
    assert offsets._runs["calls", 0] == ([0, 30], [20, 35])


def test_large_values_go_to_the_file_whatever_their_number() -> None:
    size = 4 * 1024 * 1024
    calls = [Record(Role.CALLS, Origin("t", 0, offset), None, bytes([offset]) * size) for offset in range(40)]
    pairing = Pairing(ORIGIN)
    found = list(pairing.pairs([], calls, keep=True))
    assert pairing._spool is not None
    assert found == [(None, call) for call in calls]
