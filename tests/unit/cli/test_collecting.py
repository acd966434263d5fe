"""How often circles are looked for while a command goes through many records."""

from __future__ import annotations

import gc

import pytest

from assay_stream.cli.collecting import collecting_seldom


def _fail_within(seen: list[int]) -> None:
    with collecting_seldom():
        seen.append(gc.get_threshold()[0])
        raise LookupError("in the middle")


def test_thresholds_come_back_whatever_happens() -> None:
    """Within it they are higher, behind it as before."""
    before = gc.get_threshold()
    seen: list[int] = []
    with pytest.raises(LookupError):
        _fail_within(seen)
    assert seen[0] > before[0]
    assert gc.get_threshold() == before
