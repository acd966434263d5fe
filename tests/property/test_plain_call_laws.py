"""Laws of plain calls: the short way takes nothing that the model refuses, and writes the very same evidence."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from assay_stream.join import process, process_calls
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.cloudevents import read_whole_call
from assay_stream.model.evidence import Producer
from assay_stream.model.plain_call import NATIVE_CALLS, read_native, read_plain
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.schemes import assay_tool as assay
from tests.support.engine import EngineState
from tests.support.events import TOOL, an_event, read_live, snapshot_data

PRODUCER = Producer(version="1")
POLICY = {**assay.POLICY_CLUSTER_CONSTANTS, "policy_snapshot_digest": "sha256:p", "policy_digest": "sha256:p"}
TIMES = st.sampled_from(
    [
        "2026-03-01T10:00:05Z",
        "2026-03-01T10:00:05.123Z",
        "2026-03-01T10:00:05.123456Z",
        "2026-03-01T10:00:05.1Z",
        "2026-03-01t10:00:05z",
        "2026-03-01T10:00:05+00:00",
        "2026-03-01 10:00:05Z",
        "2026-02-30T10:00:05Z",
        "2026-03-01T10:00:05,123Z",
        "1969-12-31T23:59:59Z",
        "2026-03-01T10:00:05.123456789Z",
        "20260301T100005.0000000000Z",
    ]
)
TEXTS = st.text(min_size=1, max_size=12) | st.sampled_from(
    ["a", " ", "\u3000", "\x85", "x" * 512, "x" * 513, "x" * 129, '"', "\\", "é", "\x7f", "a b", "\u2028", "null", ""]
)
NUMBERS = (
    st.integers(-2, 2**53 + 2)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, 1, 2**53, 0.5, 12.25, 1e2, -0.0, 0.0001, 1e-5, 2.0**53, True, None])
)
WORDS = st.sampled_from(["allow", "deny", "error", "agent", "human", "READ", "IDEMPOTENT", "assay", "handshake"])
ODD: st.SearchStrategy[Any] = st.one_of(
    TEXTS, NUMBERS, st.none(), st.booleans(), st.just([]), st.just({"a": [1, {"b": "c"}]})
)

DIGESTS = st.just("sha256:" + "0a" * 32)
PLAIN = st.sampled_from(["a", "x" * 128, "é", "a b", "\x7f", "\u2028"])
MOMENTS = st.sampled_from(["2026-03-01T10:00:05Z", "2026-03-01T10:00:05.123Z", "2026-03-01T10:00:05.123456Z"])
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "actor": st.fixed_dictionaries(
        {"kind": st.just("agent")}, optional={"agent_id": PLAIN, "model_id": PLAIN, "x": PLAIN}
    ),
    "args_hash": PLAIN,
    "args_ref": st.just("artifact:1"),
    "delegated_from": PLAIN,
    "delegation_depth": st.integers(0, 2**53),
    "error": st.fixed_dictionaries({"code": PLAIN}, optional={"kind": PLAIN, "message": PLAIN}),
    "idempotency": st.just("IDEMPOTENT"),
    "inputs": st.fixed_dictionaries(
        {"requests_hash": DIGESTS},
        optional={"elicitation_url": st.integers(0, 2**53), "declined": st.just(1), "more": st.booleans(), "x": PLAIN},
    ),
    "ok": st.booleans(),
    "rounds": st.integers(0, 2**53),
    "task": st.fixed_dictionaries({"id_hash": DIGESTS, "status": st.sampled_from(["working", "failed"])}),
    "profile": st.just("assay"),
    "side_effect": st.just("READ"),
    "snapshot_id": st.sampled_from(["snapshot-1", "unknown"]),
    "timing": st.fixed_dictionaries(
        {},
        optional={
            "duration_ms": st.sampled_from([0, 7, 2**53, 0.5, 12.25, 5.0, 0.0001, 1e15]),
            "started_at": MOMENTS,
            "ended_at": MOMENTS,
        },
    ),
    "shown_tool_name": PLAIN,
    "not_observed": st.lists(st.sampled_from(["arguments", "result", "outcome"]), max_size=9),
    "trace_id": PLAIN,
    "transport": st.just("mcp"),
    "tool_version": PLAIN,
}
ODD_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(FIELDS, TEXTS | ODD | WORDS),
    **{name: st.just(value) | TEXTS for name, value in POLICY.items()},
    **dict.fromkeys(("args", "result", "binding", "origin", "pin", "tool", "tool_identity", "x-unknown"), ODD),
    **dict.fromkeys(("unbound_reason", "tool_definition_digest", "server_id", "tool_name", "tool_call_id"), TEXTS),
    "actor": st.fixed_dictionaries({"kind": WORDS}, optional={"agent_id": ODD, "x": ODD}),
    "error": st.fixed_dictionaries({}, optional={"code": ODD, "kind": ODD, "message": ODD, "x": ODD}),
    "inputs": st.fixed_dictionaries({}, optional={"requests_hash": DIGESTS | ODD, "sampling": NUMBERS, "more": ODD}),
    "task": st.fixed_dictionaries({}, optional={"id_hash": DIGESTS | ODD, "status": WORDS | ODD}),
    "timing": st.fixed_dictionaries(
        {}, optional={"duration_ms": NUMBERS, "started_at": TIMES, "ended_at": TIMES, "x": ODD}
    ),
}
REQUIRED: dict[str, st.SearchStrategy[Any]] = {
    "server_id": st.sampled_from(["server", "other"]),
    "observer_id": st.sampled_from(["alice", "bob"]),
    "tool_name": st.sampled_from(["read_file", "other"]),
    "tool_call_id": PLAIN,
    "decision": st.sampled_from(["allow", "deny"]),
    "reason_code": PLAIN,
}
ATTRIBUTES: dict[str, st.SearchStrategy[Any]] = {
    "specversion": st.just("1.0"),
    "type": st.just("mcp.tools.call.observed"),
    "source": st.just("urn:proxy"),
    "id": PLAIN,
    "time": MOMENTS,
}
ODD_ATTRIBUTES: dict[str, st.SearchStrategy[Any]] = {
    "specversion": st.just("0.3"),
    "source": TEXTS,
    "id": TEXTS,
    "time": TIMES,
    "datacontenttype": st.just("application/json") | ODD,
    "traceparent": st.just("00-" + "a" * 32 + "-" + "b" * 16 + "-01") | ODD,
    "subject": ODD,
}


@st.composite
def some_of(draw: st.DrawFn, odd: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(odd)), max_size=2)) if draw(st.booleans()) else []
    return {name: draw(odd[name]) for name in names}


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=draw(st.integers(0, 39)) == 0)
    members = [(name, draw(written(member))) for name, member in value.items()]
    if members and draw(st.integers(0, 19)) == 0:
        members.insert(draw(st.integers(0, len(members))), draw(st.sampled_from(members)))
    if members and draw(st.integers(0, 39)) == 0:
        members.pop(draw(st.integers(0, len(members) - 1)))
    colon, comma = draw(st.sampled_from([(":", ",")] * 4 + [(": ", ", "), (" :", " ,")]))
    return "{" + comma.join(f"{json.dumps(name)}{colon}{text}" for name, text in members) + "}"


@st.composite
def calls(draw: st.DrawFn) -> bytes:
    data = draw(st.fixed_dictionaries(REQUIRED, optional=FIELDS)) | draw(some_of(ODD_FIELDS))
    event = draw(st.fixed_dictionaries(ATTRIBUTES)) | draw(some_of(ODD_ATTRIBUTES))
    return draw(written(event | {"data": data})).encode("utf-8", "surrogatepass")


def a_state() -> EngineState:
    state = EngineState(producer=PRODUCER)
    data = snapshot_data(TOOL, server_id="server", observer_id="alice", snapshot_id="snapshot-1")
    place = Origin(topic="mcp.tools.list", partition=0, offset=0)
    value = an_event(Role.SNAPSHOTS, 1, 1, data)
    read_live(state, [Record(role=Role.SNAPSHOTS, origin=place, key=b"server", value=value)])
    return state


STATE = a_state()
NAMES = (
    *("source", "id", "time", "time_us", "traceparent"),
    *("server_id", "tool_name", "observer_id", "snapshot_id", "decision"),
)
"""What a join asks of a call."""


def a_record(value: bytes) -> Record:
    return Record(role=Role.CALLS, origin=Origin(topic='calls "1"', partition=3, offset=7), key=None, value=value)


def assert_gives_the_evidence_of_the_model(value: bytes, read: Any, offset: int) -> None:
    whole = read_whole_call(a_record(value))
    for name in NAMES:
        assert getattr(read, name) == getattr(whole, name)
    for expired in (False, True):
        record = a_record(value)._replace(hold_expired=expired)
        record = record._replace(origin=record.origin._replace(offset=offset))
        expected = process(STATE.join, record, whole)
        assert process(STATE.join, record, read) == expected
        assert process(STATE.join, record, read) == expected


@given(calls())
def test_what_is_taken_the_short_way_gives_the_evidence_of_the_model(value: bytes) -> None:
    plain = read_plain(value, DEFAULT_LIMITS)
    if plain is not None:
        assert_gives_the_evidence_of_the_model(value, plain, 7)


@pytest.mark.skipif(not NATIVE_CALLS, reason="the extension is not built")
@given(calls(), st.sampled_from([7, 2**53 + 1, 2**63 - 1]))
def test_the_extension_gives_the_evidence_of_the_model(value: bytes, offset: int) -> None:
    native = read_native(value, DEFAULT_LIMITS)
    if native is not None:
        assert_gives_the_evidence_of_the_model(value, native, offset)


@pytest.mark.skipif(not NATIVE_CALLS, reason="the extension is not built")
@given(st.fixed_dictionaries(REQUIRED, optional=FIELDS), st.fixed_dictionaries(ATTRIBUTES))
def test_the_extension_takes_what_python_takes(data: dict[str, Any], event: dict[str, Any]) -> None:
    """Else it would save nothing. Fractions and policies it leaves to Python."""
    value = json.dumps(event | {"data": data}, ensure_ascii=False).encode()
    if isinstance(data.get("timing", {}).get("duration_ms"), float):
        return
    assert (read_native(value, DEFAULT_LIMITS) is None) == (read_plain(value, DEFAULT_LIMITS) is None)


@given(st.lists(calls() | st.just(b"refused"), max_size=8), st.data())
def test_however_calls_are_cut_into_pieces_the_same_is_written(values: list[bytes], data: st.DataObject) -> None:
    join = STATE.join
    records = [a_record(value)._replace(origin=Origin("calls", 3, offset)) for offset, value in enumerate(values)]
    cut = data.draw(st.integers(0, len(records)))
    written: list[list[Output]] = []
    for piece in (records[:cut], records[cut:]):
        written += process_calls(join, zip(piece, join.read_some(piece), strict=True))
    assert written == [process(join, record) for record in records]


@given(st.fixed_dictionaries({}, optional=FIELDS), st.data())
def test_a_key_that_stands_there_twice_is_never_plain(fields: dict[str, Any], data: st.DataObject) -> None:
    required = {
        "server_id": "server",
        "observer_id": "alice",
        "tool_name": "read_file",
        "tool_call_id": "c",
        "decision": "allow",
        "reason_code": "R",
    }
    content = required | fields
    name = data.draw(st.sampled_from(sorted(content)))
    text = json.dumps(content, ensure_ascii=False)
    twice = text[:-1] + f",{json.dumps(name)}:{json.dumps(content[name], ensure_ascii=False)}}}"
    value = (
        '{"specversion":"1.0","type":"mcp.tools.call.observed","source":"urn:p","id":"1",'
        f'"time":"2026-03-01T10:00:05Z","data":{twice}}}'
    )
    assert read_plain(value.encode("utf-8", "surrogatepass"), DEFAULT_LIMITS) is None
    assert read_native(value.encode("utf-8", "surrogatepass"), DEFAULT_LIMITS) is None
