"""MCP Hangar beyond its vectors: what is refused, the policy, and the event."""

from typing import Any

import pytest

from assay_stream.schemes import hangar
from assay_stream.schemes.hangar import Action, DigestPolicy
from tests.support.errors import raises_code


def _deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


class TestDigests:
    @pytest.mark.parametrize("empty", [None, "", {}, []])
    def test_since_1_2_1_the_empty_is_absent(self, empty: Any) -> None:
        """An empty field does not enter the newer digest; of the older one only null is kept out."""
        bare = {"name": "t"}
        for field in ("description", "inputSchema", "outputSchema"):
            assert hangar.digest_v2(bare | {field: empty}) == hangar.digest_v2(bare)
            same = hangar.digest_v1_2(bare | {field: empty}) == hangar.digest_v1_2(bare)
            assert same == (empty is None)

    def test_delete_is_escaped_up_to_1_2_0(self) -> None:
        """As mcp-hangar 1.2.0 prints it: U+007F is ASCII, but not printable."""
        tool = {"name": "t", "description": "a\x7fb", "inputSchema": {}}
        assert hangar.digest_v1_2(tool) == "4f41875f4eb5e3c517270c612a287e7e5fa7fb6b83673b7acba534864f7aedfa"

    @pytest.mark.parametrize("present", [0, False])
    def test_zero_and_false_are_present(self, present: Any) -> None:
        assert hangar.digest_v2({"name": "t", "description": present}) != hangar.digest_v2({"name": "t"})

    @pytest.mark.parametrize("field", ["annotations", "input_schema", "title"])
    def test_nothing_else_enters(self, field: str) -> None:
        for compute in (hangar.digest_v1_2, hangar.digest_v2):
            assert compute({"name": "t", field: {"x": 1}}) == compute({"name": "t"})

    def test_a_name_that_is_no_text(self) -> None:
        assert len(hangar.digest_v1_2({"name": 7})) == 64
        with raises_code("tool_name_missing", "$.name"):
            hangar.digest_v2({"name": 7})

    @pytest.mark.parametrize(
        ("schema", "code"),
        [
            ({"a": float("nan")}, "not_canonicalizable"),
            ({"a": 10**5000}, "not_canonicalizable"),
            ({"a": object()}, "not_canonicalizable"),
            (_deep(100_000), "too_deep"),
        ],
    )
    def test_what_is_no_json(self, schema: Any, code: str) -> None:
        for compute in (hangar.digest_v1_2, hangar.digest_v2):
            with raises_code(code):
                compute({"name": "t", "inputSchema": schema})


class TestPolicy:
    def test_the_defaults_are_those_of_the_gate(self) -> None:
        assert DigestPolicy().on_mismatch is Action.BLOCK
        assert DigestPolicy().on_unknown is Action.ALLOW

    def test_an_unknown_setting_is_refused(self) -> None:
        for setting in ({"unknown": "allow"}, {"enforcement": "allow"}):
            with pytest.raises(KeyError):
                DigestPolicy(**setting)
