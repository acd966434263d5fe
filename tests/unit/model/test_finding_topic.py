"""What else stands in the finding topic."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from assay_stream.errors import InputError, IntegrityError
from assay_stream.model.fields import compile_glob
from assay_stream.model.finding import Detected
from assay_stream.model.finding_topic import Suppression, Tick, covering_rule, decode_entry
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Output, Role
from tests.support.findings import a_finding, a_rule, an_end, at


def test_every_entry_is_read_as_it_was_written() -> None:
    assert decode_entry(a_finding().encode()) == a_finding()
    for end in (an_end(1), an_end(1, observer_id=None, everywhere=True)):
        assert decode_entry(end.output().value) == end
    rule = Suppression(rule=a_rule(tool="t*"), is_set=True, time_us=at(1))
    assert decode_entry(rule.output().value) == rule
    assert decode_entry(Tick(time_us=5).encode()) == Tick(time_us=5)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"7",
        b"{}",
        b'{"kind":"novelty"}',
        b'{"kind":"resolution"}',
        b'{"kind":"suppression","rule":{}}',
        b'{"kind":"tick"}',
        b'{"kind":"tick","time_us":"soon"}',
    ],
)
def test_what_this_version_cannot_read_stops_it(value: bytes | None) -> None:
    with pytest.raises(IntegrityError) as caught:
        decode_entry(value)
    assert caught.value.code == "unknown_finding"


def handed_on(**rule: Any) -> list[Output]:
    return Suppression(rule=a_rule(**rule), is_set=True, time_us=at(0)).outputs(3)


def test_a_rule_goes_where_the_findings_of_its_server_go() -> None:
    [output] = handed_on(server_id="server", kind="tool_changed")
    assert (output.role, output.key, output.partition) == (Role.FINDINGS, b"server", None)


def test_a_rule_for_every_server_goes_everywhere() -> None:
    outputs = handed_on(server_id="*")
    assert [output.partition for output in outputs] == [0, 1, 2]
    assert len({output.value for output in outputs}) == 1
    assert orjson.loads(outputs[0].value or b"")["rule"]["server_id"] == "*"


@pytest.mark.parametrize("kind", ["tool_shadowed", "alerts_folded"])
def test_a_rule_that_covers_shadowed_tools_or_their_folds_goes_everywhere(kind: str) -> None:
    """These alerts stand where the group of the name does."""
    assert [output.partition for output in handed_on(server_id="server", kind=kind)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, True),
        ({"server_id": "*"}, True),
        ({"server_id": "other"}, False),
        ({"tool": "to*"}, True),
        ({"tool": "ta*"}, False),
        ({"kind": "tool_changed"}, True),
        ({"kind": "tool_added"}, False),
        ({"field": "description"}, True),
        ({"field": "title"}, False),
        ({"until_us": at(10)}, True),
        ({"until_us": at(9)}, False),
        ({"tool": "to*", "kind": "tool_added"}, False),
    ],
)
def test_a_rule_covers_what_all_of_it_says(rule: dict[str, Any], expected: bool) -> None:
    assert a_rule(**rule).covers(a_finding(), at(9)) is expected


def test_a_rule_on_a_field_does_not_cover_more() -> None:
    rule = a_rule(field="description")
    assert not rule.covers(a_finding(changed_fields=("description", "inputSchema")), at(0))
    assert not rule.covers(a_finding(changed_fields=()), at(0))


def test_a_tool_pattern_does_not_cover_what_is_about_the_server() -> None:
    about_the_server = a_finding(tool_name=None)
    assert not a_rule(tool="a*").covers(about_the_server, at(0))
    assert a_rule(tool="*").covers(about_the_server, at(0))


@pytest.mark.parametrize("kind", [Kind.DETECTION, Kind.AGENT_LIMITED])
def test_a_rule_for_an_agent_covers_what_this_one_finds(kind: Kind) -> None:
    detected = Detected(agent="bursts", title="T", severity_id=4, key=("k",), digest="sha256:" + "0" * 64)
    finding = a_finding(kind=kind, detection=detected)
    assert a_rule(detection="bursts").covers(finding, at(0))
    assert not a_rule(detection="others").covers(finding, at(0))
    assert not a_rule(detection="bursts").covers(a_finding(), at(0))


def test_the_first_by_id_is_named() -> None:
    rules = [a_rule(id="b"), a_rule(id="a"), a_rule(id="0", kind="tool_added")]
    covering = covering_rule(rules, a_finding(), at(0))
    assert covering is not None
    assert covering.id == "a"
    assert covering_rule([], a_finding(), at(0)) is None


@pytest.mark.parametrize(
    ("glob", "name", "expected"),
    [
        ("*", "anything\nat all", True),
        ("read_*", "read_file", True),
        ("read_*", "unread_file", False),
        ("read_?", "read_", False),
        ("[rw]ead", "read", True),
        ("[!rw]ead", "read", False),
        ("a.b", "aXb", False),
        ("", "", True),
        ("Read", "read", False),
    ],
)
def test_a_glob_matches_whole_names(glob: str, name: str, expected: bool) -> None:
    assert (compile_glob(glob).fullmatch(name) is not None) is expected


@pytest.mark.parametrize("glob", ["[", "a[bc", "[]", "[!]", "a]", "[[a]]"])
def test_a_bad_set_is_refused(glob: str) -> None:
    with pytest.raises(InputError) as caught:
        compile_glob(glob)
    assert caught.value.code == "bad_pattern"


def test_a_long_glob_takes_no_long_time() -> None:
    assert compile_glob("*a" * 25 + "b").fullmatch("a" * 1_000) is None
    with pytest.raises(InputError):
        compile_glob("[a" * 10_000)
