"""The first step: records under the keys of agents."""

from typing import Any
from zlib import crc32

import orjson
import pytest

from assay_stream.agents import Agent, Rekeying
from assay_stream.errors import ConfigurationError, IntegrityError
from assay_stream.model.alert_state import INPUT_HEADER
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Record, Role
from tests.support.agents import a_set, evidence
from tests.support.errors import raises_code
from tests.support.findings import a_finding


def reader(key: Any, label: Any = None) -> Rekeying:
    agent = Agent("reader", title="Reads")
    for declare in (agent.evidence, agent.findings, agent.alerts):
        declare(key=key)(lambda _event, _memory: None)
    if label is not None:
        agent.definitions(label)
    return Rekeying(a_set(agent), partitions=2)


def read(output: Output) -> Record:
    return Record(output.role, Origin(output.role.value, 1, 7), output.key, output.value)


def test_a_record_is_copied_value_for_value_under_the_agent_and_the_key() -> None:
    """So whoever handles it reads what the stage wrote."""
    call = evidence(0, 0)
    [output] = reader(lambda event: ("a", event.server_id)).process(read(call))
    assert (output.role, output.value, output.partition) == (
        Role.AGENT_INPUTS,
        call.value,
        crc32(output.key or b"") % 2,
    )
    assert orjson.loads(output.key or b"") == ["reader", "a", "mail"]
    assert dict(output.headers)[INPUT_HEADER] == b"evidence"


@pytest.mark.parametrize("kind", [Kind.DETECTION, Kind.AGENT_LIMITED])
def test_findings_of_agents_are_not_read(kind: Kind) -> None:
    """No detection feeds on itself, or on another that feeds on it."""
    rekeying = reader(lambda event: event.server_id)
    assert rekeying.process(read(a_finding(kind=kind).output())) == []
    assert len(rekeying.process(read(a_finding().output()))) == 1


@pytest.mark.parametrize("key", [7, (), ("a", 7), ("a", ["b"]), ["a"], ("a",) * 9])
def test_junk_for_a_key_is_refused_with_the_name_of_the_agent(key: Any) -> None:
    with raises_code("agent_bad_key", kind=ConfigurationError, match="'reader'"):
        reader(lambda _event: key).process(read(evidence(0, 0)))


def test_a_long_name_stands_as_its_digest_in_a_key() -> None:
    """A server that names a tool so must not stop the detections."""
    [output] = reader(lambda _event: ("a", "x" * 1_025)).process(read(evidence(0, 0)))
    _, first, second = orjson.loads(output.key or b"")
    assert (first, second[:7], len(second)) == ("a", "sha256:", 71)


def test_a_key_function_that_raises_is_named_with_its_line() -> None:
    with pytest.raises(ConfigurationError, match=r"agent_raised: agent 'reader': it raised KeyError in <lambda>, line"):
        reader(lambda event: event.value["secret"]).process(read(evidence(0, 0)))


def test_what_an_agent_remembers_of_a_definition_goes_everywhere() -> None:
    """Whatever the key of a call, the label is there before it; a definition without one leaves nothing."""
    rekeying = reader(lambda _event: None, label=lambda definition: definition.get("title"))
    for definition, partitions in (({"title": "T"}, [0, 1]), ({}, [])):
        value = orjson.dumps({"full_digest": "sha256:1", "definition": definition})
        outputs = rekeying.process(read(Output(Role.DEFINITIONS, b"sha256:1", value)))
        assert [(output.partition, output.value) for output in outputs] == [(number, b'"T"') for number in partitions]


@pytest.mark.parametrize("label", [{1, 2}, float("nan"), "x" * 70_000])
def test_junk_for_a_label_is_refused(label: Any) -> None:
    """No JSON, or more than a state may hold."""
    value = orjson.dumps({"full_digest": "sha256:1", "definition": {}})
    with pytest.raises(ConfigurationError, match="agent_bad_label"):
        reader(lambda _event: None, label=lambda _: label).process(read(Output(Role.DEFINITIONS, b"sha256:1", value)))


@pytest.mark.parametrize("role", [Role.EVIDENCE, Role.ALERTS])
def test_a_foreign_record_stops_the_process(role: Role) -> None:
    """Only assay-stream writes these topics."""
    with pytest.raises(IntegrityError, match="unknown_agent_input"):
        reader(lambda event: event.server_id).process(read(Output(role, b"k", b"{}")))


def test_a_record_that_kills_workers_is_set_aside() -> None:
    """With a copy and a finding, as everywhere."""
    outputs = reader(lambda event: event.server_id).process(read(evidence(0, 0))._replace(set_aside=True))
    assert [output.role for output in outputs] == [Role.REJECTED, Role.FINDINGS]
