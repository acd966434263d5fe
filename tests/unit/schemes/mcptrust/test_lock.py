"""What MCPTrust locks, and lists that cannot be locked."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.schemes.mcptrust import hashes as mcptrust
from assay_stream.schemes.mcptrust.lockfile import lock, lock_tool


def test_a_missing_list_is_empty() -> None:
    found = lock({})
    assert (found.tools, found.prompts, found.templates) == ({}, {}, {})


def test_a_tool() -> None:
    tool = {"name": "run", "description": "d", "inputSchema": {"type": "object"}}
    found = lock_tool(tool)
    assert found.description_hash == mcptrust.description_hash(tool)
    assert found.input_schema_hash == mcptrust.input_schema_hash(tool)
    assert found.risk_level == "MEDIUM"
    assert lock({"tools": [tool]}).tools == {"run": found}


def test_the_order_of_arguments_means_nothing() -> None:
    one = {"name": "p", "arguments": [{"name": "b"}, {"name": "a", "required": False, "description": ""}]}
    other = {"name": "p", "arguments": [{"name": "a"}, {"name": "b"}]}
    assert lock({"prompts": [one]}) == lock({"prompts": [other]})


def test_no_text_has_no_hash() -> None:
    """Names and descriptions that are absent or empty are not locked."""
    prompts, templates = ([{"name": "p", "description": ""}], [{"uriTemplate": "u", "name": "", "description": None}])
    found = lock({"prompts": prompts, "resourceTemplates": templates})
    assert found.prompts is not None
    assert found.templates is not None
    assert found.prompts["p"].description_hash == ""
    assert (found.templates["u"].name_hash, found.templates["u"].description_hash) == ("", "")


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
    with pytest.raises(InputError) as caught:
        lock(manifest)
    assert (caught.value.code, caught.value.path) == (code, path)
