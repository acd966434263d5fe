"""MCPTrust's hashes, risk levels and drift, made by running its own code: every case."""

import json
from hashlib import sha256
from typing import Any

import pytest

from assay_stream.schemes import mcptrust_hashes as mcptrust, mcptrust_lockfile as lockfile
from tests.support.errors import raises_code
from tests.support.vectors import id_of, vectors

HASHES = vectors("mcptrust_hashes")
DRIFT = vectors("mcptrust_drift")
ROWS = vectors("peers_digest_matrix")["rows"]
SCHEMES = {
    "description_hash": mcptrust.description_hash,
    "input_schema_hash": mcptrust.input_schema_hash,
    "risk_level": mcptrust.risk_level,
}


def _refused(tool: dict[str, Any]) -> None:
    for compute in SCHEMES.values():
        with raises_code("wrong_type"):
            compute(tool)


def test_the_vectors_are_all_there() -> None:
    assert (len(HASHES["cases"]), len(DRIFT["cases"]), len(ROWS)) == (38, 13, 38)
    assert list(mcptrust.RISK_WORDS) == HASHES["keywords"]


@pytest.mark.parametrize("case", HASHES["cases"], ids=id_of)
def test_the_canonical_form(case: dict[str, Any]) -> None:
    written = mcptrust.go_canonical(json.loads(case["input_raw"]))
    assert written.decode() == case["canon_v1"]
    assert sha256(written).hexdigest() == case["canon_v1_sha256"]


@pytest.mark.parametrize("case", HASHES["cases"], ids=id_of)
def test_hashes_and_risk_level(case: dict[str, Any]) -> None:
    # Not decoded strictly: the vectors hold half a surrogate pair.
    tool = json.loads(case["input_raw"])
    if "tool_parse_error" in case:
        _refused(tool)
    else:
        assert {name: compute(tool) for name, compute in SCHEMES.items()} == {name: case[name] for name in SCHEMES}


@pytest.mark.parametrize("row", ROWS, ids=id_of)
def test_each_row_of_the_matrix(row: dict[str, Any]) -> None:
    tool = json.loads(row["input_raw"])
    if row["mcptrust_risk"] is None:
        _refused(tool)
    else:
        assert mcptrust.description_hash(tool) == row["mcptrust_description_hash"]
        assert mcptrust.input_schema_hash(tool) == row["mcptrust_input_schema_hash"]
        assert mcptrust.risk_level(tool) == row["mcptrust_risk"]


@pytest.mark.parametrize("case", DRIFT["cases"], ids=id_of)
def test_lockfiles_are_made_read_and_written(case: dict[str, Any]) -> None:
    locked = lockfile.lock(case["before"])
    meta = case["lockfile_v3"]["meta"]
    stamp = lockfile.LockfileStamp(meta["generator"], meta["updatedAt"])
    for version, given in (("lockfile_v2", None), ("lockfile_v3", stamp)):
        one = lockfile.new_lockfile(locked, server="srv", stamp=given)
        assert json.loads(lockfile.write_lockfile(one)) == case[version]
        read = lockfile.read_lockfile(json.dumps(case[version]).encode())
        assert read.lock == one.lock
        assert json.loads(lockfile.write_lockfile(read)) == case[version]


def test_the_golden_lockfile() -> None:
    files = DRIFT["fixtures"]
    golden = files["testdata/golden/mcp-lock.v3.json"]
    read = lockfile.read_lockfile(json.dumps(golden).encode())
    assert lockfile.write_lockfile(read).decode() == json.dumps(golden, indent=2) + "\n"
    manifest = (
        files["testdata/mcp/prompts_list.json"]["result"]
        | files["testdata/mcp/resources_templates_list.json"]["result"]
    )
    assert read.lock == lockfile.lock(manifest)


def test_the_canonical_form_of_a_lockfile() -> None:
    """It is that of MCPTrust's fixture.

    The digest beside the fixture (``canon_sha256_v1``) is of other bytes: the canonical file that MCPTrust keeps, which
    stands below, does not have it either. Its code does not check it.
    """
    document = DRIFT["fixtures"]["testdata/canon_vectors/input.json"]
    canonical = (
        b'{"server_command":"test-server","tools":{"alpha_tool":{"description_hash":"sha256:123",'
        b'"input_schema_hash":"sha256:456","risk_level":"HIGH"},"zeta_tool":{"description_hash":"sha256:abc",'
        b'"input_schema_hash":"sha256:def","risk_level":"LOW"}},"version":"1.0"}'
    )
    assert mcptrust.go_canonical(document) == canonical
