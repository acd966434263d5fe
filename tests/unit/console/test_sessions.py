"""Sessions: random, rotated, bounded, and over in time."""

from dataclasses import replace

import pytest

from assay_stream.console.sessions import Operator, Sessions
from assay_stream.limits import CONSOLE_LIMITS
from tests.support.console import ALICE

S = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now_us = 0

    def __call__(self) -> int:
        return self.now_us


def test_every_session_has_an_id_and_a_token_of_its_own() -> None:
    """Of 256 random bits, and the token of forms is not the id."""
    sessions = Sessions(Clock())
    ids = [sessions.begin(ALICE) for _ in range(5)]
    tokens = [found.csrf_token for each in ids if (found := sessions.find(each))]
    assert len({*ids, *tokens}) == 10
    assert min(map(len, [*ids, *tokens])) >= 43


@pytest.mark.parametrize("session_id", ["", "x", "\udcff", "0" * 10_000])
def test_an_unknown_id_is_no_session(session_id: str) -> None:
    sessions = Sessions(Clock())
    sessions.begin(ALICE)
    assert sessions.find(session_id) is None


def test_a_session_is_over_in_the_end_however_much_it_is_used() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    session_id = sessions.begin(ALICE)
    for _ in range(2 * CONSOLE_LIMITS.session_s // CONSOLE_LIMITS.session_idle_s - 1):
        clock.now_us += CONSOLE_LIMITS.session_idle_s * S // 2
        assert sessions.find(session_id) is not None
    clock.now_us += CONSOLE_LIMITS.session_idle_s * S // 2
    assert sessions.find(session_id) is None


def test_nobody_can_end_the_sessions_of_others_by_signing_in() -> None:
    """Of one operator the least recently used goes."""
    sessions = Sessions(Clock(), limits=replace(CONSOLE_LIMITS, operator_sessions_max=2, sessions_max=3))
    other = sessions.begin(Operator(name="local:bob", may_decide=False))
    first, second = sessions.begin(ALICE), sessions.begin(ALICE)
    sessions.find(first)
    third = sessions.begin(ALICE)
    assert [sessions.find(each) is not None for each in (other, first, second, third)] == [True, True, False, True]


def test_sessions_are_bounded() -> None:
    """Of all the least recently used goes."""
    sessions = Sessions(Clock(), limits=replace(CONSOLE_LIMITS, sessions_max=2))
    ids = [sessions.begin(Operator(name=f"local:{n}", may_decide=False)) for n in range(5)]
    assert [sessions.find(each) is not None for each in ids] == [False] * 3 + [True] * 2
