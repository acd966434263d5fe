"""References within one schema."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.drift.json_schema import expand
from assay_stream.work import UNLIMITED, Work

ROOT: dict[str, Any] = {
    "$defs": {"a/b": {"type": "string"}, "c": {"$ref": "#/$defs/a~1b"}, "loop": {"$ref": "#/$defs/loop"}},
    "anyOf": [{"type": "null"}],
}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#/$defs/a~1b", {"type": "string"}),
        ("#/%24defs/a~1b", {"type": "string"}),
        ("#/$defs/c", {"type": "string"}),
        ("#/anyOf/0", {"type": "null"}),
        ("#", ROOT),
        ("#/$defs/loop", None),
        ("#/$defs/none", None),
        ("#/anyOf/9", None),
        ("#anchor", None),
        ("other.json#/a", None),
        (3, None),
    ],
)
def test_a_reference(reference: Any, found: Any) -> None:
    assert expand(ROOT, {"$ref": reference}, Work(UNLIMITED)) == found


def test_what_stands_beside_takes_precedence() -> None:
    assert expand(ROOT, {"$ref": "#/anyOf/0", "title": "T"}, Work(UNLIMITED)) == {"type": "null", "title": "T"}
