"""The schema of HTC-1.0 as a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from assay_stream.schemes.handshake.htc_schema import SCHEMA


def values_of(part: Any, keyword: str) -> Iterator[Any]:
    """Every value of a keyword, at any depth."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == keyword and not isinstance(value, dict):
                yield value
            yield from values_of(value, keyword)
    elif isinstance(part, list):
        for item in part:
            yield from values_of(item, keyword)


def test_it_is_a_schema_of_draft_2020_12() -> None:
    """It satisfies the dialect that it names."""
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


def test_it_refers_to_itself_only() -> None:
    """No reference leads out of the document, so nothing has to be fetched."""
    references = set(values_of(SCHEMA, "$ref"))
    assert references == {f"#/$defs/{name}" for name in SCHEMA["$defs"]}


def test_every_pattern_spans_the_whole_text() -> None:
    """The check matches whole texts; the patterns say so to every other reader."""
    patterns = set(values_of(SCHEMA, "pattern"))
    assert patterns
    for pattern in patterns:
        assert pattern.startswith("^")
        assert pattern.endswith("$")


@pytest.mark.parametrize("part", ["request", "response", "actor", "timing", "resources"])
def test_objects_are_closed(part: str) -> None:
    """All but the error object, whose further fields are the tool's."""
    assert SCHEMA["$defs"][part]["additionalProperties"] is False
    assert "additionalProperties" not in SCHEMA["$defs"]["error"]
