"""Bad input, named: each with a clear error, nothing lost, and no partition stopped."""

import json
from typing import Any

import pytest

from assay_stream.model.evidence import Producer
from assay_stream.model.record import Output, Record, Role
from tests.support import engine
from tests.support.counting import counted_calls
from tests.support.engine import EngineState
from tests.support.events import TOOL, Story, an_event, call_data, record_of, snapshot_data

GOOD = {
    Role.SNAPSHOTS: an_event(Role.SNAPSHOTS, 900, 1, snapshot_data(TOOL)),
    Role.CALLS: an_event(Role.CALLS, 900, 1, call_data()),
}
BOTH = (Role.SNAPSHOTS, Role.CALLS)


def with_data(role: Role, **fields: Any) -> bytes:
    """A good event with some fields of its data replaced; ``...`` takes one away."""
    event = json.loads(GOOD[role])
    for name, value in fields.items():
        event["data"].pop(name, None)
        if value is not ...:
            event["data"][name] = value
    return json.dumps(event).encode()


def with_attributes(role: Role, **fields: Any) -> bytes:
    return json.dumps({**json.loads(GOOD[role]), **fields}).encode()


def spliced(role: Role, text: bytes) -> bytes:
    return GOOD[role].replace(b'"data": {', b'"data": {' + text + b", ", 1)


def everywhere() -> list[Any]:
    """Input that is bad on both topics: name, role, bytes, code."""
    rows = []
    for role in BOTH:
        bad = {
            "not JSON": (b"{nope", "not_json"),
            "not UTF-8": (b'"\xff\xfe"', "not_utf8"),
            "not an event": (b"[1, 2]", "not_an_event"),
            "duplicate keys": (spliced(role, b'"server_id": "other"'), "duplicate_key"),
            "NaN": (spliced(role, b'"x": NaN'), "non_finite_number"),
            "1e400": (spliced(role, b'"x": 1e400'), "number_overflow"),
            "lone surrogate": (spliced(role, b'"x": "\\ud800"'), "lone_surrogate"),
            "depth 10,000": (spliced(role, b'"x": ' + b"[" * 10_000 + b"]" * 10_000), "too_deep"),
            "a 20 MB record": (spliced(role, b'"x": "' + b"a" * 20_000_000 + b'"'), "too_large"),
            "a missing field": (with_data(role, observer_id=...), "missing_field"),
            "a wrong type": (with_data(role, observer_id=7), "wrong_type"),
            "an empty name": (with_data(role, observer_id=""), "empty_value"),
            "a blank name": (with_data(role, observer_id="  "), "bad_format"),
            "a name of 1 MB": (with_data(role, observer_id="n" * 1_000_000), "too_long"),
            "another type": (with_attributes(role, type="mcp.other"), "unknown_type"),
            "no time zone": (with_attributes(role, time="2026-03-01T10:00:00"), "bad_format"),
            "no such date": (with_attributes(role, time="2026-02-30T10:00:00Z"), "bad_time"),
            "the far future": (with_attributes(role, time="2026-06-01T10:00:00Z"), "time_in_future"),
            "the year 9999": (with_attributes(role, time="9999-01-01T00:00:00Z"), "time_out_of_range"),
            "a tombstone": (None, "tombstone"),
        }
        rows += [pytest.param(role, value, code, id=f"{role}: {name}") for name, (value, code) in bad.items()]
    return rows


CALLS_ONLY = [
    pytest.param(Role.CALLS, with_data(Role.CALLS, decision="maybe"), "unknown_value", id="unknown decision"),
    pytest.param(
        Role.CALLS, with_data(Role.CALLS, policy_snapshot_schema="x"), "half_policy_cluster", id="half a policy cluster"
    ),
    pytest.param(
        Role.CALLS,
        with_data(Role.CALLS, tool_definition_digest="sha256:abc"),
        "half_definition_cluster",
        id="half a definition cluster",
    ),
]
SNAPSHOTS_ONLY = [
    pytest.param(Role.SNAPSHOTS, with_data(Role.SNAPSHOTS, tools={}), "wrong_type", id="tools no list"),
    pytest.param(Role.SNAPSHOTS, with_data(Role.SNAPSHOTS, tools=["x"]), "wrong_type", id="a tool no object"),
    pytest.param(Role.SNAPSHOTS, with_data(Role.SNAPSHOTS, tools=[TOOL] * 5_001), "too_many_tools", id="5,001 tools"),
    *(
        pytest.param(Role.SNAPSHOTS, with_data(Role.SNAPSHOTS, tools=[TOOL | fields]), code, id=name)
        for name, fields, code in (
            ("a tool name of 1,025 characters", {"name": "n" * 1_025}, "too_long"),
            ("a tool of 256 fields and its own", {f"x{number}": 1 for number in range(256)}, "too_many_fields"),
        )
    ),
    pytest.param(Role.SNAPSHOTS, with_data(Role.SNAPSHOTS, server_id="other"), "key_mismatch", id="another key"),
]


@pytest.mark.parametrize(("role", "value", "code"), everywhere() + CALLS_ONLY + SNAPSHOTS_ONLY)
def test_bad_input_is_rejected_with_its_code_and_kept_whole(role: Role, value: bytes | None, code: str) -> None:
    headers = (("trace", b"\xff\x00"), ("content-type", b"application/cloudevents+json"))
    story = Story().raw(role, value, headers=headers)
    record = story.records[-1]
    outcome = story.lists(TOOL).calls().tell()
    (copy,) = outcome.of(Role.REJECTED)
    assert (copy.value, copy.key) == (value, record.key)
    assert copy.headers[:2] == headers
    assert error_of(copy) == {
        "code": code,
        "topic": record.origin.topic,
        "partition": "0",
        "offset": str(record.origin.offset),
    }
    assert "tool_definition_digest" in outcome.evidence[-1], "the partition goes on"


def error_of(copy: Output) -> dict[str, str]:
    headers = {name.removeprefix("error."): value.decode() for name, value in copy.headers[2:]}
    assert len(headers.pop("message")) > len(headers["code"])
    return headers


@pytest.mark.parametrize(
    ("value", "code"),
    [
        pytest.param(*row.values[1:], id=row.id)
        for row in everywhere() + SNAPSHOTS_ONLY
        if row.values[0] is Role.SNAPSHOTS
    ],
)
def test_a_rejected_snapshot_ends_the_old_catalogue_until_the_next_good_list(value: bytes | None, code: str) -> None:
    outcome = (
        Story()
        .lists(TOOL)
        .calls()
        .raw(Role.SNAPSHOTS, value)
        .calls()
        .lists(TOOL)
        .calls(snapshot_id="unheard of")
        .tell()
    )
    before, between, after = outcome.evidence
    assert before["binding"]["scope"] == "observer"
    assert between["unbound_reason"] == "snapshot_rejected"
    assert "tool_definition_digest" not in between
    assert after["binding"]["scope"] == "observer"
    assert outcome.findings == [("snapshot_rejected", None)]
    (alert,) = outcome.of(Role.ALERTS)
    assert json.loads(alert.value or b"")["unmapped"]["mcp_reason"] == code


@pytest.mark.parametrize("key", [b"s" * 1_000_000, b"\xff\xfe", b"   ", None], ids=["1 MB", "no text", "blank", "none"])
def test_a_key_that_names_no_server_ends_nothing(key: bytes | None) -> None:
    outcome = Story().lists(TOOL).raw(Role.SNAPSHOTS, GOOD[Role.SNAPSHOTS], key=key).calls().tell()
    assert outcome.refusals == ["key_missing" if key is None else "key_mismatch"]
    assert "tool_definition_digest" in outcome.evidence[0]


def test_messages_never_quote_the_input() -> None:
    """A secret in a bad record stands in its original bytes, and nowhere in the error."""
    for row in everywhere() + CALLS_ONLY:
        role, value, _ = row.values
        if value is None or b'"data"' not in value:
            continue
        marked = value.replace(b'"observer_id": "proxy-1"', b'"observer_id": "SECRET-1"')
        (copy,) = Story().raw(role, marked).tell().of(Role.REJECTED)
        assert not [name for name, header in copy.headers if b"SECRET-1" in header]


def in_binary_mode(role: Role, **headers: bytes | None) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """Data and headers of a good event in binary mode, with some headers replaced; ``None`` takes one away."""
    event = json.loads(GOOD[role])
    names = ("specversion", "type", "source", "id", "time")
    attributes = {f"ce_{name}": event[name].encode() for name in names} | headers
    kept = tuple((name, value) for name, value in attributes.items() if value is not None)
    return json.dumps(event["data"]).encode(), kept


@pytest.mark.parametrize("role", BOTH)
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"ce_specversion": b"2.0"}, "unknown_value"),
        ({"ce_type": b"mcp.other"}, "unknown_type"),
        ({"ce_type": None}, "unknown_type"),
        ({"ce_source": None}, "missing_field"),
        ({"ce_source": b""}, "empty_value"),
        ({"ce_id": None}, "missing_field"),
        ({"ce_id": b"\xff"}, "not_utf8"),
        ({"ce_id": b"n" * 1_000_000}, "too_long"),
        ({"ce_time": None}, "missing_field"),
        ({"ce_time": b"noon"}, "bad_format"),
        ({"ce_time": b"9999-01-01T00:00:00Z"}, "time_out_of_range"),
        ({"ce_time": b"2026-06-01T10:00:00Z"}, "time_in_future"),
    ],
)
def test_bad_headers_of_a_binary_event_are_refused(role: Role, headers: dict[str, bytes | None], code: str) -> None:
    value, given = in_binary_mode(role, **headers)
    outcome = Story().raw(role, value, headers=given).lists(TOOL).calls().tell()
    assert outcome.refusals == [code]
    (copy,) = outcome.of(Role.REJECTED)
    assert (copy.value, copy.headers[: len(given)]) == (value, given)
    assert outcome.evidence[-1]["binding"]["scope"] == "observer"


@pytest.mark.parametrize("role", BOTH)
def test_a_server_name_of_1_mb_is_refused_and_names_no_server(role: Role) -> None:
    name = "s" * 1_000_000
    story = Story().lists(TOOL).raw(role, with_data(role, server_id=name), key=name.encode()).calls()
    outcome = story.tell()
    assert outcome.refusals == ["too_long"]
    assert outcome.findings == []
    assert outcome.evidence[-1]["binding"]["scope"] == "observer"
    assert name.encode() not in outcome.all_bytes(*(other for other in Role if other is not Role.REJECTED))


@pytest.mark.parametrize("timestamp_ms", [2**63 - 1, 9 * 10**15, -1])
@pytest.mark.parametrize("role", [*BOTH, Role.CONTROL])
def test_a_refused_record_from_the_end_of_time_stops_no_partition(role: Role, timestamp_ms: int) -> None:
    """Whoever writes a record may set its timestamp. In microseconds the largest do not fit a fact of 64 bits."""
    outcome = Story().lists(TOOL).raw(role, b"{", timestamp_ms=timestamp_ms).calls().tell()
    assert outcome.refusals == ["not_json"]
    assert len(outcome.evidence) == 1


CLUSTER_FIELDS = {
    "policy_snapshot_digest": "sha256:x",
    "policy_snapshot_digest_alg": "sha256",
    "policy_snapshot_canonicalization": "jcs:mcp_policy",
    "policy_snapshot_schema": "assay.mcp.policy.snapshot.v1",
    "tool_definition_digest": "sha256:x",
    "tool_definition_digest_alg": "sha256",
    "tool_definition_canonicalization": "jcs:mcp_tool_definition.v1",
    "tool_definition_schema": "assay.mcp.tool-definition.snapshot.v1",
    "tool_definition_source": "mcp.tools/list",
}


@pytest.mark.parametrize("field", sorted(CLUSTER_FIELDS))
def test_one_field_of_a_cluster_alone_is_half_a_cluster(field: str) -> None:
    kind = "policy" if field.startswith("policy") else "definition"
    outcome = Story().lists(TOOL).calls(**{field: CLUSTER_FIELDS[field]}).tell()
    assert outcome.refusals == [f"half_{kind}_cluster"]
    assert outcome.evidence == []


POISON = [
    b'{"data": ' + b"x" * 1_000,
    b'{"data": {"a": 1, "a": 2}, "fill": "' + b"x" * 1_000 + b'"}',
    b"\xff" * 1_000,
    b"[" * 1_000,
    b'{"specversion": "1.0", "type": "of nobody", "fill": "' + b"x" * 1_000 + b'"}',
]
"""About as long as a call, each refused at another stage of reading."""


@pytest.mark.parametrize("value", POISON, ids=lambda value: value[:16].decode(errors="replace"))
def test_a_flood_of_poison_leaves_sound_partitions_at_least_half_their_speed(value: bytes) -> None:
    """Of three partitions that take turns one has poison: it costs at most what four sound calls do."""
    state = EngineState(producer=Producer(version="1"))

    def cost(record: Record) -> int:
        engine.process(state, record)
        return counted_calls(lambda: engine.process(state, record))

    assert cost(record_of(Role.CALLS, value)) <= 4 * cost(record_of(Role.CALLS, GOOD[Role.CALLS]))


# --- bad input, field by field: what is required, what is told of it, and what it leaves untouched ------------

REQUIRED = {
    Role.SNAPSHOTS: ("server_id", "observer_id", "snapshot_id", "server_scoped", "completeness", "tools"),
    Role.CALLS: ("server_id", "observer_id", "tool_name", "tool_call_id", "decision", "reason_code"),
}


@pytest.mark.parametrize(("role", "name"), [(role, name) for role in BOTH for name in REQUIRED[role]])
def test_each_required_field_is_required_and_named(role: Role, name: str) -> None:
    (copy,) = Story().raw(role, with_data(role, **{name: ...})).tell().of(Role.REJECTED)
    headers = dict(copy.headers)
    assert headers["error.code"] == b"missing_field"
    assert f"$.data.{name}".encode() in headers["error.message"]


CONTROL = [
    pytest.param(b"{nope", "not_json", id="not JSON"),
    pytest.param(b'"\xff"', "not_utf8", id="not UTF-8"),
    pytest.param(None, "tombstone", id="a tombstone"),
    pytest.param(b"", "not_json", id="nothing"),
    pytest.param(b"[]", "not_an_event", id="a list"),
    pytest.param(GOOD[Role.SNAPSHOTS], "unknown_type", id="a snapshot"),
    pytest.param(GOOD[Role.CALLS], "unknown_type", id="a call"),
    pytest.param(
        with_attributes(Role.SNAPSHOTS, type="assay.control.pin.set", data={"server_id": "server-a"}),
        "missing_field",
        id="half a pin",
    ),
]


@pytest.mark.parametrize(("value", "code"), CONTROL)
def test_a_bad_control_record_is_rejected_and_ends_nothing(value: bytes | None, code: str) -> None:
    outcome = Story().lists(TOOL).raw(Role.CONTROL, value).calls().tell()
    assert outcome.refusals == [code]
    (copy,) = outcome.of(Role.REJECTED)
    assert (copy.key, copy.value) == (b"server-a", value)
    assert outcome.evidence[0]["pin"] == {"status": "unpinned"}
    assert "tool_definition_digest" in outcome.evidence[0]
    assert outcome.findings == []


@pytest.mark.parametrize("decision", ["", "ALLOW", "allowed", None, True, ["allow"]])
def test_a_decision_is_one_of_four_words(decision: Any) -> None:
    outcome = Story().raw(Role.CALLS, with_data(Role.CALLS, decision=decision)).tell()
    assert outcome.refusals == ["unknown_value"]
    assert outcome.evidence == []


@pytest.mark.parametrize("role", BOTH)
def test_unknown_fields_change_nothing(role: Role) -> None:
    event = json.loads(GOOD[role])
    event["x-extension"] = {"a": [1]}
    event["data"]["x-field"] = {"server_id": "server-b", "decision": "deny"}
    told = []
    for value in (GOOD[role], json.dumps(event).encode()):
        story = Story().raw(role, value)
        if role is Role.SNAPSHOTS:
            story.raw(Role.CALLS, an_event(Role.CALLS, 1, 2, call_data()))
        told.append(story.tell().of(Role.EVIDENCE))
    assert told[0] == told[1] != []
