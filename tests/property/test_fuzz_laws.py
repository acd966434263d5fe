"""The short form of ``make fuzz``: a few examples of each law, with a seed that repeats."""

from __future__ import annotations

import pytest

from tests.fuzz import __main__ as fuzzing


def test_a_round_of_every_law_holds() -> None:
    for law in fuzzing.LAWS:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(fuzzing, "LAWS", (law,))
            assert fuzzing.fuzz(0.0, 1, examples=20) == 20


def test_stages_take_damaged_records() -> None:
    fuzzing.stages_take_anything()


def test_a_broken_law_is_named_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @fuzzing.given(fuzzing.st.binary())
    def never_holds(raw: bytes) -> None:
        assert len(raw) < 3

    monkeypatch.setattr(fuzzing, "LAWS", (never_holds,))
    with pytest.raises(AssertionError):
        fuzzing.fuzz(0.0, 77, examples=100)
    assert "seed 77, never_holds" in capsys.readouterr().err
