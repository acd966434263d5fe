"""Recorded traffic as observations."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assay_stream.canonical.digest import redacted_digest
from assay_stream.errors import InputError
from assay_stream.model.cloudevents import read_event
from assay_stream.observe import Observation, from_assay_log, from_mcp_wire, from_observations
from assay_stream.observe.recorded import StableIds, numbered, parse_rfc3339
from tests.support.mcp_dialogue import THE_VANTAGE
from tests.support.vectors import vectors
from tests.unit.observe.test_events import as_record

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
WIRES = sorted((CAPTURES / "wire").glob("*.jsonl"))


def observations_of(wire: Path) -> list[Observation]:
    with wire.open("rb") as lines:
        return list(from_mcp_wire(lines, server_id="s", observer_id="o", server_scoped=True))


def listed(wire: Path) -> dict[str, Any]:
    name = wire.name.removesuffix(".jsonl")
    modern = name.endswith(".2026-07-28")
    suffix = ".tools_list.2026-07-28.json" if modern else ".tools_list.json"
    content = json.loads((CAPTURES / (name.removesuffix(".2026-07-28") + suffix)).read_bytes())
    result: dict[str, Any] = content["result"]
    return result


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_the_snapshot_of_a_capture_is_what_the_server_listed(wire: Path) -> None:
    snapshots = [json.loads(item.value)["data"] for item in observations_of(wire) if item.kind == "list"]
    # Some servers were asked again after they had learnt what the client can do.
    assert snapshots[-1]["tools"] == listed(wire)["tools"]
    assert snapshots[-1]["completeness"] == "complete"
    assert snapshots[-1]["server_scoped"] is True
    assert snapshots[-1]["protocol_version"] in ("2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28")


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_every_call_of_a_capture_is_observed_with_its_outcome(wire: Path) -> None:
    """In order, bound to the snapshot before it."""
    messages = [json.loads(line)["msg"] for line in wire.read_bytes().splitlines()]
    asked = [message for message in messages if message.get("method") == "tools/call"]
    answers = {message["id"]: message for message in messages if "method" not in message}
    events = [json.loads(item.value) for item in observations_of(wire)]
    snapshots = [event["data"] for event in events if event["type"] == "mcp.tools.list.observed"]
    calls = [event["data"] for event in events if event["type"] == "mcp.tools.call.observed"]
    assert [call["tool_name"] for call in calls] == [message["params"]["name"] for message in asked]
    for call, message in zip(calls, asked, strict=True):
        result = answers[message["id"]].get("result")
        assert call["ok"] is (result is not None and not result.get("isError", False))
        assert call["snapshot_id"] in [snapshot["snapshot_id"] for snapshot in snapshots]
        assert call["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
        assert call["args_hash"].startswith("sha256:")


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_the_same_capture_gives_the_same_bytes_and_the_worker_accepts_them(wire: Path) -> None:
    observations = observations_of(wire)
    assert observations == observations_of(wire)
    for observation in observations:
        read_event(as_record(observation))
    ids = [json.loads(item.value)["id"] for item in observations]
    assert len(set(ids)) == len(ids)


def wire_line(message: bytes, direction: bytes = b"client->server") -> bytes:
    return b'{"dir":"%s","ts":"2026-11-21T02:06:07.386Z","msg":%s}\n' % (direction, message)


def test_an_unsound_list_in_a_capture_is_published_as_it_passed() -> None:
    lines = [
        wire_line(b'{"id":1,"method":"tools/list"}'),
        wire_line(b'{"id":1,"result":{"tools":[{"name":"a","name":"b"}]}}', b"server->client"),
    ]
    [observation] = from_mcp_wire(lines, server_id="s", observer_id="o")
    with pytest.raises(InputError, match="duplicate_key"):
        read_event(as_record(observation))


def test_text_that_was_no_message_and_calls_without_an_answer() -> None:
    lines = [
        wire_line(json.dumps("Server listening").encode(), b"server->client"),
        wire_line(b'{"id":1,"method":"tools/call","params":{"name":"a"}}'),
    ]
    [observation] = from_mcp_wire(lines, server_id="s", observer_id="o")
    assert json.loads(observation.value)["data"]["error"] == {"code": "no_response"}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"nonsense", "not_json at $: line 2"),
        (b"[]", "not_json at $: line 2"),
        (b'{"ts":"2026-11-21T02:06:07Z","msg":{}}', "unknown_value at $.dir: line 2"),
        (b'{"dir":["x"],"ts":"2026-11-21T02:06:07Z","msg":{}}', "unknown_value at $.dir: line 2"),
        (b'{"dir":"client->server","ts":"yesterday","msg":{}}', "bad_time at $.ts: line 2"),
        (b'{"dir":"client->server","ts":"2026-11-21T02:06:07Z"}', "missing_field at $.msg: line 2"),
    ],
)
def test_a_bad_line_is_named_and_the_rest_is_read(line: bytes, error: str) -> None:
    call = wire_line(b'{"id":1,"method":"tools/call","params":{"name":"a"}}')
    errors: list[InputError] = []
    lines = [call, line, wire_line(b'{"id":1,"result":{}}', b"server->client")]
    [observation] = from_mcp_wire(lines, server_id="s", observer_id="o", on_error=errors.append)
    assert json.loads(observation.value)["data"]["ok"] is True
    assert [str(found).startswith(error) for found in errors] == [True]
    with pytest.raises(InputError, match="line 2"):
        list(from_mcp_wire(lines, server_id="s", observer_id="o"))


def test_observations_come_back_byte_for_byte() -> None:
    """Key, headers and time too; unsound ones included."""
    observations = [item for wire in WIRES for item in observations_of(wire)]
    unsound = [
        wire_line(b'{"id":1,"method":"tools/list"}'),
        wire_line(b'{"id":1,"result":{"tools":[NaN]}}', b"server->client"),
    ]
    observations += from_mcp_wire(unsound, server_id="s", observer_id="o")
    assert list(from_observations(item.value + b"\n" for item in observations)) == observations


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"\x00", "not_json at $: line 1"),
        (b'{"type":"other"}', "unknown_type at $.type: line 1"),
        (b'{"type":["x"]}', "unknown_type at $.type: line 1"),
        (b'{"type":"mcp.tools.call.observed","data":{}}', "missing_field at $.data.server_id: line 1"),
        (b'{"type":"mcp.tools.call.observed","data":{"server_id":"s"}}', "bad_time at $.time: line 1"),
    ],
)
def test_an_observation_without_a_place_is_an_error(line: bytes, error: str) -> None:
    """It cannot be published, so the caller must hear of it."""
    errors: list[InputError] = []
    assert list(from_observations([line], on_error=errors.append)) == []
    assert [str(found).startswith(error) for found in errors] == [True]


VECTOR = vectors("assay_tool_decision_payload")
TIME = "2026-11-21T02:06:07Z"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BARE = {"tool": "read_file", "decision": "deny", "reason_code": "P_DENY", "tool_call_id": "tc_1", "ts": TIME}


def read(*lines: object, errors: list[InputError] | None = None) -> list[dict[str, Any]]:
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    on_error = None if errors is None else errors.append
    found = list(from_assay_log(raw, server_id="s", observer_id="o", on_error=on_error))
    for observation in found:
        read_event(as_record(observation))
    return [json.loads(observation.value) for observation in found]


def enveloped(**changes: Any) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "type": "assay.tool.decision",
        "source": "urn:assay:test",
        "id": "run_1:0",
        "time": TIME,
        "data": VECTOR["payload"],
    } | changes


def test_the_published_payload_becomes_a_call() -> None:
    """All stable fields but the definition cluster: a digest comes from an observed list or not at all."""
    [event] = read(enveloped())
    data = event["data"]
    assert data["tool_name"] == "read_file"
    assert (data["decision"], data["reason_code"]) == ("allow", "P_POLICY_ALLOW")
    assert data["policy_snapshot_canonicalization"] == "jcs:mcp_policy"
    assert (data["delegated_from"], data["delegation_depth"]) == ("agent:planner", 1)
    assert not [name for name in data if name.startswith("tool_definition")]
    assert data["tool_call_id"] == event["id"], "a bare payload names no call"


def test_a_bare_payload_with_its_own_time_and_call_id() -> None:
    """As runtime logs have it; what could hold secrets is hashed and dropped."""
    [event] = read(
        BARE
        | {
            "args": {"path": "/etc"},
            "ok": False,
            "error": {"code": "E1", "message": "secret"},
            "traceparent": TRACE,
            "unknown": 1,
        }
    )
    data = event["data"]
    assert event["time"] == "2026-11-21T02:06:07.000000Z"
    assert data["tool_call_id"] == "tc_1"
    assert data["args_hash"] == str(redacted_digest({"path": "/etc"}))
    assert data["error"] == {"code": "E1"}
    assert data["trace_id"] == TRACE[3:35]
    assert "args" not in data
    assert "unknown" not in data


@pytest.mark.parametrize("decision", ["allow", "deny", "requires_approval", "error"])
def test_all_decisions_of_contract_and_runtime_are_accepted(decision: str) -> None:
    assert read(BARE | {"decision": decision})[0]["data"]["decision"] == decision


def test_an_envelope_read_twice_is_one_observation() -> None:
    """Its id is a function of the envelope's source and id; bare lines differ by their place."""
    first, other, again = (
        enveloped(data=BARE, id="a"),
        enveloped(data=BARE, id="b"),
        enveloped(data=BARE, id="a", subject="x"),
    )
    ids = [event["id"] for event in read(first, other, again, BARE, BARE)]
    assert ids[0] == ids[2]
    assert len(set(ids)) == 4
    assert ids == [event["id"] for event in read(first, other, again, BARE, BARE)]


def test_other_events_of_a_bundle_have_nothing_to_say() -> None:
    assert read(enveloped(type="assay.profile.started")) == []


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"nonsense", "not_json"),
        (b'{"tool":"a","tool":"b"}', "duplicate_key"),
        (b"[]", "not_an_event"),
        (enveloped(data=3), "wrong_type at $.data"),
        ({name: BARE[name] for name in BARE if name != "tool"}, "missing_field at $.tool"),
        ({name: BARE[name] for name in BARE if name != "ts"}, "missing_field at $.time"),
        (BARE | {"ts": "now"}, "bad_time at $.ts"),
        (BARE | {"decision": "maybe"}, "unknown_value at $.data.decision"),
        (BARE | {"tool_call_id": 3}, "wrong_type at $.data.tool_call_id"),
        (BARE | {"policy_snapshot_digest": "sha256:x"}, ""),
        (BARE | {"tool_definition_digest": "sha256:" + "0" * 64}, ""),
    ],
)
def test_a_bad_line_is_named_and_the_rest_is_read_assay_log(line: object, error: str) -> None:
    errors: list[InputError] = []
    assert len(read(BARE, line, BARE, errors=errors)) == 2
    assert len(errors) == 1
    assert str(errors[0]).startswith(error)
    assert "line 2" in str(errors[0])


@pytest.mark.parametrize(
    "text", ["2026-11-21T02:06:07Z", "2026-11-21t03:06:07.000+01:00", "2026-11-21T02:06:07.000000000-00:00"]
)
def test_rfc3339_times_are_read(text: str) -> None:
    """In every spelling that the standard allows."""
    assert parse_rfc3339(text, path="$.ts") == datetime(2026, 11, 21, 2, 6, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["2026-11-21", "2026-11-21T02:06:07", "2026-02-30T00:00:00Z", "20261121T020607Z", 1_795_226_767, None]
)
def test_other_times_are_refused(text: object) -> None:
    """A time without its offset is no moment."""
    with pytest.raises(InputError, match=r"bad_time at \$\.ts"):
        parse_rfc3339(text, path="$.ts")


def test_ids_depend_on_every_line_so_far_and_on_nothing_else() -> None:
    """So a log that grew gives the old ids for its old lines."""
    one, other, changed = StableIds(THE_VANTAGE), StableIds(THE_VANTAGE), StableIds(THE_VANTAGE)
    for ids, line in ((one, b"a"), (other, b"a"), (changed, b"b")):
        ids.line(line)
    assert one() == other()
    assert one() == other() != changed()
    assert one() != one()


def test_blank_lines_are_counted_but_not_given() -> None:
    assert list(numbered(iter([b"a\n", b"\r\n", b"  ", b"b"]))) == [(1, b"a"), (4, b"b")]
