"""The release that ``make mixed`` mixes with."""

from __future__ import annotations

import sys

import pytest

from tests.mixed.__main__ import main

MISSING = "0123456789abcdef0123456789abcdef01234567"


def test_a_clone_without_the_release_before_fails_and_names_the_fetch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a shallow clone may be: what was not run must not pass."""
    monkeypatch.setattr(sys, "argv", ["tests.mixed", "--before", MISSING])
    assert main() == 1
    assert f"git fetch --depth 1 origin {MISSING}" in capsys.readouterr().err
