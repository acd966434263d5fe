"""Lockfiles: what survives, how they are written, and what is refused."""

import json
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.limits import PIN_FILE_LIMITS
from assay_stream.schemes.mcptrust_lockfile import lock, read_lockfile, write_lockfile
from tests.support.errors import raises_code

HASH = f"sha256:{'a' * 64}"
TOOL = {"description_hash": HASH, "input_schema_hash": HASH, "risk_level": "LOW"}
V2: dict[str, Any] = {"version": "2.0", "server_command": "npx <s>", "tools": {"t": TOOL}}
V3: dict[str, Any] = {
    "lockFileVersion": "3.0",
    "meta": {"generator": "mcptrust dev", "updatedAt": "2026-01-01T00:00:00Z"},
    "server": {"name": "s"},
    "prompts": {"definitions": {"p": {"argumentsHash": HASH, "descriptionHash": HASH}}},
    "resources": {"templates": [{"uriTemplate": "u", "templateHash": HASH, "mimeType": "x/y"}]},
    "tools": {"t": TOOL},
}


def _bytes(document: Any) -> bytes:
    return json.dumps(document).encode()


def _refused(raw: bytes) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        read_lockfile(raw)
    return caught.value.code, caught.value.path


def test_a_v3_lockfile_covers_all_three() -> None:
    """A section that is missing covers nothing, which is not the same as not covering."""
    found = read_lockfile(_bytes(V3))
    assert found.server == "s"
    assert found.lock.prompts is not None
    assert found.lock.prompts["p"]["descriptionHash"] == HASH
    assert found.lock.templates is not None
    assert found.lock.templates["u"]["mimeType"] == "x/y"
    bare = read_lockfile(_bytes({name: V3[name] for name in ("lockFileVersion", "server", "tools")}))
    assert (bare.lock.prompts, bare.lock.templates) == ({}, {})


@pytest.mark.parametrize(
    "document",
    [
        V2 | {"artifact": {"type": "npm", "version": "1"}, "x": [1]} | {"tools": {"t": TOOL | {"x": {"y": 1}}}},
        V3
        | {"server": {"name": "s", "artifact": {"type": "oci"}}, "x": 1}
        | {"prompts": {"definitions": {"p": {"argumentsHash": HASH, "titleHash": HASH}}, "x": 1}}
        | {"resources": {"templates": [{"uriTemplate": "u", "templateHash": HASH, "x": 1}], "x": 1}},
    ],
)
def test_unknown_members_survive(document: dict[str, Any]) -> None:
    assert json.loads(write_lockfile(read_lockfile(_bytes(document)))) == document


@pytest.mark.parametrize("version", ["4.0", "3.1", "2", "", None, 2, ["2.0"]])
@pytest.mark.parametrize("name", ["version", "lockFileVersion"])
def test_an_unknown_version_is_refused(name: str, version: Any) -> None:
    with raises_code("unknown_lockfile_version") as caught:
        read_lockfile(_bytes({name: version, "tools": {}}))
    assert "1.0, 2.0, 3.0" in caught.value.message


@pytest.mark.parametrize(
    ("document", "code", "path"),
    [
        ([], "wrong_type", "$"),
        ({"version": "2.0", "server_command": ""}, "missing_field", "$.tools"),
        ({"version": "2.0", "tools": {}}, "missing_field", "$.server_command"),
        (V2 | {"tools": []}, "wrong_type", "$.tools"),
        (V2 | {"tools": {"t": []}}, "wrong_type", '$.tools["t"]'),
        (V2 | {"tools": {"t": {}}}, "missing_field", '$.tools["t"].risk_level'),
        (V2 | {"tools": {"t": TOOL | {"risk_level": "high"}}}, "unknown_value", '$.tools["t"].risk_level'),
        (V2 | {"tools": {"t": TOOL | {"description_hash": ""}}}, "bad_digest", '$.tools["t"].description_hash'),
        (V2 | {"tools": {"t": TOOL | {"description_hash": "a" * 64}}}, "bad_digest", '$.tools["t"].description_hash'),
        (V2 | {"tools": {"t": TOOL | {"input_schema_hash": "x"}}}, "bad_digest", '$.tools["t"].input_schema_hash'),
        (V2 | {"tools": {"t": TOOL | {"input_schema_hash": 1}}}, "wrong_type", '$.tools["t"].input_schema_hash'),
        (V3 | {"server": {}}, "missing_field", "$.server.name"),
        (V3 | {"server": None}, "wrong_type", "$.server"),
        (V3 | {"prompts": {"definitions": {"p": {}}}}, "missing_field", '$.prompts.definitions["p"].argumentsHash'),
        (V3 | {"resources": {"templates": {}}}, "wrong_type", "$.resources.templates"),
        (
            V3 | {"resources": {"templates": V3["resources"]["templates"] * 2}},
            "ambiguous_name",
            "$.resources.templates[1]",
        ),
        (
            V3 | {"resources": {"templates": [{"uriTemplate": "u", "templateHash": HASH, "mimeType": 1}]}},
            "wrong_type",
            "$.resources.templates[0].mimeType",
        ),
    ],
)
def test_what_is_refused(document: Any, code: str, path: str) -> None:
    assert _refused(_bytes(document)) == (code, path)


def test_a_tool_that_stands_twice_is_refused() -> None:
    """A lenient reader would keep the last, and another the first."""
    raw = _bytes(V2).replace(b'"t":', b'"u": {}, "u":')
    assert _refused(raw) == ("duplicate_key", "$.tools.u")


@pytest.mark.parametrize("document", [V2, V3])
def test_a_truncated_lockfile_is_refused(document: dict[str, Any]) -> None:
    raw = _bytes(document)
    for length in range(len(raw)):
        assert _refused(raw[:length])[0] == "not_json"


def test_a_lockfile_has_a_size() -> None:
    raw = _bytes(V2).ljust(PIN_FILE_LIMITS.record_bytes_max)
    assert read_lockfile(raw).version == "2.0"
    assert _refused(raw + b" ")[0] == "too_large"


@pytest.mark.parametrize(
    ("manifest", "code", "path"),
    [
        ({"tools": [{"name": "t"}, {"name": "t"}]}, "ambiguous_tool_name", "$.tools[1]"),
        ({"prompts": [{"name": "p"}, {"name": "p"}]}, "ambiguous_name", "$.prompts[1]"),
        ({"resourceTemplates": [{}, {}]}, "ambiguous_name", "$.resourceTemplates[1]"),
        ({"tools": {}}, "wrong_type", "$.tools"),
        ({"tools": [1]}, "wrong_type", "$.tools"),
        ({"tools": [{"name": "t", "description": 1}]}, "wrong_type", "$.tools[0].description"),
        ({"prompts": [{"name": 1}]}, "wrong_type", "$.prompts[0].name"),
        ({"prompts": [{"arguments": [1]}]}, "wrong_type", "$.prompts[0].arguments"),
        ({"prompts": [{"arguments": [{"required": 1}]}]}, "wrong_type", "$.prompts[0].required"),
        ({"resourceTemplates": [{"mimeType": 1}]}, "wrong_type", "$.resourceTemplates[0].mimeType"),
    ],
)
def test_what_cannot_be_locked(manifest: dict[str, Any], code: str, path: str) -> None:
    with raises_code(code, path):
        lock(manifest)
