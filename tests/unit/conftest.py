"""What unit tests of several packages share."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let parts and runners try again at once."""
    monkeypatch.setattr("assay_stream.kafka.part._PAUSE_S", 0.0)
    monkeypatch.setattr("assay_stream.kafka.runner._LOOK_S", 0.005)
