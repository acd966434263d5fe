"""Metadata, and the contract in it."""

from __future__ import annotations

from assay_stream.drift.change import ABSENT
from assay_stream.drift.fields import compare_meta


def test_the_contract_has_a_code_of_its_own() -> None:
    """What changed under ``handshake`` is told apart from other metadata."""
    before = {"handshake": {"side_effect": "READ"}, "x": 1}
    after = {"handshake": {"side_effect": "WRITE"}, "x": 2}
    assert [(c.code, c.path) for c in compare_meta("$._meta", before, after)] == [
        ("contract_changed", "$._meta.handshake"),
        ("meta_changed", "$._meta.x"),
    ]


def test_metadata_of_another_form_changed_as_a_whole() -> None:
    """What is no object is not looked into; an empty one that came is a change."""
    assert [c.path for c in compare_meta("$._meta", {"x": 1}, 3)] == ["$._meta"]
    assert [c.code for c in compare_meta("$._meta", ABSENT, {})] == ["meta_changed"]
