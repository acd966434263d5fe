"""Assay tool pins: equal, drifted, never observed."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.schemes.assay.pins import PinnedIdentity, tool_identity, tool_pin_verdict

TOOL: dict[str, Any] = {"name": "t", "description": "d", "inputSchema": {"type": "object"}}


def test_a_match_has_no_reason() -> None:
    """Equal identities match, and Assay has no reason code for that."""
    identity = tool_identity(TOOL, server_id="s")
    verdict = tool_pin_verdict(identity, tool_identity(dict(TOOL), server_id="s"))
    assert (verdict.outcome, verdict.reason_code, verdict.differing) == ("match", None, ())


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        ({"description": "other"}, ("meta_hash",)),
        ({"description": " d"}, ("meta_hash",)),
        ({"inputSchema": {}}, ("schema_hash",)),
        ({"inputSchema": None, "description": None}, ("schema_hash", "meta_hash")),
        ({"name": "u"}, ("tool_name",)),
    ],
)
def test_a_difference_is_drift(change: dict[str, Any], differing: tuple[str, ...]) -> None:
    """Any part that differs gives Assay's reason, and is named."""
    expected = tool_identity(TOOL, server_id="s")
    verdict = tool_pin_verdict(expected, tool_identity(TOOL | change, server_id="s"))
    assert (verdict.outcome, verdict.reason_code) == ("drift", "P_TOOL_DRIFT")
    assert verdict.differing == differing


def test_another_server_is_drift() -> None:
    """A pin is for one server: the same tool on another one is not it."""
    expected, observed = (tool_identity(TOOL, server_id=name) for name in ("s", "t"))
    assert tool_pin_verdict(expected, observed).differing == ("server_id",)


def test_what_was_never_observed_is_said_so() -> None:
    """A pinned tool without an observation is neither a match nor drift."""
    verdict = tool_pin_verdict(tool_identity(TOOL, server_id="s"), None)
    assert (verdict.outcome, verdict.reason_code) == ("unobserved", "P_TOOL_UNOBSERVED")


@pytest.mark.parametrize("field", ["schema_hash", "meta_hash"])
@pytest.mark.parametrize("text", ["", "0" * 63, "A" * 64, f"sha256:{'0' * 64}", "0" * 64 + "\n"])
def test_a_pin_is_lowercase_hexadecimal(field: str, text: str) -> None:
    """A pin that could never match is refused when it is made, with the field that is wrong."""
    hashes = {"schema_hash": "0" * 64, "meta_hash": "0" * 64} | {field: text}
    with pytest.raises(InputError) as caught:
        PinnedIdentity(server_id="s", tool_name="t", **hashes)
    assert (caught.value.code, caught.value.path) == ("bad_format", f"$.{field}")
