"""Recorded traffic as observations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.model.cloudevents import read_event
from assay_stream.observe import Observation, from_mcp_wire, from_observations
from tests.unit.observe.test_events import as_record

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
WIRES = sorted((CAPTURES / "wire").glob("*.jsonl"))


def observations_of(wire: Path) -> list[Observation]:
    """The observations of a capture."""
    with wire.open("rb") as lines:
        return list(from_mcp_wire(lines, server_id="s", observer_id="o", server_scoped=True))


def listed(wire: Path) -> dict[str, Any]:
    """The result of ``tools/list`` as it was captured beside the wire."""
    name = wire.name.removesuffix(".jsonl")
    modern = name.endswith(".2026-07-28")
    suffix = ".tools_list.2026-07-28.json" if modern else ".tools_list.json"
    content = json.loads((CAPTURES / (name.removesuffix(".2026-07-28") + suffix)).read_bytes())
    result: dict[str, Any] = content["result"]
    return result


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_the_snapshot_of_a_capture_is_what_the_server_listed(wire: Path) -> None:
    """Tool for tool, and complete."""
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
    """Ids come from the content."""
    observations = observations_of(wire)
    assert observations == observations_of(wire)
    for observation in observations:
        read_event(as_record(observation))
    ids = [json.loads(item.value)["id"] for item in observations]
    assert len(set(ids)) == len(ids)


def wire_line(message: bytes, direction: bytes = b"client->server") -> bytes:
    """One line of a wire log."""
    return b'{"dir":"%s","ts":"2026-11-21T02:06:07.386Z","msg":%s}\n' % (direction, message)


def test_an_unsound_list_in_a_capture_is_published_as_it_passed() -> None:
    """For the registry to refuse."""
    lines = [
        wire_line(b'{"id":1,"method":"tools/list"}'),
        wire_line(b'{"id":1,"result":{"tools":[{"name":"a","name":"b"}]}}', b"server->client"),
    ]
    [observation] = from_mcp_wire(lines, server_id="s", observer_id="o")
    with pytest.raises(InputError, match="duplicate_key"):
        read_event(as_record(observation))


def test_text_that_was_no_message_and_calls_without_an_answer() -> None:
    """A capture may stop anywhere."""
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
    """Every error reaches the caller."""
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
