"""Real releases of real servers: the changes between them are exactly the recorded ones."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay_stream.canonical.decode import decode_json
from assay_stream.schemes.fingerprint import Fingerprint, changed_fields, fingerprint

CAPTURES = Path(__file__).resolve().parents[1] / "data" / "captures"
DRIFTS = json.loads((CAPTURES / "DRIFT.json").read_text(encoding="utf-8"))


def _fingerprints(package: str, version: str) -> dict[str, Fingerprint]:
    raw = (CAPTURES / f"{package}@{version}.tools_list.json").read_bytes()
    tools = decode_json(raw)["result"]["tools"]
    return {tool["name"]: fingerprint(tool, server_id=None) for tool in tools}


def _releases(drift: dict[str, Any]) -> tuple[dict[str, Fingerprint], dict[str, Fingerprint]]:
    return _fingerprints(drift["package"], drift["from"]), _fingerprints(drift["package"], drift["to"])


def _changes(drift: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    before, after = _releases(drift)
    changes = {name: changed_fields(before[name], after[name]) for name in before.keys() & after.keys()}
    return {name: fields for name, fields in changes.items() if fields}


def _id(drift: dict[str, Any]) -> str:
    return f"{drift['package']}-{drift['from']}-{drift['to']}"


@pytest.mark.parametrize("drift", DRIFTS, ids=_id)
class TestDrift:
    def test_added_and_removed(self, drift: dict[str, Any]) -> None:
        before, after = _releases(drift)
        assert sorted(after.keys() - before.keys()) == drift["added"]
        assert sorted(before.keys() - after.keys()) == drift["removed"]
        assert len(before.keys() & after.keys()) == drift["common"]

    def test_changed_tools(self, drift: dict[str, Any]) -> None:
        before, after = _releases(drift)
        changes = _changes(drift)
        assert len(changes) == drift["changed"]
        assert changes.keys() == {
            name for name in before.keys() & after.keys() if before[name].full != after[name].full
        }

    def test_changed_fields(self, drift: dict[str, Any]) -> None:
        changes = _changes(drift)
        assert Counter(field for fields in changes.values() for field in fields) == drift["changed_fields"]
        for name, fields in drift["examples"].items():
            assert changes[name] == tuple(fields)

    def test_changed_definition_digests(self, drift: dict[str, Any]) -> None:
        before, after = _releases(drift)
        common = before.keys() & after.keys()
        changed = [name for name in common if before[name].definition_digest() != after[name].definition_digest()]
        assert len(changed) == drift["changed_in_assay_v1_projection"]
