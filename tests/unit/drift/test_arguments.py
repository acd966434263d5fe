"""A prompt's arguments."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.drift.change import ABSENT
from assay_stream.drift.definition import compare_arguments

A = {"name": "a"}


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (ABSENT, [A], "parameter_added_optional"),
        ([], [A | {"required": True}], "parameter_added_required"),
        ([A], [], "parameter_removed_optional"),
        ([A], [A | {"required": True}], "parameter_made_required"),
        ([A | {"required": True}], [A], "parameter_made_optional"),
        ([A | {"description": "x"}], [A | {"description": "y"}], "parameter_description_words_changed"),
        ([A, {"name": "b"}], [{"name": "b"}, A], "arguments_reordered"),
        ([A], [A | {"more": 1}], "field_changed"),
        ([A], [A, A], "field_changed"),
        ([A], {"a": 1}, "field_changed"),
        ([A], [A | {"required": False}], "field_changed"),
    ],
)
def test_an_argument(before: Any, after: Any, code: str) -> None:
    assert [change.code for change in compare_arguments("$.arguments", before, after)] == [code]
