"""Our proofs in text form, verified by the Go project's signed-note reader and transparency-dev's Merkle library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from assay_stream.model.record import Record
from assay_stream.schemes.tlog import verifier_key
from assay_stream.seal.checkpoint import leaf_of, origin_of
from assay_stream.seal.proof import chain_of, inclusion
from tests.support.seals import KEY, KEYS, OTHER_KEY, TOPIC, checkpoints_of, some_records

pytestmark = [pytest.mark.servers, pytest.mark.skipif(shutil.which("go") is None, reason="the verifier is Go's")]

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


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.origin.offset))
def test_another_verifier_accepts_every_proof(verifier: Path, tmp_path: Path, record: Record) -> None:
    """With the key as `seal vkey` prints it."""
    done = verified(verifier, verifier_key(ORIGIN, KEY.public_key()), tmp_path, record, leaf_of(record))
    assert done.stdout == f"included: leaf {RECORDS.index(record)} of {len(RECORDS)} in {ORIGIN}\n", done.stderr


def test_another_verifier_refuses_another_key_and_another_record(verifier: Path, tmp_path: Path) -> None:
    record, key = RECORDS[0], verifier_key(ORIGIN, KEY.public_key())
    other = verifier_key(ORIGIN, OTHER_KEY.public_key())
    assert verified(verifier, other, tmp_path, record, leaf_of(record)).returncode == 1
    assert verified(verifier, key, tmp_path, record, leaf_of(RECORDS[1])).returncode == 1
