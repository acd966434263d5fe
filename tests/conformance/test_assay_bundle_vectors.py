"""Assay's own evidence bundles: its golden bundle to the byte, and one of its conformance bundles."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.export.input import read_bundle, verify_bundle, write_bundle
from assay_stream.schemes.assay.bundle import RunRoot, event_line, read_manifest, run_event
from tests.support.exports import members, rebuilt

VECTORS = Path(__file__).resolve().parents[1] / "data" / "vectors"
ENVELOPE = json.loads((VECTORS / "assay_evidence_envelope.json").read_text(encoding="utf-8"))
GOLDEN = ENVELOPE["golden"]
BUNDLES: list[dict[str, Any]] = ENVELOPE["bundles"]
RUN_ID = GOLDEN["event"]["assayrunid"]


def hex_of(raw: bytes) -> str:
    return sha256(raw).hexdigest()


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "golden.tar.gz"
    write_bundle(path, [GOLDEN["event"]], run_id=RUN_ID)
    return path


def test_the_golden_bundle_has_its_bytes(golden: Path) -> None:
    """The whole file, compressed: the digest that Assay's determinism test has."""
    assert hex_of(golden.read_bytes()) == GOLDEN["bundle_tar_gz_sha256"]


def test_the_golden_manifest_has_its_bytes(golden: Path) -> None:
    assert hex_of(members(golden)["manifest.json"]) == GOLDEN["manifest_json_sha256"]
    assert json.loads(members(golden)["manifest.json"]) == GOLDEN["manifest"]


def test_the_golden_events_have_their_bytes(golden: Path) -> None:
    assert members(golden)["events.ndjson"] == GOLDEN["line"].encode()
    assert hex_of(GOLDEN["line"].encode()) == GOLDEN["events_ndjson_sha256"]


def test_run_id_and_sequence_are_assigned() -> None:
    event = {name: value for name, value in GOLDEN["event"].items() if name not in ("assayrunid", "assayseq")}
    made = run_event(event | {"id": "whatever"}, run_id=RUN_ID, seq=0)
    assert event_line(made) == GOLDEN["line"].encode()


def test_the_root_of_no_event_is_the_vectors() -> None:
    assert str(RunRoot().digest()) == ENVELOPE["empty_run_root"]


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle["bundle"])
def test_a_bundle_of_assay_is_verified(bundle: dict[str, Any], tmp_path: Path) -> None:
    events = [entry["event"] for entry in bundle["events"]]
    lines = [canonicalize(event) for event in events]
    content = {
        "manifest.json": canonicalize(bundle["manifest"]),
        "events.ndjson": b"".join(line + b"\n" for line in lines),
    }
    path = rebuilt(tmp_path / "theirs.tar.gz", content)
    assert str(verify_bundle(path).run_root) == bundle["manifest"]["run_root"]
    assert list(read_bundle(path)) == lines


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle["bundle"])
def test_a_bundle_of_assay_is_written(bundle: dict[str, Any], tmp_path: Path) -> None:
    events = [entry["event"] for entry in bundle["events"]]
    path = tmp_path / "ours.tar.gz"
    write_bundle(path, events, run_id=bundle["manifest"]["run_id"])
    assert members(path)["manifest.json"] == canonicalize(bundle["manifest"])


def test_a_manifest_whose_id_is_not_its_root_is_refused() -> None:
    """As Assay's conformance bundle bad-109 has it."""
    with pytest.raises(InputError, match="run root") as caught:
        read_manifest(canonicalize(GOLDEN["manifest"] | {"bundle_id": "sha256:" + "0" * 64}))
    assert (caught.value.code, caught.value.path) == ("bundle_manifest", "$.bundle_id")
