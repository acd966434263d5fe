"""Keys declared by field names: the fast look at evidence gives what the full one gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.agents import Agent, Event, Fields, Rekeying
from assay_stream.errors import ConfigurationError, IntegrityError
from assay_stream.model.record import Origin, Output, Record, Role
from tests.support.agents import a_set, evidence


def reader(*keys: Callable[[Event[Any]], Any]) -> Rekeying:
    """Agents with these keys, in order."""
    agents = [Agent(f"reader_{number}", title="Reads") for number in range(len(keys))]
    for agent, key in zip(agents, keys, strict=True):
        agent.evidence(key=key)(lambda _event, _memory: None)
    return Rekeying(a_set(*agents), partitions=3)


def read(value: bytes | None) -> Record:
    """A record of evidence with this value."""
    return Record(Role.EVIDENCE, Origin("assay.tool.decision", 1, 7), b"k", value)


def outcome(rekeying: Rekeying, record: Record) -> tuple[list[Output] | str, int]:
    """What is written for a record, or the code of the error, and how far time has come."""
    written: list[Output] | str
    try:
        written = rekeying.process(record)
    except (ConfigurationError, IntegrityError) as error:
        written = error.code
    return written, rekeying.time_us("assay.tool.decision", 1)


NAMES = ("server_id", "tool", "trace_id")
VALUES = st.one_of(st.text(max_size=4), st.none(), st.integers(-9, 2**62), st.just("x" * 1_100))


@given(
    st.dictionaries(st.sampled_from((*NAMES, "origin", "binding")), VALUES, max_size=3),
    st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), min_size=1, max_size=2),
)
def test_fields_give_what_a_function_gives(changes: dict[str, Any], declared: list[list[str]]) -> None:
    """Whatever the record holds, also where it is an error: the fast look only saves time."""
    fields = [Fields(*names) for names in declared]
    event = orjson.loads(evidence(0, 5).value or b"")
    event["data"] |= changes
    record = read(orjson.dumps(event))
    assert outcome(reader(*fields), record) == outcome(reader(*(key.__call__ for key in fields)), record)


@pytest.mark.parametrize("value", [None, b"", b"[]", b"{", b'{"time":"x","data":{}}'])
def test_a_record_of_no_evidence_stops_the_process(value: bytes | None) -> None:
    """As it does for any other key."""
    with pytest.raises(IntegrityError, match="unknown_agent_input"):
        reader(Fields("tool")).process(read(value))


def test_a_call_without_the_field_is_not_wanted() -> None:
    """An agent by trace reads calls that have one."""
    assert reader(Fields("trace_id")).process(read(evidence(0, 0).value)) == []
    assert len(reader(Fields("trace_id")).process(read(evidence(0, 0, trace_id="t").value))) == 1
