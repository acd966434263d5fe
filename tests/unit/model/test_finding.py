"""Findings as the finding topic carries them."""

import hashlib
import re
from dataclasses import replace

import pytest
import rfc8785

from assay_stream.errors import IntegrityError
from assay_stream.model.finding import Finding, decode_finding
from assay_stream.model.kinds import KINDS, Kind
from assay_stream.model.record import Origin, Role
from tests.support.errors import raises_code

FINDING = Finding(
    kind=Kind.TOOL_CHANGED,
    server_id="server é",
    tool_name="tool",
    observer_id="alice",
    time_us=1_500_999,
    origin=Origin(topic="mcp.tools.list", partition=1, offset=2),
    snapshot_id="s",
    before="sha256:a",
    after="sha256:b",
    changed_fields=("description", "title"),
    known=True,
)


OF_PROMPT = replace(FINDING, kind=Kind.PROMPT_CHANGED, tool_name=None, item_name="prompt", late_ms=7)


def test_identity_is_the_same_in_every_version() -> None:
    """What alerts were raised under stays: a list of five, and one more where a prompt or template is named."""
    five = ["tool_changed", "server é", "tool", "sha256:b", None]
    assert FINDING.uid() == hashlib.sha256(rfc8785.dumps(five)).hexdigest()
    six = ["prompt_changed", "server é", None, "sha256:b", None, "prompt"]
    assert OF_PROMPT.uid() == hashlib.sha256(rfc8785.dumps(six)).hexdigest()


def test_a_removed_tool_is_known_by_what_it_was() -> None:
    gone = replace(FINDING, kind=Kind.TOOL_REMOVED, after=None)
    assert replace(gone, before="sha256:z").uid() != gone.uid()


def test_a_finding_goes_to_its_server() -> None:
    """The record's key is the server, so that one alert's findings stand in one partition."""
    output = FINDING.output()
    assert (output.role, output.key, output.partition) == (Role.FINDINGS, "server é".encode(), None)
    assert (output.timestamp_ms, output.label) == (1_500, "finding:tool_changed")


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"{}", b'{"uid":"x","kind":"novelty"}'])
def test_a_foreign_record_stops_the_reader(value: bytes | None) -> None:
    with raises_code("unknown_finding", kind=IntegrityError):
        decode_finding(value)


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_is_explained(kind: Kind) -> None:
    info = KINDS[kind]
    assert info.title
    assert not info.title.endswith(".")
    assert 1 <= info.severity_id <= 5
    assert info.explanation.endswith(".")
    assert info.next_step.endswith(".")


@pytest.mark.parametrize("kind", list(Kind))
def test_references_have_the_form_of_their_lists(kind: Kind) -> None:
    info = KINDS[kind]
    assert all(re.fullmatch(r"AML\.T\d{4}(\.\d{3})?", technique) for technique in info.atlas)
    assert all(re.fullmatch(r"MCP(0[1-9]|10)|ASI(0[1-9]|10)", entry) for entry in info.owasp)
    assert len(set(info.owasp)) == len(info.owasp)
