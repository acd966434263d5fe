"""Requests as events, each held against the rules of its stage and against its client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay_stream.canonical.digest import DigestKey, redacted_digest
from assay_stream.ingest.requests import (
    BATCH,
    BINARY,
    STRUCTURED,
    EventJudge,
    JudgedEvent,
    RequestRefused,
    hash_of,
    new_token,
    read_clients,
    split,
)
from assay_stream.limits import DEFAULT_LIMITS, INGEST_LIMITS
from assay_stream.model.control import CONTROL_MODELS
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Record, Role
from assay_stream.observe import from_observations
from assay_stream.observe.observation import Observation, Vantage, list_changed_event
from tests.support.counting import allocating
from tests.support.engine import EngineState, process
from tests.support.errors import raises_code
from tests.support.ingest import AT, TOOL, a_call, a_list, batch
from tests.support.toml import toml_of

TOKEN = new_token()
FILE = toml_of({"clients": [{"observer_id": "gw-1", "servers": ["time", "t?"], "token": hash_of(TOKEN)}]}).encode()
CLIENT = read_clients(FILE, "clients").of([f"Bearer {TOKEN}"], [], now_us=0)
NOW_MS = 1_800_000_000_000
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def judged(raw: bytes, now_ms: int = NOW_MS) -> JudgedEvent:
    judged: list[JudgedEvent] = []
    assert all(EventJudge().steps([raw], CLIENT, judged, now_ms=now_ms))
    return judged[0]


def code_of(raw: bytes, now_ms: int = NOW_MS) -> str:
    error = judged(raw, now_ms).error
    assert error is not None
    return error.code


def changed(observation: Observation, **data: Any) -> bytes:
    event = json.loads(observation.value)
    event["data"] |= data
    return json.dumps(event).encode()


ANNOUNCED = list_changed_event(Vantage(server_id="time", observer_id="gw-1"), event_id="changed-1", observed_at=AT)
SOUND = [a_list(1), a_call(2), a_call(3, traceparent=TRACE), a_call(4, server="té", trace_id="t"), ANNOUNCED]


def test_with_a_digest_key_arguments_are_published_as_keyed_digests_alone() -> None:
    key, found = DigestKey("0f" * 32), list[JudgedEvent]()
    raw = changed(a_call(2), args={"a": 1}, result_hash="sha256:" + "0" * 64)
    assert all(EventJudge(digest_key=key).steps([raw], CLIENT, found, now_ms=NOW_MS))
    assert found[0].observation is not None
    data = json.loads(found[0].observation.value)["data"]
    assert data["args_hash"] == key.keyed(str(redacted_digest({"a": 1})))
    assert data["result_hash"].startswith(f"hmac-sha256:{key.id}:")
    assert "args" not in data


@pytest.mark.parametrize("observation", SOUND, ids=lambda each: each.kind)
def test_a_sound_event_is_the_observation_that_the_publisher_makes(observation: Observation) -> None:
    """Key, value, headers and timestamp; and what `publish` makes of the same line."""
    assert judged(observation.value).observation == observation
    assert list(from_observations([observation.value])) == [observation]


HOSTILE = [
    a_list(1).value,
    changed(a_list(1), tools=[TOOL] * (DEFAULT_LIMITS.tools_max + 1)),
    changed(a_list(1), tools=[TOOL | {"name": "n" * 5_000}]),
    changed(a_list(1), tools=[TOOL | {f"f{n}": n for n in range(DEFAULT_LIMITS.tool_fields_max)}]),
    changed(a_list(1), tools=[TOOL | {"x": "y" * DEFAULT_LIMITS.definition_bytes_max}]),
    changed(a_list(1), tools={"not": "a list"}),
    changed(a_list(1), completeness="whole"),
    changed(a_list(1), tools=[TOOL | {"description": "\ud800"}]),
    a_list(1).value.replace(b'"name"', b'"name":1,"name"'),
    a_list(1).value.replace(b'"Echo a text"', b"NaN"),
    a_list(1).value.replace(b'"Echo a text"', b"[" * 500 + b"]" * 500),
    a_list(1).value.replace(b"Echo", b"\xff"),
    changed(a_list(1), prompts=[{"name": "p", "text": 2**70}]),
    a_call(1).value,
    changed(a_call(1), decision="perhaps"),
    changed(a_call(1), tool_definition_digest="sha256:0"),
    changed(a_call(1), args_ref="https://user:password@host?"),
    a_call(1).value.replace(b"2026-03-01", b"2026-02-30"),
    a_call(1).value.replace(b'"allow"', b'"allow","decision":"deny"'),
    a_call(1).value.replace(b'"specversion":"1.0"', b'"specversion":"2.0"'),
]


@pytest.mark.parametrize("raw", HOSTILE)
def test_ingest_and_stage_never_disagree(raw: bytes) -> None:
    """With the same code at the same place. A list that the registry refuses goes there all the same."""
    outcome = judged(raw)
    role = Role.CALLS if b"mcp.tools.call.observed" in raw else Role.SNAPSHOTS
    headers = (("content-type", b"application/cloudevents+json"), ("assay-observer-id", b"gw-1"))
    record = Record(role, Origin("t", 0, 0), b"time", raw, headers, 1_772_359_200_000)
    outputs = process(EngineState(producer=Producer(version="0")), record)
    codes = [dict(output.headers)["error.code"].decode() for output in outputs if output.role is Role.REJECTED]
    assert codes == ([] if outcome.error is None else [outcome.error.code])
    assert outcome.observation is None or outcome.observation.value == raw
    if outcome.error is not None:
        assert (outcome.observation is not None) == (role is Role.SNAPSHOTS)


@pytest.mark.parametrize("kind", CONTROL_MODELS)
def test_control_records_are_not_taken(kind: str) -> None:
    """Whoever sends them: they decide what enforcing taps let through."""
    raw = a_call(1).value.replace(b"mcp.tools.call.observed", kind.encode())
    for each in (raw, b"{}"):
        named = "mcp.tools.call.observed" in str(judged(each).error)
        assert (code_of(each), judged(each).observation, named) == ("unknown_type", None, True)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (a_call(1, observer="gw-2").value, "$.data.observer_id"),
        (a_list(1, observer="gw-2").value, "$.data.observer_id"),
        (a_call(1, server="mail").value, "$.data.server_id"),
        (a_list(1, server="mail").value, "$.data.server_id"),
        (a_call(1).value.replace(b"observer:gw-1", b"observer:gw-2"), "$.source"),
        (a_call(1).value.replace(b"observer:gw-1", b"observer:gw-1 "), "$.source"),
    ],
)
def test_what_is_somebody_elses_is_refused_at_its_field(raw: bytes, path: str) -> None:
    """Observer, server, source: the last two name evidence, the first whose list is in force."""
    error = judged(raw).error
    assert error is not None
    assert (error.code, error.path) == ("not_yours", path)
    assert judged(raw).observation is None


@pytest.mark.parametrize(
    "raw",
    [
        a_list(1, observer="gw-2").value.replace(b'"name"', b'"name":1,"name"'),
        a_list(1, server="mail").value.replace(b'"name"', b'"name":1,"name"'),
        # A reader that forgives takes the last one, and our own header is what counts.
        a_list(1).value.replace(b'"observer_id"', b'"observer_id":"gw-1","observer_id":"gw-2","x"'),
        b"{",
        b"[]",
        b"",
    ],
)
def test_an_unreadable_list_of_somebody_else_is_not_recorded(raw: bytes) -> None:
    """It would end what another observer saw."""
    outcome = judged(raw)
    assert outcome.error is not None
    assert outcome.observation is None


def test_an_event_may_not_be_ahead_of_the_clock() -> None:
    """Neither a valid one nor an unreadable list: both would count for the future."""
    at_ms = a_list(1).timestamp_ms - INGEST_LIMITS.future_max_ms
    assert judged(a_list(1).value, at_ms).error is None
    assert (code_of(a_list(1).value, at_ms - 1), judged(a_list(1).value, at_ms - 1).observation) == (
        "time_in_future",
        None,
    )
    unreadable = a_list(1).value.replace(b'"name"', b'"name":1,"name"')
    assert judged(unreadable, at_ms).observation is not None
    assert judged(unreadable, at_ms - 1).observation is None


def test_events_are_told_apart_by_observer_source_and_id() -> None:
    assert judged(a_call(1).value).mark == judged(changed(a_call(1), ok=True)).mark
    assert judged(a_call(1).value).mark != judged(a_call(2).value).mark


def test_a_batch_is_cut_into_the_bytes_that_were_sent() -> None:
    """Whatever white space stands between them."""
    body = b" [\n" + a_list(1).value + b" ,\t" + a_call(2).value + b"\n]\n"
    assert split([("Content-Type", BATCH)], body) == [a_list(1).value, a_call(2).value]
    assert split([("content-type", f"{STRUCTURED}; charset=UTF-8")], a_call(1).value) == [a_call(1).value]


@pytest.mark.parametrize("body", [b"", b"{}", b"[", b"[1,]", b"[]", b"[" * 100_000, b"[" + b"1," * 1_000 + b"1]"])
def test_what_is_no_batch_is_refused(body: bytes) -> None:
    """As a whole: nobody could say which event is meant."""
    with pytest.raises(RequestRefused):
        split([("Content-Type", BATCH)], body, limits=INGEST_LIMITS)


def in_binary_mode(observation: Observation, *more: tuple[str, str]) -> tuple[list[tuple[str, str]], bytes]:
    event = json.loads(observation.value)
    data = observation.value.partition(b'"data":')[2][:-1]
    kind = event.pop("datacontenttype")
    del event["data"]
    return [("Content-Type", kind), *((f"CE-{name}", value) for name, value in event.items()), *more], data


@pytest.mark.parametrize("observation", SOUND, ids=lambda each: each.kind)
def test_an_event_in_binary_mode_is_published_as_the_publisher_writes_it(observation: Observation) -> None:
    """In structured mode, the same bytes."""
    fields, body = in_binary_mode(observation)
    assert split(fields, body) == [observation.value]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("ce-id", "another"), "duplicate_key"),
        (("ce-data", "{}"), "duplicate_key"),
        (("ce-datacontenttype", "text/plain"), "duplicate_key"),
        (("ce-with-dash", "x"), "duplicate_key"),
        (("ce-more", "%ff"), "not_utf8"),
    ],
)
def test_attributes_in_binary_mode_are_stated_once(more: tuple[str, str], code: str) -> None:
    """A proxy in between might have read the other one."""
    fields, body = in_binary_mode(a_call(1), more)
    with raises_code(code):
        split(fields, body)


def test_data_in_binary_mode_cannot_leave_its_place() -> None:
    """A body that closes the event and goes on is no JSON, whatever it says."""
    fields, body = in_binary_mode(a_call(1))
    [raw] = split(fields, body + b',"source":"urn:assay-stream:observer:gw-2"')
    assert judged(raw).error is not None


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", BINARY, "application/cloudevents", f"{STRUCTURED}; charset=utf-16"]
)
def test_other_content_types_are_refused(content_type: str) -> None:
    """JSON without attributes too."""
    with pytest.raises(RequestRefused) as caught:
        split([("Content-Type", content_type)], a_call(1).value)
    assert caught.value.status == 415


def test_a_batch_of_millions_is_refused_before_its_events_are_kept() -> None:
    """Each would take seventy bytes: of the largest body, half a gigabyte, on the loop that serves all clients."""
    body = b"[" + b"0," * 1_000_000 + b"0]"
    with allocating() as allocated, pytest.raises(RequestRefused, match="1000"):
        split([("Content-Type", BATCH)], body)
    assert allocated.peak_bytes < len(body)


def test_a_batch_helper_makes_what_clients_send() -> None:
    """So that the tests above say something of batches of the publisher's bytes."""
    assert split([("Content-Type", BATCH)], batch(*SOUND)) == [each.value for each in SOUND]
