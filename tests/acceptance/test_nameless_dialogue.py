"""Dialogues with a server whose tools have no name: clients may give them one, so their text is searched."""

import json
from dataclasses import replace
from typing import Any

import pytest

from assay_stream.alerts.page import as_markdown, as_text
from assay_stream.alerts.story import story_of
from assay_stream.alerts.view import Life, view_of
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.evidence import Producer
from assay_stream.model.facts import Catalogue, decode_fact, decode_key, encode_key, encode_value
from assay_stream.model.kinds import KINDS, Kind
from assay_stream.model.record import Role
from tests.acceptance.test_evasion_dialogue import CLEAN, HIGH, POISON, Talk
from tests.support.engine import EngineState, compacted, restore, run
from tests.support.events import Story

TEXT = POISON["description"]
NAMELESS: list[dict[str, Any]] = [
    {"name": "", "description": TEXT, "inputSchema": {"type": "object"}},
    {"description": TEXT, "inputSchema": {"type": "object"}},
    {"name": 3, "description": TEXT, "inputSchema": {"type": "object"}},
    {"name": None, "description": TEXT},
]
BENIGN = {"name": "", "description": "Lists files.", "inputSchema": {"type": "object"}}
every_kind = pytest.mark.parametrize("tool", NAMELESS, ids=["empty", "missing", "number", "null"])


@every_kind
def test_poison_without_a_name_is_an_alert_in_a_first_list_and_later(tool: dict[str, Any]) -> None:
    for talk in (Talk().sees([CLEAN, tool], minute=0), Talk().sees([CLEAN], minute=0).sees([CLEAN, tool], minute=1)):
        [alert] = talk.alerts()
        flat = alert["unmapped"]
        assert (flat["mcp_finding_kind"], alert["severity"]) == ("tool_added", "Critical")
        assert "mcp_tool_name" not in flat
        assert "secrecy_asked" in flat["mcp_indicators"]
        assert flat["mcp_digest_after"].startswith("sha256:")


def test_a_benign_tool_without_a_name_raises_nothing() -> None:
    talk = Talk().sees([CLEAN, BENIGN], minute=0).sees([CLEAN, {"description": "Lists."}], minute=1)
    assert talk.sees([CLEAN], minute=2).alerts() == []


@pytest.mark.parametrize("completeness", ["complete", "partial"])
def test_a_list_that_repeats_it_raises_nothing_more(completeness: str) -> None:
    talk = Talk().sees([CLEAN], minute=0, completeness=completeness)
    for minute in range(1, 6):
        talk.sees([CLEAN, BENIGN, *NAMELESS[:1]], minute=minute, completeness=completeness)
    assert [(kind, status) for kind, status, _ in talk.told(severity=HIGH)] == [("tool_added", "New")]
    assert talk.alerts()[-1]["count"] == 1


@pytest.mark.parametrize("known_before", [True, False])
def test_it_ends_as_a_tool_with_a_name_does(known_before: bool) -> None:
    def told(tool: dict[str, Any], *, until_last: bool) -> list[tuple[str, str, int]]:
        talk = Talk()
        for minute, tools in [(0, [CLEAN])] * known_before + [(1, [CLEAN, tool])]:
            talk.sees(tools, observer="proxy-1", minute=minute).sees(tools, observer="proxy-2", minute=minute)
        talk.sees([CLEAN], observer="proxy-1", minute=2).sees([CLEAN], observer="proxy-1", minute=60)
        if until_last:
            talk.sees([CLEAN], observer="proxy-2", minute=61).sees([CLEAN], observer="proxy-2", minute=120)
        return talk.told(severity=HIGH)

    ended = [told(NAMELESS[0], until_last=until_last) for until_last in (False, True)]
    assert ended == [told(NAMELESS[0] | {"name": "helper"}, until_last=until_last) for until_last in (False, True)]
    assert ended[1][-1] == ("tool_added", "Resolved", 5)
    if known_before:
        assert ended[0][-1] == ("tool_added", "In Progress", 5)


def test_an_incomplete_list_without_it_ends_nothing() -> None:
    talk = Talk().sees([CLEAN, NAMELESS[0]], minute=0)
    talk.sees([CLEAN], minute=1, completeness="partial").sees([CLEAN], minute=60, completeness="partial")
    assert [status for _, status, _ in talk.told(severity=HIGH)] == ["New"]


def test_several_in_one_list_are_parts_of_one_release() -> None:
    changed = CLEAN | {"description": "Reads one file."}
    talk = Talk().sees([CLEAN], minute=0).sees([changed, *NAMELESS[:2]], minute=1)
    [alert] = talk.alerts()
    assert alert["finding_info"]["types"][0] == "server_changed"
    assert [part["desc"] for part in alert["finding_info"]["related_events"]] == [*("(no name)",) * 2, CLEAN["name"]]
    assert "(no name), read_file: " in alert["message"]
    assert Talk().sees([CLEAN], minute=0).sees([CLEAN, *NAMELESS[:2]], minute=1).told() == [
        ("server_changed", "New", 5)
    ]


def test_text_that_the_budget_does_not_cover_does_not_look_harmless() -> None:
    story = Story().lists(CLEAN).lists(CLEAN, BENIGN | {"description": "Lists files. " * 500})
    state = EngineState(producer=Producer(version="1"), snapshot_partitions=1)
    run(state, story.records[:1])
    state.registry.limits = replace(DEFAULT_LIMITS, work_units_max=1_000)
    found = [json.loads(each.value or b"") for each in run(state, story.records[1:]) if each.role is Role.FINDINGS]
    assert [(each["kind"], each.get("indicators"), each.get("left_out")) for each in found] == [
        ("tool_added", [["text_oversized", HIGH, "$"]], None),
        ("analysis_cut_short", None, ["text"]),
    ]


def test_a_call_binds_to_it_no_more_than_before() -> None:
    outcome = Story().lists(CLEAN, NAMELESS[0]).calls("other").tell()
    [evidence] = outcome.evidence
    assert evidence["unbound_reason"] == "tool_not_listed"


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_restart_in_between_changes_nothing(cut: int) -> None:
    story = Story().lists(CLEAN).lists(CLEAN, *NAMELESS).lists(CLEAN, *NAMELESS, observer_id="proxy-2").lists(CLEAN)
    one = EngineState(producer=Producer(version="1"), snapshot_partitions=1)
    facts = [each for each in run(one, story.records[:cut]) if each.role is Role.BINDINGS]
    other = restore(EngineState(producer=Producer(version="1"), snapshot_partitions=1), compacted(facts))
    assert run(other, story.records[cut:]) == run(one, story.records[cut:])


def test_topics_that_were_filled_before_such_tools_were_searched_are_read() -> None:
    """Their lists do not say which definitions had no name: these are searched with the next list, once."""
    story = Story().lists(CLEAN, NAMELESS[0])
    for _ in range(3):
        story.lists(CLEAN, NAMELESS[0])
    story.lists(CLEAN)
    state = EngineState(producer=Producer(version="1"), snapshot_partitions=1)
    facts = [each for each in run(state, story.records[:1]) if each.role is Role.BINDINGS]
    for place, each in enumerate(facts):
        fact = decode_fact(decode_key(each.key), each.value or b"")
        if isinstance(fact, Catalogue):
            older = replace(fact, nameless=())
            facts[place] = each._replace(key=encode_key(older.key()), value=encode_value(older))
    state = restore(EngineState(producer=Producer(version="1"), snapshot_partitions=1), facts)
    labels = [[each.label for each in run(state, [record])] for record in story.records[1:]]
    assert [each.count("finding:tool_added") for each in labels] == [1, 0, 0, 0]
    assert "resolution:no_longer_offered" in labels[-1]


@every_kind
def test_its_page_and_claim_are_readable(tool: dict[str, Any]) -> None:
    [alert] = Talk().sees([CLEAN, tool], minute=0).alerts()
    assert alert["message"].startswith("A server offers a tool without a name, whose text stands out: server-a: ")
    view = view_of(alert)
    story = story_of(Life(count=1, first=(view,), latest=()), definitions={view.definition: tool})
    assert story.claim.startswith("A server offers a tool without a name, whose text stands out: the text ")
    for page in ("\n".join(as_text(story)), "\n".join(as_markdown(story))):
        assert "It cannot be pinned." in page
        assert "pins approve" not in page
        assert "None" not in page
    assert story.info is not None
    assert alert["remediation"]["desc"] == story.info.next_step
    # Formats describe a kind once, by the title of any of its alerts.
    assert alert["finding_info"]["title"] == KINDS[Kind.TOOL_ADDED].title
