"""What else stands in the finding topic."""

from typing import Any

import pytest

from assay_stream.errors import InputError, IntegrityError
from assay_stream.model.fields import compile_glob
from assay_stream.model.finding import Suppression, decode_entry, name_group
from assay_stream.model.record import Output, Role
from tests.support.errors import raises_code
from tests.support.findings import a_claim, a_finding, a_rule, at


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
    with raises_code("unknown_finding", kind=IntegrityError):
        decode_entry(value)


def handed_on(**rule: Any) -> list[Output]:
    return Suppression(rule=a_rule(**rule), is_set=True, time_us=at(0)).outputs(3)


@pytest.mark.parametrize("kind", ["tool_shadowed", "alerts_folded"])
def test_a_rule_that_covers_shadowed_tools_or_their_folds_goes_everywhere(kind: str) -> None:
    """These alerts stand where the group of the name does."""
    assert [output.partition for output in handed_on(server_id="server", kind=kind)] == [0, 1, 2]


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


@pytest.mark.parametrize(("about", "expected"), [({}, True), ({"tool_name": None, "item_name": "review"}, False)])
def test_a_rule_about_tools_covers_nothing_else(about: dict[str, Any], expected: bool) -> None:
    """Whoever silences the tools of a server still hears of its instructions and prompts."""
    assert a_rule(tool="*").covers(a_finding(**about), at(0)) is expected


@pytest.mark.parametrize("glob", ["[", "a[bc", "[]", "[!]", "a]", "[[a]]"])
def test_a_bad_set_is_refused(glob: str) -> None:
    with raises_code("bad_pattern"):
        compile_glob(glob)


def test_a_long_glob_takes_no_long_time() -> None:
    assert compile_glob("*a" * 25 + "b").fullmatch("a" * 1_000) is None
    with pytest.raises(InputError):
        compile_glob("[a" * 10_000)


@pytest.mark.parametrize(("is_set", "label"), [(True, "suppression:set"), (False, "suppression:removed")])
def test_a_rule_stands_in_the_partition_of_its_server(is_set: bool, label: str) -> None:
    entry = Suppression(rule=a_rule(kind="tool_changed"), is_set=is_set, time_us=at(1))
    (output,) = entry.outputs(3)
    assert (output.role, output.key, output.partition, output.label) == (Role.FINDINGS, b"server", None, label)
    assert decode_entry(output.value) == entry


@pytest.mark.parametrize(("is_offered", "label"), [(True, "name_claim:come"), (False, "name_claim:gone")])
def test_a_claim_stands_with_all_that_are_drawn_alike(is_offered: bool, label: str) -> None:
    entry = a_claim("files", "Read-File", 1, is_offered=is_offered)
    output = entry.output()
    assert (output.role, output.key, output.label) == (Role.FINDINGS, name_group("read_file").encode(), label)
    assert (output.timestamp_ms, decode_entry(output.value)) == (at(1) // 1_000, entry)
