"""What else stands in the finding topic."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from assay_stream.errors import IntegrityError
from assay_stream.model.finding_topic import Suppression, Tick, decode_entry
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
