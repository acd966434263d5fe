"""MCPTrust's hashes, risk levels and drift, made by running its own code: every case."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from assay_stream.core.errors import InputError
from assay_stream.schemes import mcptrust, mcptrust_drift

VECTORS = Path(__file__).resolve().parents[1] / "data" / "vectors"


def _load(name: str) -> Any:
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


HASHES = _load("mcptrust_hashes.json")
DRIFT = _load("mcptrust_drift.json")
ROWS = _load("peers_digest_matrix.json")["rows"]
SCHEMES = {
    "description_hash": mcptrust.description_hash,
    "input_schema_hash": mcptrust.input_schema_hash,
    "risk_level": mcptrust.risk_level,
}


def _id(case: dict[str, Any]) -> str:
    return str(case["id"])


def _refused(tool: dict[str, Any]) -> None:
    for compute in SCHEMES.values():
        with pytest.raises(InputError) as caught:
            compute(tool)
        assert caught.value.code == "wrong_type"


def test_the_vectors_are_all_there() -> None:
    """No file has lost a case, and the words are MCPTrust's."""
    assert (len(HASHES["cases"]), len(DRIFT["cases"]), len(ROWS)) == (38, 13, 38)
    assert list(mcptrust.RISK_WORDS) == HASHES["keywords"]


@pytest.mark.parametrize("case", HASHES["cases"], ids=_id)
def test_the_canonical_form(case: dict[str, Any]) -> None:
    """A whole tool is written byte for byte as Go writes it."""
    written = mcptrust.go_canonical(json.loads(case["input_raw"]))
    assert written.decode() == case["canon_v1"]
    assert sha256(written).hexdigest() == case["canon_v1_sha256"]


@pytest.mark.parametrize("case", HASHES["cases"], ids=_id)
def test_hashes_and_risk_level(case: dict[str, Any]) -> None:
    """Both hashes and the risk level agree; what MCPTrust cannot read is refused."""
    # Not decoded strictly: the vectors hold half a surrogate pair.
    tool = json.loads(case["input_raw"])
    if "tool_parse_error" in case:
        _refused(tool)
    else:
        assert {name: compute(tool) for name, compute in SCHEMES.items()} == {name: case[name] for name in SCHEMES}


@pytest.mark.parametrize("row", ROWS, ids=_id)
def test_each_row_of_the_matrix(row: dict[str, Any]) -> None:
    """The columns of MCPTrust in the matrix of peers agree too."""
    tool = json.loads(row["input_raw"])
    if row["mcptrust_risk"] is None:
        _refused(tool)
    else:
        assert mcptrust.description_hash(tool) == row["mcptrust_description_hash"]
        assert mcptrust.input_schema_hash(tool) == row["mcptrust_input_schema_hash"]
        assert mcptrust.risk_level(tool) == row["mcptrust_risk"]


@pytest.mark.parametrize("case", DRIFT["cases"], ids=_id)
def test_drift_under_a_v2_lockfile(case: dict[str, Any]) -> None:
    """The same tools drift in the same way, with the same old and new values."""
    items = mcptrust_drift.drift_between(case["before"], case["after"])
    assert (mcptrust_drift.drift_v2(items) or None) == case["drift_v2"]


@pytest.mark.parametrize("case", DRIFT["cases"], ids=_id)
def test_the_result_of_a_v3_check(case: dict[str, Any]) -> None:
    """Type, severity, identifier, hashes, summary and outcome agree; the messages are our own."""
    expected = case["check_result_v3"]
    found = mcptrust_drift.check_result(
        mcptrust_drift.drift_between(case["before"], case["after"]),
        server=expected["server"],
        lockfile=expected["lockfile"],
        severities=mcptrust_drift.CODE,
    )
    assert all(item.pop("message") for item in found["drift"])
    assert found == expected | {
        "drift": [{k: v for k, v in item.items() if k != "message"} for item in expected["drift"]]
    }
