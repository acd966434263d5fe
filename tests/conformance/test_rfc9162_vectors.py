"""Merkle trees of RFC 9162, held against the published vectors of Certificate Transparency."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.schemes.rfc9162 import (
    EMPTY_ROOT,
    Frontier,
    consistency_holds,
    consistency_proof,
    inclusion_holds,
    inclusion_proof,
    leaf_hash,
)

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "vectors" / "rfc9162_merkle.json").read_text())
LEAVES = [leaf_hash(bytes.fromhex(leaf)) for leaf in VECTORS["leaves"]]


def _bytes(text: str | None) -> bytes:
    return base64.b64decode(text or "")


def _path(case: dict[str, Any]) -> list[bytes]:
    return [_bytes(node) for node in case["proof"] or []]


def test_the_roots_of_the_eight_leaves() -> None:
    tree = Frontier()
    roots = [tree.root().hex()]
    for leaf in LEAVES:
        tree.append(leaf)
        roots.append(tree.root().hex())
    assert roots == VECTORS["roots"]
    assert EMPTY_ROOT.hex() == VECTORS["roots"][0]


@pytest.mark.parametrize("case", VECTORS["inclusion"], ids=lambda case: f"{case['id'][:20]}:{case['desc']}")
def test_inclusion(case: dict[str, Any]) -> None:
    holds = inclusion_holds(
        leaf=_bytes(case["leafHash"]),
        index=case["leafIdx"],
        size=case["treeSize"],
        proof=_path(case),
        root=_bytes(case["root"]),
    )
    assert holds is not case["wantErr"]
    if holds and case["treeSize"] <= len(LEAVES) and case["root"] and "single" not in case["id"]:
        assert inclusion_proof(LEAVES, case["leafIdx"], case["treeSize"]) == _path(case)


@pytest.mark.parametrize("case", VECTORS["consistency"], ids=lambda case: f"{case['id'][:20]}:{case['desc']}")
def test_consistency(case: dict[str, Any]) -> None:
    holds = consistency_holds(
        first=case["size1"],
        first_root=_bytes(case["root1"]),
        second=case["size2"],
        second_root=_bytes(case["root2"]),
        proof=_path(case),
    )
    assert holds is not case["wantErr"]
    if holds and case["size2"] <= len(LEAVES):
        assert consistency_proof(LEAVES, case["size1"], case["size2"]) == _path(case)
