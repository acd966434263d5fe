"""Definition records, for reviewers."""

from __future__ import annotations

import json

from assay_stream.model.definition_facts import definition_record
from assay_stream.model.record import Role
from tests.support.events import TOOL, record_of
from tests.support.lists import PROMPT, TEMPLATE

FULL = "sha256:" + "a" * 64


def test_a_record_holds_the_definition_and_its_projection() -> None:
    output = definition_record(record_of(Role.SNAPSHOTS, b""), FULL, TOOL | {"title": "Read"})
    value = json.loads(output.value or b"")
    assert (output.key, value["full_digest"]) == (FULL.encode(), FULL)
    assert value["definition"] == TOOL | {"title": "Read"}
    assert "title" not in value["projection"]


def test_what_gives_no_projection_is_shown_all_the_same() -> None:
    output = definition_record(record_of(Role.SNAPSHOTS, b""), FULL, {"description": "nameless"})
    assert json.loads(output.value or b"") == {"full_digest": FULL, "definition": {"description": "nameless"}}
    assert output.label == "definition:not_digestible"


def test_prompts_and_templates_are_shown_as_they_came() -> None:
    for item in (PROMPT, TEMPLATE):
        output = definition_record(record_of(Role.SNAPSHOTS, b""), FULL, item)
        assert json.loads(output.value or b"")["definition"] == item


def test_instructions_are_no_tool_that_failed_to_be_digested() -> None:
    item = {"instructions": "Pages are Markdown."}
    output = definition_record(record_of(Role.SNAPSHOTS, b""), FULL, item)
    assert json.loads(output.value or b"") == {"full_digest": FULL, "definition": item}
    assert output.label == "definition"
