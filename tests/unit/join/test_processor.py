"""Evidence: the bytes of one record per call."""

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given, strategies as st

from assay_stream.canonical.digest import jcs_digest, redaction_with
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Output, Record, Role
from tests.support import engine
from tests.support.engine import EngineState
from tests.support.events import SERVER, TEN_O_CLOCK_MS, TOOL, an_event, call_data, record_of, snapshot_data

PRODUCER = Producer(version="1.2.3", git="abc")


def a_call(event: dict[str, Any] | None = None, **data: Any) -> Record:
    value = an_event(Role.CALLS, 1, 10, call_data(**data), **(event or {}))
    return record_of(Role.CALLS, value, offset=41, partition=2)


def a_snapshot(*tools: dict[str, Any]) -> Record:
    return record_of(Role.SNAPSHOTS, an_event(Role.SNAPSHOTS, 0, 0, snapshot_data(*tools)), offset=7)


def outputs_of(call: Record, *before: Record) -> list[Output]:
    state = EngineState(producer=PRODUCER)
    for record in before:
        for fact in engine.process(state, record):
            if fact.role is Role.BINDINGS:
                state.view.take(record._replace(role=Role.BINDINGS, key=fact.key, value=fact.value))
    return engine.process(state, call)


def evidence_of(call: Record, *before: Record) -> Output:
    first = outputs_of(call, *before)[0]
    assert first.role is Role.EVIDENCE, first
    return first


def event_of(output: Output) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(output.value or b"")
    return parsed


def data_of(call: Record, *before: Record) -> dict[str, Any]:
    data: dict[str, Any] = event_of(evidence_of(call, *before))["data"]
    return data


@given(st.text(alphabet="abc", max_size=3), st.text(alphabet="abc", max_size=3))
def test_source_and_id_do_not_run_together(source: str, number: str) -> None:
    one = event_of(evidence_of(a_call({"source": "u" + source, "id": number + "x"})))["id"]
    two = event_of(evidence_of(a_call({"source": "u" + source + number, "id": "x"})))["id"]
    assert (one == two) is (number == "")


@pytest.mark.parametrize("most", [2**53, 2**53 - 1])
def test_the_largest_counts_are_written_as_every_reader_has_them(most: int) -> None:
    data = data_of(a_call(delegation_depth=most, timing={"duration_ms": most}))
    assert (data["delegation_depth"], data["timing"]["duration_ms"]) == (most, most)


def test_the_envelope_is_assay_s() -> None:
    told = event_of(evidence_of(a_call()))
    assert told["type"] == "assay.tool.decision"
    assert told["source"] == "urn:assay-stream"
    assert told["subject"] == "read_file"
    assert told["time"] == "2026-03-01T10:00:10.000000Z"
    assert told["assayproducer"] == "assay-stream"
    assert (told["assayproducerversion"], told["assaygit"]) == ("1.2.3", "abc")
    assert (told["assaypii"], told["assaysecrets"]) == (False, False)
    assert told.keys().isdisjoint({"assayrunid", "assayseq"})


def test_evidence_stands_where_its_call_stood() -> None:
    evidence = evidence_of(a_call())
    assert (evidence.key, evidence.partition, evidence.timestamp_ms) == (SERVER.encode(), 2, TEN_O_CLOCK_MS + 10_000)
    assert event_of(evidence)["data"]["origin"] == {"topic": "mcp.tools.call", "partition": 2, "offset": 41}


def test_an_ended_hold_is_never_a_guess() -> None:
    """A call whose hold limit ended is unavailable, unless it names a snapshot that is known."""
    held = a_call()._replace(hold_expired=True)
    assert data_of(held, a_snapshot(TOOL))["unbound_reason"] == "definition_unavailable"
    named = a_call(snapshot_id="snapshot-1")._replace(hold_expired=True)
    assert data_of(named, a_snapshot(TOOL))["binding"]["scope"] == "exact"


def test_the_producer_s_fragment_is_canonical() -> None:
    state = EngineState(producer=Producer(version='1"\n', git="é"))
    value = engine.process(state, a_call())[0].value
    assert value == rfc8785.dumps(json.loads(value or b""))


def test_a_redaction_of_one_s_own_is_named_where_it_was_used() -> None:
    """Hashes made here under another configuration say which one; the default and hashes made elsewhere do not."""
    chosen = redaction_with(enable=["path_absolute"])
    state = EngineState(producer=PRODUCER, redaction=chosen)

    def told(**data: Any) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(engine.process(state, a_call(**data))[0].value or b"")["data"]
        return parsed

    for name in ("args", "result"):
        evidence = told(**{name: {"path": "/home/jane"}})
        assert evidence["redaction"] == chosen.id
        assert evidence[f"{name}_hash"] == str(jcs_digest({"path": "[REDACTED:pii:path_absolute]"}))
    assert "redaction" not in told(args_hash="elsewhere")
    assert "redaction" not in data_of(a_call(args={"path": "/home/jane"}))
