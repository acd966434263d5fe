"""What a record changes: evaluated before it is applied and after, once each."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.bindings.pin_evaluation import evaluate_pins
from assay_stream.registry import transition
from assay_stream.registry.processor import Registry, process
from tests.unit.registry.test_processor import PRODUCER, TOOL, a_snapshot


def test_pins_are_evaluated_once_before_and_once_after(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[int] = []

    def counted(server: Any, *args: Any, **options: Any) -> Any:
        known.append(len(server.observations))
        return evaluate_pins(server, *args, **options)

    monkeypatch.setattr(transition, "evaluate_pins", counted)
    registry = Registry(producer=PRODUCER)
    process(registry, a_snapshot(TOOL))
    process(registry, a_snapshot(TOOL, {"name": "u"}, offset=1))
    assert known == [0, 1, 1, 2]


def test_what_stays_the_same_is_not_published_again() -> None:
    registry = Registry(producer=PRODUCER)
    first = process(registry, a_snapshot(TOOL))
    again = process(registry, a_snapshot(TOOL, offset=1))
    assert "name_claim:come" in [output.label for output in first]
    assert [output.label for output in again] == ["fact:seen"]
