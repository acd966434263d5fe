"""How often circles are looked for while a command goes through many records."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest

from assay_stream.cli.shared import collecting_seldom, noting_interrupts

USUAL = (700, 10, 10)


@pytest.fixture
def usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


def _fail_within(seen: list[int]) -> None:
    with collecting_seldom():
        seen.append(gc.get_threshold()[0])
        raise LookupError("in the middle")


@pytest.mark.usefixtures("usual")
def test_thresholds_come_back_whatever_happens() -> None:
    """Within it they are higher, behind it as before."""
    seen: list[int] = []
    with pytest.raises(LookupError):
        _fail_within(seen)
    assert seen[0] > USUAL[0]
    assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_does_what_it_always_does(number: signal.Signals) -> None:
    """A command ends where it can go on; somebody who insists ends it at once."""
    died = []
    before = signal.signal(number, lambda *_: died.append(number))
    try:
        with noting_interrupts() as noted:
            os.kill(os.getpid(), number)
            assert (noted, died) == ([number], [])
            os.kill(os.getpid(), number)
            assert (noted, died) == ([number], [number])
        os.kill(os.getpid(), number)
        assert (noted, died) == ([number], [number, number])
    finally:
        signal.signal(number, before)
