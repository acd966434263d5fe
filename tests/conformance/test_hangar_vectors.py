"""MCP Hangar's digests, made by running its own releases: every case, in both variants."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from assay_stream.schemes import hangar
from tests.support.errors import raises_code
from tests.support.vectors import id_of, vectors

CASES: list[dict[str, Any]] = vectors("mcp_hangar_digests")["cases"]
ROWS: list[dict[str, Any]] = vectors("peers_digest_matrix")["rows"]
VARIANTS: dict[str, Callable[[dict[str, Any]], str]] = {"v1.2.0": hangar.digest_v1_2, "v2.21.2": hangar.digest_v2}
COLUMNS = {"hangar_1.2.0": hangar.digest_v1_2, "hangar_2.21.2": hangar.digest_v2}
CODES = {"ValueError": "tool_name_missing", "UnicodeEncodeError": "lone_surrogate"}
"""Our code for what Hangar raises."""


def _check(compute: Callable[[dict[str, Any]], str], tool: dict[str, Any], sha256: str, error: str) -> None:
    if not error:
        assert compute(tool) == sha256
        return
    with raises_code(CODES[error.partition(":")[0]]):
        compute(tool)


def test_the_vectors_are_all_there() -> None:
    assert (len(CASES), len(ROWS)) == (38, 38)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", CASES, ids=id_of)
def test_each_case_in_each_variant(case: dict[str, Any], variant: str) -> None:
    # Not decoded strictly: the vectors hold half a surrogate pair.
    tool = json.loads(case["input_raw"])
    _check(VARIANTS[variant], tool, case[variant].get("sha256", ""), case[variant].get("error", ""))


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("row", ROWS, ids=id_of)
def test_each_row_of_the_matrix(row: dict[str, Any], column: str) -> None:
    found = row[column]
    failed = found if "Error" in found else ""
    _check(COLUMNS[column], json.loads(row["input_raw"]), found, failed)
