"""Control records: what an operator may set, and from when it counts."""

from typing import Any

import pytest

from assay_stream.model.record import Role
from assay_stream.schemes import assay_manifest as manifest, assay_tool as assay
from tests.support.controls import a_control
from tests.support.events import TOOL, Story

BARE = "0123456789abcdef" * 4
DIGESTS = {
    "assay.v1": str(assay.definition_digest(TOOL, server_id=None)),
    "assay.schema_hash": assay.schema_hash(TOOL),
    "assay.meta_hash": assay.meta_hash(TOOL),
    "assay.p60": str(manifest.manifest_tool_digest(TOOL)),
}


def control(act: str = "set", *, second: float = 0, **changes: Any) -> bytes:
    pinned = {"tool_name": "read_file", "scheme": "assay.v1", "value": BARE}
    return a_control(f"pin.{act}", second=second, **pinned | changes)


def pin_of_next_call(*controls: bytes) -> dict[str, str]:
    story = Story()
    for value in controls:
        story.raw(Role.CONTROL, value)
    outcome = story.lists(TOOL).calls().tell()
    assert outcome.refusals == []
    found: dict[str, str] = outcome.evidence[0]["pin"]
    return found


@pytest.mark.parametrize("scheme", sorted(DIGESTS))
@pytest.mark.parametrize("prefix", ["", "sha256:"])
def test_a_pin_under_any_scheme_matches_the_definition_it_was_made_of(scheme: str, prefix: str) -> None:
    value = prefix + DIGESTS[scheme].removeprefix("sha256:")
    assert pin_of_next_call(control(scheme=scheme, value=value)) == {
        "status": "match",
        "scheme": scheme,
        "expected": DIGESTS[scheme],
        "observed": DIGESTS[scheme],
    }


# --- suppression rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["[", "read_[ab", "[]", "]"])
def test_a_rule_with_a_bad_pattern_is_refused_with_its_reason(pattern: str) -> None:
    outcome = Story().raw(Role.CONTROL, a_control("suppression.set", id="rule-1", tool=pattern)).tell()
    assert outcome.refusals == ["bad_format"]
    [refused] = outcome.of(Role.REJECTED)
    message = dict(refused.headers)["error.message"].decode()
    assert "$.data.tool" in message
    assert "set in the pattern" in message
    assert not outcome.of(Role.FINDINGS)
    assert not outcome.of(Role.CHANGES)
