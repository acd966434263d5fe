"""What a pin's value looks like under each scheme."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.schemes.fingerprint import SCHEMES, fingerprint
from assay_stream.schemes.pin_values import SCHEME_NAMES, check_value

BARE = "0123456789abcdef" * 4
PREFIXED = f"sha256:{BARE}"


@pytest.mark.parametrize(
    "tool",
    [{"name": "t"}, {"name": "rm", "inputSchema": {"type": "object"}}, {"name": "exec_shell", "description": "Runs."}],
)
def test_whatever_a_fingerprint_prints_can_be_pinned(tool: dict[str, Any]) -> None:
    assert set(SCHEMES) <= set(SCHEME_NAMES)
    for scheme, value in fingerprint(tool, server_id=None).schemes.items():
        assert check_value(scheme, value) == value


@pytest.mark.parametrize(
    ("scheme", "values"),
    [
        ("assay.v1", {PREFIXED}),
        ("assay.schema_hash", {BARE}),
        ("assay.meta_hash", {BARE}),
        ("assay.p60", {PREFIXED}),
        ("schemapin.v1", {BARE}),
        ("hangar.v1_2", {BARE}),
        ("hangar.v2", {BARE}),
        ("mcptrust.description_hash", {PREFIXED}),
        ("mcptrust.input_schema_hash", {PREFIXED, ""}),
        ("mcptrust.risk_level", {"LOW", "MEDIUM", "HIGH"}),
    ],
)
def test_each_scheme_takes_its_own_values_alone(scheme: str, values: set[str]) -> None:
    others = {"", BARE, PREFIXED, "LOW", "low", "MEDIUM", "HIGH", BARE.upper(), BARE[1:], f"{BARE}0", f"{BARE}\n"}
    for value in others | {f"{PREFIXED}\n", PREFIXED.upper(), f"sha512:{BARE}", "LOW\n"}:
        if value in values:
            assert check_value(scheme, value) == value
            continue
        with pytest.raises(InputError) as caught:
            check_value(scheme, value)
        assert caught.value.code == "bad_pin_value"
        assert scheme in caught.value.message


def test_another_scheme_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        check_value("assay.v2", PREFIXED)
    assert (caught.value.code, caught.value.path) == ("unknown_value", "$.scheme")
    assert "hangar.v2" in caught.value.message
