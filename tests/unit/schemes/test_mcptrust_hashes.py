"""MCPTrust beyond its vectors: Go's way of writing JSON, and the risk words."""

from hashlib import sha256
from typing import Any

import pytest

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import Canonicalized
from assay_stream.schemes import mcptrust_hashes as mcptrust
from tests.support.counting import counted_calls
from tests.support.errors import raises_code
from tests.support.peaks import begin_peak_anew, resident_mb


def _deep(levels: int) -> list[Any]:
    value: list[Any] = [0.5]
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("<a href='x'>&</a>", rb'''"\u003ca href='x'\u003e\u0026\u003c/a\u003e"'''),
        ("\u2028\u2029", rb'"\u2028\u2029"'),
        ("\x00\x1f\n\t\r\b\f\x7f", b'"\\u0000\\u001f\\n\\t\\r\\b\\f\x7f"'),
        ('\\b"\\', rb'"\\b\"\\"'),
        ({"<": 1}, rb'{"\u003c":1}'),
        ({"\U0001f600": 1, "\uff3a": 2}, '{"\uff3a":2,"\U0001f600":1}'.encode()),
        ([1.0, -0.0, 0.0, 1e21, 1e20, 1e-7, 1e-6], b"[1,-0,0,1e+21,100000000000000000000,1e-7,0.000001]"),
        ([2**53 + 1, -(2**64)], b"[9007199254740992,-18446744073709552000]"),
        ([[], {}, None, True, False], b"[[],{},null,true,false]"),
        ("\ud800x\udc00", '"\ufffdx\ufffd"'.encode()),
    ],
)
def test_json_as_go_writes_it(value: Any, written: bytes) -> None:
    """Escapes, key order and numbers are those of encoding/json since Go 1.22."""
    assert mcptrust.go_canonical(value) == written


def test_a_value_deep_inside_costs_what_it_costs_outside() -> None:
    wide = [0.5] * 2_000
    deep: Any = wide
    for _ in range(100):
        deep = [deep]
    costs = [counted_calls(lambda value=value: mcptrust.go_canonical(value)) for value in (deep, wide)]  # type: ignore[misc]
    assert costs[0] < costs[1] + 2_000


def test_many_parts_take_memory_by_what_they_are() -> None:
    """Half a megabyte of short numbers takes a few times that, whatever the serialiser reserves for each."""
    value = {"\u00e9": [0] * 250_000}
    begin_peak_anew()
    before_mb = resident_mb("VmRSS")
    assert len(mcptrust.go_canonical(value)) > 500_000
    assert resident_mb("VmHWM") - before_mb < 48


def test_minus_zero_is_kept_as_go_keeps_it() -> None:
    """Go reads every number as a double, so that an integer -0 is one too; the expected hash is Go's own."""
    tool = decode_json(b'{"name":"t","inputSchema":{"a":-0}}')
    assert mcptrust.input_schema_hash(tool).startswith("sha256:dbd681e5")
    assert mcptrust.input_schema_hash(decode_json(b'{"name":"t","inputSchema":{"a":0}}')) != (
        mcptrust.input_schema_hash(tool)
    )


def test_a_peer_built_with_an_older_go_escapes_two_characters_otherwise() -> None:
    """Before Go 1.22 U+0008 and U+000C were written in hexadecimal, and an escaped backslash stands as it is."""
    schema = {"a\b": "\f\\b"}
    older = rb'{"a\u0008":"\u000c\\b"}'
    assert mcptrust.input_schema_hash_before_go_1_22({"name": "t", "inputSchema": schema}) == (
        f"sha256:{sha256(older).hexdigest()}"
    )
    assert mcptrust.input_schema_hash_before_go_1_22({"name": "t", "inputSchema": {"a": "\\b"}}) is None


@pytest.mark.parametrize("members", [{"a": {"x": -0.0}}, {"a": {"\U0001f600": 1, "\uff3a": 2}}, {"a": {"<": "&"}}])
def test_a_form_that_is_known_already_changes_nothing(members: dict[str, Any]) -> None:
    """What RFC 8785 writes otherwise than Go is not taken from the canonical form, however deep it stands."""
    expected = mcptrust.go_canonical(members)
    assert mcptrust.go_canonical(Canonicalized(members)) == expected
    assert mcptrust.go_canonical({"a": Canonicalized(members["a"])}) == expected


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({1: 2}, "not_canonicalizable"),
        (float("inf"), "not_canonicalizable"),
        (object(), "not_canonicalizable"),
        (_deep(100_000), "too_deep"),
        (_deep(255), "too_deep"),
    ],
)
def test_what_is_no_json_is_refused(value: Any, code: str) -> None:
    with raises_code(code):
        mcptrust.go_canonical(value)


@pytest.mark.parametrize("schema", [[], "object", 0, True])
def test_a_schema_that_is_no_object_refuses_the_tool(schema: Any) -> None:
    for compute in (mcptrust.description_hash, mcptrust.input_schema_hash, mcptrust.risk_level):
        with raises_code("input_schema_not_object"):
            compute({"name": "t", "inputSchema": schema})


@pytest.mark.parametrize("tool", [{}, {"inputSchema": None}, {"inputSchema": {}}])
def test_no_schema_has_no_hash(tool: dict[str, Any]) -> None:
    assert mcptrust.input_schema_hash(tool) == ""


def test_null_reads_as_an_empty_text() -> None:
    assert mcptrust.description_hash({"description": None}) == mcptrust.description_hash({"description": ""})


@pytest.mark.parametrize(
    ("name", "description", "level"),
    [
        ("list", "Lists files.", "LOW"),
        ("RM", "", "MEDIUM"),
        ("list", "Kills.", "MEDIUM"),
        ("run", "kill", "HIGH"),
        ("r", "m", "LOW"),
        ("kİll", "", "MEDIUM"),
        ("\u212aill", "", "MEDIUM"),
        ("information", "", "MEDIUM"),
        ("perform", "a file's transform", "MEDIUM"),
        ("lifsafe", "", "MEDIUM"),
        ("filesystem", "", "MEDIUM"),
        ("format_date", "", "MEDIUM"),
        ("confirm", "", "MEDIUM"),
        ("retrieval", "", "MEDIUM"),
        ("evaluate", "", "MEDIUM"),
        ("skills", "", "MEDIUM"),
        ("overrun", "", "MEDIUM"),
        ("trunk", "", "MEDIUM"),
        ("execute", "", "HIGH"),
        ("drop_database", "", "LOW"),
    ],
)
def test_risk_words_are_found_anywhere(name: str, description: str, level: str) -> None:
    assert mcptrust.risk_level({"name": name, "description": description}) == level


@pytest.mark.parametrize("text", ["a\nb\n", "a\r\nb\r\n", "a \rb\t \n"])
def test_normalised_texts_have_one_hash(text: str) -> None:
    assert mcptrust.normalized_hash(text) == mcptrust.text_hash("a\nb\n")
    assert mcptrust.normalized_hash(f" {text}") != mcptrust.text_hash("a\nb\n")
