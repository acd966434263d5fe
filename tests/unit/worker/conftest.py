"""What tests of a Faust application clean up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _faust_loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the event loops of Faust's own consumer and producer, which it makes and never starts."""
    made: list[asyncio.AbstractEventLoop] = []
    new_event_loop = asyncio.new_event_loop

    def noted() -> asyncio.AbstractEventLoop:
        made.append(new_event_loop())
        return made[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", noted)
    yield
    for loop in made:
        loop.close()
