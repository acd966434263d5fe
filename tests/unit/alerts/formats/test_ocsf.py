"""Alerts in OCSF: the record, with techniques, evidence and resources beside it.

1.8.0 is validated with the published schema. The package of schemas stops there: what 1.9.0 adds is held against a
field table from the files of https://github.com/ocsf/ocsf-schema (profiles/record_integrity.json,
objects/attestation.json and objects/fingerprint.json at a5cfc68e, 1.9.0-dev), the rest against 1.8.0. Not checked
against the release of 1.9.0, which is twelve days younger.
"""

import json
from hashlib import sha256
from typing import Any

import jsonschema
import pytest
import rfc8785
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from assay_stream.alerts import view
from assay_stream.alerts.formats import read_alert, render
from assay_stream.alerts.formats.ocsf import to_ocsf, to_ocsf_1_9
from assay_stream.alerts.view import attack_objects, technique_ids
from assay_stream.detect import RULES
from assay_stream.model.kinds import KINDS, Kind
from tests.support.alerts import alert_of, alert_records, finding_of

ATTESTATION = {"uid", "authority_uid", "signatures", "fingerprint", "prev_event", "chain_uid"}
FINGERPRINT = {
    "algorithm", "algorithm_id", "encoding", "encoding_id", "serialization", "serialization_id", "value",
}  # fmt: skip


@pytest.fixture(scope="module")
def ocsf_1_8() -> jsonschema.Draft202012Validator:
    """A validator of the published schema; it is closed, so members that it does not name fail."""
    schema = OcsfJsonSchemaEmbedded(get_ocsf_schema(version="1.8.0"))
    return jsonschema.Draft202012Validator(schema.get_class_schema(class_name="detection_finding"))


def of_kind(kind: Kind) -> dict[str, Any]:
    return alert_of(kind=kind, indicators=(("data_sent", 4, "description"),))


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_is_valid_in_both_versions(kind: Kind, ocsf_1_8: jsonschema.Draft202012Validator) -> None:
    """1.8.0 by its schema; 1.9.0 by that schema for what both have, and by the table for the rest."""
    ocsf_1_8.validate(json.loads(to_ocsf(of_kind(kind))))
    later = json.loads(to_ocsf_1_9(of_kind(kind)))
    assert later["metadata"]["version"] == "1.9.0"
    assert later["metadata"].pop("profiles") == ["record_integrity"]
    (attestation,) = later.pop("attestation_list")
    assert attestation.keys() <= ATTESTATION
    assert attestation["fingerprint"].keys() == FINGERPRINT
    assert attestation["fingerprint"]["algorithm_id"] == 3
    assert attestation["fingerprint"]["encoding_id"] == 1
    assert attestation["fingerprint"]["serialization_id"] == 2
    later["metadata"]["version"] = "1.8.0"
    ocsf_1_8.validate(later)


def test_every_member_of_the_record_is_kept() -> None:
    (record,) = alert_records(finding_of("tööl\n"))
    stored = json.loads(record.value or b"") | {"later": {"a": [1]}}
    written = json.loads(to_ocsf(read_alert(json.dumps(stored).encode())))
    del written["finding_info"]["attacks"], written["unmapped"]["mcp_attacks"]
    assert written.keys() - stored.keys() == {"resources", "evidences"}
    assert {name: written[name] for name in stored} == stored


def test_an_alert_that_went_through_twice_is_the_same() -> None:
    once = to_ocsf(alert_of())
    assert to_ocsf(read_alert(once.encode())) == once


def test_attacks_name_technique_sub_technique_and_tactic() -> None:
    """A changed tool: a rug pull, and poisoning of its definition; its indicator adds what it looks for."""
    attacks = json.loads(to_ocsf(of_kind(Kind.TOOL_CHANGED)))["finding_info"]["attacks"]
    named = [(each["technique"]["uid"], each.get("sub_technique", {}).get("uid")) for each in attacks]
    assert named == [("AML.T0086", None), ("AML.T0109", None), ("AML.T0110", "AML.T0110.000")]
    assert attacks[-1]["tactic"] == {"uid": "AML.TA0006", "name": "Persistence"}
    assert {each["version"] for each in attacks} == {"2026.09"}


def test_evidence_and_resources_say_what_and_where() -> None:
    written = json.loads(to_ocsf(alert_of()))
    assert [each["uid"] for each in written["resources"]] == ["server", "server/tool"]
    (evidence,) = written["evidences"]
    assert evidence["uid"] == "snapshot-1"
    assert evidence["data"]["changed_fields"] == "description"
    assert evidence["data"]["origin_offset"] == 0


def test_an_observer_that_dropped_observations_is_a_resource() -> None:
    alert = alert_of(None, kind=Kind.OBSERVATIONS_LOST, item_name="proxy-1")
    written = json.loads(to_ocsf(alert))
    assert written["resources"][1] == {"type": "MCP observer", "uid": "server/proxy-1", "name": "proxy-1"}


def test_of_a_release_the_most_severe_part_is_a_resource() -> None:
    alert = alert_of(None, kind=Kind.SERVER_CHANGED, item_name="review", release="a" * 64)
    alert["finding_info"]["related_events"] = [{"uid": "c" * 64, "type": "prompt_changed"}]
    resource = json.loads(to_ocsf(alert))["resources"][1]
    assert resource == {"type": "MCP prompt", "uid": "server/review", "name": "review"}


def test_the_fingerprint_is_of_the_event_without_it() -> None:
    """A verifier needs only the event: remove the fingerprint, canonicalize (RFC 8785), hash."""
    event = json.loads(render(alert_of("tööl\u202e"), "ocsf-1.9"))
    fingerprint = event["attestation_list"][0].pop("fingerprint")
    assert fingerprint["value"] == sha256(rfc8785.dumps(event)).hexdigest()
    event["severity_id"] = 1
    assert fingerprint["value"] != sha256(rfc8785.dumps(event)).hexdigest()


TABLE = view._TABLE
UNMAPPED = {
    "address_introduced", "external_reference", "other_tool_named", "text_oversized", "url_introduced",
}  # fmt: skip
"""Rules that find what honest text has as well: no technique by itself."""


def test_what_the_table_maps_exists() -> None:
    assert {Kind(kind) for kind in TABLE["kinds"]} <= set(KINDS)
    assert TABLE["indicators"].keys() | UNMAPPED == {rule.id for rule in RULES}
    mapped = [each for table in ("kinds", "indicators") for ids in TABLE[table].values() for each in ids]
    assert set(mapped) | set(TABLE["refined"].values()) <= TABLE["techniques"].keys()


def test_every_technique_of_a_kind_is_known() -> None:
    for info in KINDS.values():
        assert len(technique_ids(info.atlas, [], [])) == len(info.atlas)


def test_a_sub_technique_takes_the_tactics_of_its_technique() -> None:
    tactics = [each["tactic"]["uid"] for each in attack_objects(["AML.T0053"])]
    assert tactics == ["AML.TA0005", "AML.TA0012", "AML.TA0015"]
    (poisoned,) = attack_objects(["AML.T0110.000"])
    assert poisoned["technique"] == {"uid": "AML.T0110", "name": "AI Agent Tool Poisoning"}


def test_what_is_not_known_is_left_out() -> None:
    assert technique_ids(["AML.T9999", ""], ["later"], ["later"]) == []
