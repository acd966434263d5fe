"""Hints that came, went or flipped."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.drift.change import ABSENT
from assay_stream.drift.definition import DEFAULTS, compare_annotations


def test_the_defaults_are_the_standards() -> None:
    assert DEFAULTS == {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


@pytest.mark.parametrize(
    ("name", "before", "after", "code", "direction"),
    [
        ("readOnlyHint", ABSENT, True, "read_only_claimed", "narrows"),
        ("readOnlyHint", True, ABSENT, "read_only_unclaimed", "widens"),
        ("readOnlyHint", False, True, "read_only_set", "narrows"),
        ("readOnlyHint", True, False, "read_only_unset", "widens"),
        ("readOnlyHint", ABSENT, False, "hint_default_stated", "neutral"),
        ("destructiveHint", ABSENT, False, "non_destructive_claimed", "narrows"),
        ("destructiveHint", False, ABSENT, "non_destructive_unclaimed", "widens"),
        ("destructiveHint", False, True, "destructive_set", "widens"),
        ("destructiveHint", True, False, "destructive_unset", "narrows"),
        ("destructiveHint", True, ABSENT, "hint_default_unstated", "neutral"),
        ("idempotentHint", ABSENT, True, "idempotent_claimed", "narrows"),
        ("idempotentHint", True, False, "idempotent_unset", "widens"),
        ("openWorldHint", ABSENT, False, "closed_world_claimed", "narrows"),
        ("openWorldHint", False, True, "open_world_set", "widens"),
        ("readOnlyHint", True, 1, "annotation_changed", "neutral"),
        ("other", 1, 2, "annotation_changed", "neutral"),
        ("title", "A", "B", "title_words_changed", "neutral"),
    ],
)
def test_a_hint(name: str, before: Any, after: Any, code: str, direction: str) -> None:
    old, new = ({} if side is ABSENT else {name: side} for side in (before, after))
    (change,) = compare_annotations("$.annotations", old, new)
    assert (change.code, change.direction, change.path) == (code, direction, f"$.annotations.{name}")


def test_annotations_of_another_form_are_a_changed_field() -> None:
    assert [c.code for c in compare_annotations("$.a", {}, [])] == ["field_changed"]
    assert [c.code for c in compare_annotations("$.a", ABSENT, {})] == ["annotation_changed"]
