"""Two definitions, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.drift.definition import compare_definitions, differing_fields
from assay_stream.limits.core import DEFAULT_LIMITS

TOOL = {"name": "t", "description": "Reads.", "inputSchema": {"type": "object"}}


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("name", "u", "name_changed"),
        ("description", "Writes.", "description_words_changed"),
        ("title", "T", "title_added"),
        ("inputSchema", {"type": "string"}, "type_changed"),
        ("outputSchema", {"type": "object"}, "schema_declared"),
        ("annotations", {"readOnlyHint": True}, "read_only_claimed"),
        ("icons", [{"src": "x"}], "icons_changed"),
        ("execution", {"taskSupport": "forbidden"}, "execution_changed"),
        ("_meta", {"x": 1}, "meta_changed"),
        ("mimeType", "text/plain", "mime_type_changed"),
        ("something", 1, "field_changed"),
    ],
)
def test_each_field_is_compared_by_what_it_holds(field: str, value: Any, code: str) -> None:
    after = TOOL | {field: value}
    assert [change.code for change in compare_definitions(TOOL, after)] == [code]
    assert differing_fields(TOOL, after) == [field]


def test_changes_stand_in_the_order_of_their_paths() -> None:
    after = TOOL | {"title": "T", "annotations": {"readOnlyHint": True}, "description": "Reads a file."}
    assert [c.path for c in compare_definitions(TOOL, after)] == [
        "$.annotations.readOnlyHint",
        "$.description",
        "$.title",
    ]


def test_more_changes_than_the_limit_are_told_as_one() -> None:
    properties: dict[str, Any] = {f"p{i}": {} for i in range(DEFAULT_LIMITS.changes_max + 5)}
    changes = compare_definitions(TOOL, TOOL | {"inputSchema": {"type": "object", "properties": properties}})
    assert len(changes) == DEFAULT_LIMITS.changes_max + 1
    assert changes[-1].code == "comparison_cut_short"
