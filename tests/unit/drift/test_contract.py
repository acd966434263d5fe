"""Metadata, and the contract in it."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.drift.change import ABSENT
from assay_stream.drift.definition import compare_meta
from assay_stream.drift.severity import PROFILES, Level, assess


def test_the_contract_has_a_code_of_its_own() -> None:
    """What changed under ``handshake`` is told apart from other metadata."""
    before = {"handshake": {"side_effect": "READ"}, "x": 1}
    after = {"handshake": {"side_effect": "WRITE"}, "x": 2}
    assert [(c.code, c.path) for c in compare_meta("$._meta", before, after)] == [
        ("contract_changed", "$._meta.handshake"),
        ("meta_changed", "$._meta.x"),
    ]


def test_metadata_of_another_form_changed_as_a_whole() -> None:
    assert [c.path for c in compare_meta("$._meta", {"x": 1}, 3)] == ["$._meta"]
    assert [c.code for c in compare_meta("$._meta", ABSENT, {})] == ["meta_changed"]


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ({"ui": {"resourceUri": "ui://a"}}, {"ui": {"resourceUri": "ui://b"}}, "$._meta.ui"),
        ({}, {"ui/resourceUri": "ui://a"}, '$._meta["ui/resourceUri"]'),
        ({"ui": {"csp": {"connectDomains": []}}}, {"ui": {"csp": {"connectDomains": ["x.test"]}}}, "$._meta.ui"),
        ({"ui": {"permissions": {}}}, {"ui": {"permissions": {"camera": {}}}}, "$._meta.ui"),
        ({"ui": {"resourceUri": "ui://a"}}, ABSENT, "$._meta.ui"),
    ],
)
def test_another_user_interface_is_medium(before: Any, after: Any, path: str) -> None:
    """MCP Apps: a host renders what ``_meta.ui`` names, and grants it what stands beside."""
    changes = list(compare_meta("$._meta", before, after))
    assert [(change.code, change.path) for change in changes] == [("ui_resource_changed", path)]
    assert assess(PROFILES["soc"], "tool_changed", changes) is Level.MEDIUM
