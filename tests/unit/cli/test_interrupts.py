"""Signals noted for a long command."""

from __future__ import annotations

import os
import signal

import pytest

from assay_stream.cli.interrupts import noting_interrupts


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
