"""The table of ATLAS techniques: complete, and of one piece."""

from __future__ import annotations

from assay_stream.alerts.formats import view
from assay_stream.alerts.formats.view import attack_objects, technique_ids
from assay_stream.detect import RULES
from assay_stream.model.kinds import KINDS, Kind

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
