"""Merkle trees of RFC 9162, held against the published vectors of Certificate Transparency."""

import base64
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay_stream.model.checkpoint import leaf_of, origin_of
from assay_stream.model.record import Record
from assay_stream.schemes.tlog import (
    EMPTY_ROOT,
    Frontier,
    consistency_holds,
    consistency_proof,
    inclusion_holds,
    inclusion_proof,
    leaf_hash,
    verifier_key,
)
from assay_stream.seal.proof import chain_of, inclusion
from tests.support.seals import KEY, KEYS, OTHER_KEY, TOPIC, checkpoints_of, some_records
from tests.support.vectors import vectors

VECTORS = vectors("rfc9162_merkle")
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


_NEEDS_GO = pytest.mark.skipif(shutil.which("go") is None, reason="the verifier is Go's")
pytestmark = pytest.mark.xdist_group("verifier")

RANGES = [some_records(2, 3, 5), some_records(6), some_records(9, 10, 11, 13)]
RECORDS = [record for records in RANGES for record in records]
ORIGIN = origin_of("example.com/test", TOPIC, 0)


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("tlog") / "tlogcheck"
    subprocess.run(["go", "build", "-o", program, "."], cwd=Path(__file__).parent / "tlog", check=True, timeout=240)
    return program


def verified(verifier: Path, vkey: str, folder: Path, record: Record, leaf: bytes) -> subprocess.CompletedProcess[str]:
    seals = checkpoints_of(*RANGES, log_name="example.com/test")
    proof = folder / "p.tlog-proof"
    proof.write_text(inclusion(lambda: chain_of(enumerate(seals), KEYS), record.origin.offset).as_tlog())
    return subprocess.run([verifier, vkey, proof, leaf.hex()], capture_output=True, text=True, check=False)


@pytest.mark.servers
@_NEEDS_GO
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.origin.offset))
def test_another_verifier_accepts_every_proof(verifier: Path, tmp_path: Path, record: Record) -> None:
    """With the key as `seal vkey` prints it."""
    done = verified(verifier, verifier_key(ORIGIN, KEY.public_key()), tmp_path, record, leaf_of(record))
    assert done.stdout == f"included: leaf {RECORDS.index(record)} of {len(RECORDS)} in {ORIGIN}\n", done.stderr


@pytest.mark.servers
@_NEEDS_GO
def test_another_verifier_refuses_another_key_and_another_record(verifier: Path, tmp_path: Path) -> None:
    record, key = RECORDS[0], verifier_key(ORIGIN, KEY.public_key())
    other = verifier_key(ORIGIN, OTHER_KEY.public_key())
    assert verified(verifier, other, tmp_path, record, leaf_of(record)).returncode == 1
    assert verified(verifier, key, tmp_path, record, leaf_of(RECORDS[1])).returncode == 1
