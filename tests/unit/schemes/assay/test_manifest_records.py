"""Manifest records: what is not as published is refused with its path."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.schemes.assay.manifest import read_declared, read_observed

VECTORS = Path(__file__).parents[3] / "data" / "vectors" / "assay_manifest_drift_p60.json"
FILES = json.loads(VECTORS.read_text(encoding="utf-8"))["files"]
DECLARED = {key: value for key, value in FILES["declared_per_tool_baseline.json"].items() if key != "note"}
OBSERVED = FILES["granular_diff_cases.json"]["cases"][0]["observed"]
Read = Callable[[Any], Any]


def test_unknown_fields_are_ignored() -> None:
    record = copy.deepcopy(DECLARED)
    record["tools"][0]["novelty"] = record["novelty"] = 1
    assert read_declared(record) == read_declared(DECLARED)


def test_a_list_that_was_not_observed_is_not_observed() -> None:
    record = copy.deepcopy(OBSERVED)
    record["observed"]["tools_list_observed"] = False
    assert read_observed(record).status == "not_observed"


@pytest.mark.parametrize("record", [None, [], "x", 5])
@pytest.mark.parametrize("read", [read_observed, read_declared])
def test_a_record_is_an_object(read: Read, record: Any) -> None:
    with pytest.raises(InputError) as caught:
        read(record)
    assert (caught.value.code, caught.value.path) == ("wrong_type", "$")


@pytest.mark.parametrize(
    ("read", "place", "value", "code"),
    [
        (read_declared, "schema", "v9", "unknown_value"),
        (read_declared, "server", [], "wrong_type"),
        (read_declared, "server.id", 5, "wrong_type"),
        (read_declared, "manifest_digest", "sha256:abc", "bad_digest"),
        (read_declared, "manifest_digest", None, "wrong_type"),
        (read_declared, "tools", {}, "wrong_type"),
        (read_declared, "tools.0", 5, "wrong_type"),
        (read_declared, "tools.0.name", None, "wrong_type"),
        (read_declared, "tools.0.tool_digest", "0" * 64, "bad_digest"),
        (read_declared, "tools.0.privileged", 1, "wrong_type"),
        (read_declared, "tools.0.field_digests", [], "wrong_type"),
        (read_declared, "tools.0.field_digests.annotations", "x", "bad_digest"),
        (read_observed, "status", "clean", "unknown_value"),
        (read_observed, "observed", None, "wrong_type"),
        (read_observed, "observed.tools_list_complete", "yes", "unknown_value"),
        (read_observed, "observed.tools_list_observed", "yes", "wrong_type"),
        (read_observed, "observed.canonicalization", None, "wrong_type"),
        (read_observed, "observed.tool_digests.1.name", [], "wrong_type"),
    ],
)
def test_a_wrong_part_is_refused_with_its_path(read: Read, place: str, value: Any, code: str) -> None:
    record = copy.deepcopy(DECLARED if read is read_declared else OBSERVED)
    *way, last = place.split(".")
    part: Any = record
    for step in way:
        part = part[int(step) if step.isdigit() else step]
    part[int(last) if last.isdigit() else last] = value
    with pytest.raises(InputError) as caught:
        read(record)
    path = "$" + "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in (*way, last))
    assert (caught.value.code, caught.value.path) == (code, path)


@pytest.mark.parametrize("read", [read_observed, read_declared])
def test_a_missing_part_is_named(read: Read) -> None:
    whole = DECLARED if read is read_declared else OBSERVED
    for name in whole:
        with pytest.raises(InputError) as caught:
            read({key: value for key, value in whole.items() if key != name})
        assert (caught.value.code, caught.value.path) == ("missing_field", f"$.{name}")
