"""The Assay scheme beyond its vectors: the trim, the clusters, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_stream.canonical.digest import jcs_digest
from assay_stream.errors import InputError
from assay_stream.schemes import assay_tool as assay
from assay_stream.schemes.assay_tool import DECISION_TYPE, check_envelope, check_payload
from tests.support.errors import raises_code

DIGEST = f"sha256:{'0' * 64}"
DEFINITION = {"tool_definition_digest": DIGEST, **assay.CLUSTER_CONSTANTS}
POLICY = {"policy_digest": DIGEST, "policy_snapshot_digest": DIGEST, **assay.POLICY_CLUSTER_CONSTANTS}

# Unicode White_Space (PropList.txt), which is what Rust's str::trim takes.
WHITE_SPACE = [
    *range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000,
]  # fmt: skip
# Taken by Python's str.strip(), or invisible, and yet no White_Space.
NOT_WHITE_SPACE = [0x1C, 0x1D, 0x1E, 0x1F, 0x180E, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0x00, 0x7F]

Check = Callable[[dict[str, Any]], str | None]
NAMES: dict[Check, str] = {assay.check_definition_cluster: "definition", assay.check_policy_cluster: "policy"}


class TestTrim:
    @pytest.mark.parametrize("code", WHITE_SPACE)
    def test_white_space_goes(self, code: int) -> None:
        space = chr(code)
        assert assay.trim(f"{space}{space}a{space}b{space}") == f"a{space}b"

    @pytest.mark.parametrize("code", NOT_WHITE_SPACE)
    def test_the_rest_stays(self, code: int) -> None:
        assert assay.trim(f"{chr(code)}a{chr(code)}") == f"{chr(code)}a{chr(code)}"

    def test_only_white_space(self) -> None:
        assert assay.trim("".join(map(chr, WHITE_SPACE))) == ""


class TestDefinition:
    @pytest.mark.parametrize("name", [None, 5, "", " \u3000", ["t"]])
    def test_name(self, name: Any) -> None:
        with raises_code("tool_name_missing", "$.name"):
            assay.definition_digest({"name": name}, server_id=None)

    def test_name_is_raw(self) -> None:
        assert assay.definition_projection({"name": " t "}, server_id=None) == {"name": " t "}

    @pytest.mark.parametrize("schema", [None, True, 1, "object", []])
    @pytest.mark.parametrize("spelling", ["inputSchema", "input_schema"])
    def test_schema_that_is_no_object(self, spelling: str, schema: Any) -> None:
        with raises_code("input_schema_not_object"):
            assay.definition_digest({"name": "t", spelling: schema}, server_id=None)

    def test_camel_case_wins_even_when_wrong(self) -> None:
        """With both spellings camelCase counts, even where only the other would give a digest."""
        with pytest.raises(InputError):
            assay.definition_digest({"name": "t", "inputSchema": None, "input_schema": {}}, server_id=None)

    def test_server_id_is_trimmed(self) -> None:
        tool = {"name": "t"}
        assert assay.definition_projection(tool, server_id="\u00a0s ")["server_id"] == "s"
        assert "server_id" not in assay.definition_projection(tool, server_id=" \u0085")

    def test_description_with_a_lone_surrogate(self) -> None:
        with raises_code("lone_surrogate"):
            assay.meta_hash({"name": "t", "description": "\ud800"})


class TestContentHash:
    def test_null_subject_is_present(self) -> None:
        """A subject that is there enters, an absent one does not."""
        event = {"specversion": "1.0", "type": "t", "datacontenttype": "application/json", "data": {}}
        assert assay.content_hash(event) == jcs_digest(event)
        assert assay.content_hash(event | {"subject": "s", "id": "1"}) == jcs_digest(event | {"subject": "s"})

    @pytest.mark.parametrize("field", ["specversion", "type", "datacontenttype", "data"])
    def test_covered_field_is_missing(self, field: str) -> None:
        event = {"specversion": "1.0", "type": "t", "datacontenttype": "application/json", "data": {}}
        with raises_code("missing_field", f"$.{field}"):
            assay.content_hash({name: value for name, value in event.items() if name != field})


@pytest.mark.parametrize(
    ("check", "cluster"),
    [(assay.check_definition_cluster, DEFINITION), (assay.check_policy_cluster, POLICY)],
    ids=["definition", "policy"],
)
class TestClusters:
    @pytest.mark.parametrize(
        "digest",
        ["", "sha256:", "0" * 64, "sha512:00", "SHA256:00", 5, {}, ["sha256:00"], f" {DIGEST}", f"{DIGEST}\n",
         "sha256: ", "sha256:two words", "sha256:{}", "sha256:caf\u00e9", f"sha256:{'A' * 64}",
         f"sha256:{'aB' * 32}", f"{DIGEST},{DIGEST}"],
    )  # fmt: skip
    def test_digest(self, check: Check, cluster: dict[str, Any], digest: Any) -> None:
        fields = [field for field in cluster if field.endswith("digest")]
        with raises_code(f"bad_{NAMES[check]}_cluster"):
            check(cluster | dict.fromkeys(fields, digest))

    def test_digest_of_another_length(self, check: Check, cluster: dict[str, Any]) -> None:
        """A label may stand after sha256: Assay's own contract test has sha256:policy123."""
        fields = [field for field in cluster if field.endswith("digest")]
        assert check(cluster | dict.fromkeys(fields, "sha256:policy123")) == "sha256:policy123"


class TestPolicyCluster:
    def test_policy_digest_alone(self) -> None:
        assert assay.check_policy_cluster({"policy_digest": DIGEST}) is None


VECTORS = Path(__file__).resolve().parents[2] / "data/vectors"
PAYLOAD: dict[str, Any] = json.loads((VECTORS / "assay_tool_decision_payload.json").read_text())["payload"]
ENVELOPES = json.loads((VECTORS / "assay_evidence_envelope.json").read_text())
GOLDEN: dict[str, Any] = ENVELOPES["golden"]["event"]


def evidence(**changes: Any) -> dict[str, Any]:
    event = GOLDEN | {"type": DECISION_TYPE, "data": PAYLOAD | changes}
    return event | {"assaycontenthash": str(assay.content_hash(event))}


def test_the_published_payload_and_envelopes_are_sound() -> None:
    check_payload(PAYLOAD)
    check_envelope(evidence())
    check_envelope(GOLDEN)


@pytest.mark.parametrize("decision", ["allow", "deny", "requires_approval", "error"])
def test_the_decisions(decision: str) -> None:
    check_payload(PAYLOAD | {"decision": decision})


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"decision": "maybe"}, "unknown_value", "$.data.decision"),
        ({"decision": None}, "missing_field", "$.data.decision"),
        ({"tool": None}, "missing_field", "$.data.tool"),
        ({"tool": " "}, "empty_value", "$.data.tool"),
        ({"reason_code": 7}, "wrong_type", "$.data.reason_code"),
        ({"tool_definition_source": None}, "half_definition_cluster", "$.data"),
        ({"tool_definition_source": "tools/call"}, "bad_definition_cluster", "$.data.tool_definition_source"),
        ({"policy_snapshot_digest": None}, "half_policy_cluster", "$.data"),
        ({"policy_digest": "sha256:other"}, "bad_policy_cluster", "$.data"),
    ],
)
def test_what_is_wrong_with_a_payload(change: dict[str, Any], code: str, path: str) -> None:
    with raises_code(code, path):
        check_envelope(evidence(**change))


def test_an_altered_record_is_found() -> None:
    for change in ({"data": PAYLOAD | {"decision": "deny"}}, {"subject": "other"}, {"type": "other"}):
        with raises_code("content_hash_mismatch"):
            check_envelope(evidence() | change)


def test_a_record_without_a_content_hash_is_checked_as_far_as_it_goes() -> None:
    check_envelope({name: value for name, value in evidence().items() if name != "assaycontenthash"})
    changes: list[dict[str, Any]] = [{"specversion": "0.3"}, {"data": []}]
    for change in changes:
        with pytest.raises(InputError):
            check_envelope({"specversion": "1.0", "type": DECISION_TYPE, "data": PAYLOAD} | change)
