"""Levels, profiles, and the rule that combines them."""

import pytest

from assay_stream.drift.change import CODES
from assay_stream.drift.definition import compare_definitions
from assay_stream.drift.severity import DEFAULT_PROFILE, PROFILES, Level, SeverityProfile, assess, covers
from assay_stream.model.kinds import Kind
from tests.support.errors import raises_code

SOC = PROFILES["soc"]
TOOL = {
    "name": "t",
    "description": "Reads a file",
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string", "pattern": "^/srv/", "default": "/srv/a", "enum": ["/srv/a"]}},
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "destructiveHint": False},
}


def _path(**keywords: object) -> dict[str, object]:
    kept = {"type": "string", "pattern": "^/srv/", "default": "/srv/a", "enum": ["/srv/a"]} | keywords
    parameter = {name: value for name, value in kept.items() if value is not None}
    return TOOL | {"inputSchema": TOOL["inputSchema"] | {"properties": {"path": parameter}}}  # type: ignore[operator]


def _schema(**keywords: object) -> dict[str, object]:
    return TOOL | {"inputSchema": TOOL["inputSchema"] | keywords}  # type: ignore[operator]


def test_the_levels_are_ocsfs() -> None:
    assert [level.value for level in Level] == [1, 2, 3, 4, 5]
    assert all(Level.parse(str(level)) is level for level in Level)
    with raises_code("unknown_value"):
        Level.parse("fatal")


def test_profiles_by_name() -> None:
    assert DEFAULT_PROFILE is SOC
    assert list(PROFILES) == ["soc", "mcptrust", "mcptrust-code", "assay-p60", "strict"]


@pytest.mark.parametrize(
    "after",
    [
        _path(pattern=None),
        _path(enum=None),
        _path(type=None, enum=None),
        TOOL | {"inputSchema": {}},
        TOOL | {"annotations": {"readOnlyHint": False, "destructiveHint": False}},
    ],
    ids=range(5),
)
def test_a_lost_choice_or_form_and_a_tool_that_now_changes_things_are_medium(after: dict[str, object]) -> None:
    assert assess(SOC, "tool_changed", compare_definitions(TOOL, after)) is Level.MEDIUM


@pytest.mark.parametrize("hint", ["destructiveHint", "openWorldHint"])
def test_a_risk_that_is_denied_is_medium_and_one_that_is_admitted_low(hint: str) -> None:
    """MCP 2025-06-18, ToolAnnotations: clients confirm less what destroys nothing or stays inside."""
    admits, denies = (TOOL | {"annotations": {hint: value}} for value in (True, False))
    assert assess(SOC, "tool_changed", compare_definitions(admits, denies)) is Level.MEDIUM
    assert assess(SOC, "tool_changed", compare_definitions(denies, admits)) is Level.LOW


@pytest.mark.parametrize(
    "after",
    [
        _schema(additionalProperties={"type": "string"}),
        _path(enum=["/srv/a", "/srv/b"]),
        _path(default="/srv/b"),
        TOOL | {"annotations": {"destructiveHint": False}},
        TOOL | {"annotations": {"readOnlyHint": True}},
        _schema(properties={**TOOL["inputSchema"]["properties"], "note": {}}, required=["note"]),  # type: ignore[index]
        _schema(properties={"path": {"anyOf": [TOOL["inputSchema"]["properties"]["path"], {"type": "array"}]}}),  # type: ignore[index]
    ],
    ids=range(7),
)
def test_what_upgrades_do_to_schemas_is_low(after: dict[str, object]) -> None:
    assert assess(SOC, "tool_changed", compare_definitions(TOOL, after)) is Level.LOW


@pytest.mark.parametrize(
    ("name", "privileged"), [("read-file", Level.LOW), ("readFile", Level.LOW), ("read_files", Level.MEDIUM)]
)
def test_a_rename_is_as_severe_as_an_addition_unless_only_the_spelling_differs(name: str, privileged: Level) -> None:
    changes = compare_definitions(TOOL | {"name": "read_file"}, TOOL | {"name": name})
    assert assess(SOC, "tool_renamed", changes) is Level.LOW
    assert assess(SOC, "tool_renamed", changes, privileged=True) is privileged


def test_nothing_but_a_comparison_cut_short_is_high_by_its_code() -> None:
    """What was not compared may hide anything; a change of structure is no reason to wake a person."""
    assert [code for code, info in CODES.items() if Level.parse(info.level) >= Level.HIGH] == ["comparison_cut_short"]


@pytest.mark.parametrize(
    ("after", "level"),
    [
        (TOOL | {"description": "Reads  a file"}, Level.INFORMATIONAL),
        (TOOL | {"description": "Reads a file."}, Level.LOW),
        (TOOL | {"description": "Reads a file, always"}, Level.LOW),
        (_path(maxLength=100), Level.LOW),
        (_path(title="Path"), Level.INFORMATIONAL),
        (TOOL | {"outputSchema": {"type": "object"}}, Level.LOW),
    ],
)
def test_benign_changes_stay_quiet(after: dict[str, object], level: Level) -> None:
    assert assess(SOC, "tool_changed", compare_definitions(TOOL, after)) is level


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_signs_raise_and_never_lower(profile: SeverityProfile) -> None:
    changes = compare_definitions(TOOL, TOOL | {"description": "Reads a file!"})
    assert assess(profile, "tool_changed", changes, [Level.CRITICAL]) is Level.CRITICAL
    assert assess(profile, "tool_changed", changes, [Level.INFORMATIONAL]) is assess(profile, "tool_changed", changes)


@pytest.mark.parametrize("kind", [*Kind, "something_new"])
def test_under_the_strict_profile_anything_is_at_least_high(kind: str) -> None:
    changes = compare_definitions(TOOL, TOOL | {"description": "Reads  a file"})
    assert assess(PROFILES["strict"], kind) >= Level.HIGH
    assert assess(PROFILES["strict"], kind, changes) >= Level.HIGH


def test_a_kind_that_a_profile_does_not_know_has_the_callers_default() -> None:
    assert assess(SOC, "key_revoked", default=Level.CRITICAL) is Level.CRITICAL
    assert assess(SOC, "key_revoked") is Level.HIGH


def test_a_peers_profile_does_not_look_at_what_the_peer_does_not_see() -> None:
    """MCPTrust compares description and input schema, Assay four fields; neither looks at titles."""
    titled = compare_definitions(TOOL, TOOL | {"title": "T"})
    hinted = compare_definitions(TOOL, TOOL | {"annotations": {}})
    seen = {
        name: (covers(p, "tool_changed", titled), covers(p, "tool_changed", hinted)) for name, p in PROFILES.items()
    }
    assert seen == {
        "soc": (True, True),
        "strict": (True, True),
        "mcptrust": (False, False),
        "mcptrust-code": (False, False),
        "assay-p60": (False, True),
    }


def test_a_comparison_cut_short_hides_from_no_profile() -> None:
    """More changes than are told may be in any field, so every profile looks."""
    flood = {f"x{i}": i for i in range(1_100)}
    changes = compare_definitions(TOOL, TOOL | {"annotations": flood, "inputSchema": {}})
    assert changes[-1].code == "comparison_cut_short"
    assert all(covers(profile, "tool_changed", changes) for profile in PROFILES.values())


def test_a_privileged_tool_is_higher_under_assay_p60_alone() -> None:
    """By the name's class; what the tool says of itself decides nothing."""
    changes = compare_definitions(TOOL, TOOL | {"description": "x"})
    levels = {
        name: [assess(profile, "tool_changed", changes, privileged=side) for side in (False, True)]
        for name, profile in PROFILES.items()
    }
    assert levels.pop("assay-p60") == [Level.MEDIUM, Level.HIGH]
    assert all(one is other for one, other in levels.values())
