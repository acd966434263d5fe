"""Laws of reading events: total, the same in both content modes, and silent about what stood in them."""

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from hypothesis import given, strategies as st

from assay_stream.errors import InputError
from assay_stream.limits import Limits
from assay_stream.model.cloudevents import read_event
from assay_stream.model.observation import CallEvent, Envelope
from assay_stream.model.record import Headers, Origin, Record, Role
from tests.support.errors import raises_code
from tests.support.events import TOOL, an_event, call_data, snapshot_data

ATTRIBUTES = ("specversion", "type", "source", "id", "time")
GOOD: dict[Role, dict[str, Any]] = {
    Role.SNAPSHOTS: json.loads(an_event(Role.SNAPSHOTS, 1, 1, snapshot_data(TOOL, prompts=[{"name": "p"}]))),
    Role.CALLS: json.loads(
        an_event(
            Role.CALLS,
            1,
            1,
            call_data(
                args={"path": "/a"},
                actor={"kind": "agent", "agent_id": "a"},
                timing={"duration_ms": 1.5},
                error={"code": "E"},
                delegation_depth=1,
            ),
        )
    ),
}
ROLES = st.sampled_from([Role.SNAPSHOTS, Role.CALLS, Role.CONTROL])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["ce_specversion", "ce_type", "ce_source", "ce_id", "ce_time", "ce_data", "ce_", "content-type", "traceparent"]
)
HEADERS = st.lists(
    st.tuples(
        NAMES | st.text(max_size=10),
        st.binary(max_size=12)
        | st.sampled_from([b"1.0", b"mcp.tools.call.observed", b"2026-03-01T10:00:00Z", b"application/json"]),
    ),
    max_size=8,
).map(tuple)


def a_record(role: Role, value: bytes | None, headers: Headers = ()) -> Record:
    place = Origin(topic=role.value, partition=0, offset=0)
    return Record(role=role, origin=place, key=None, value=value, headers=headers)


def outcome(record: Record) -> Envelope | CallEvent | str:
    error = refusal(record)
    return read_event(record) if error is None else error.code


def refusal(record: Record) -> InputError | None:
    try:
        read_event(record)
    except InputError as error:
        return error
    return None


def binary(event: Mapping[str, Any]) -> tuple[bytes, Headers]:
    return json.dumps(event["data"]).encode(), tuple((f"ce_{name}", event[name].encode()) for name in ATTRIBUTES)


@st.composite
def altered(draw: st.DrawFn) -> tuple[Role, dict[str, Any]]:
    role = draw(st.sampled_from(sorted(GOOD)))
    event = copy.deepcopy(GOOD[role])
    for _ in range(draw(st.integers(0, 3))):
        place: Any = event
        while True:
            if isinstance(place, list):
                step: Any = draw(st.integers(0, len(place) - 1)) if place else None
            else:
                step = draw(st.sampled_from([*place, "new"]))
            inner = place[step] if step is not None and (isinstance(place, list) or step in place) else None
            if not (isinstance(inner, dict | list) and inner and draw(st.booleans())):
                break
            place = inner
        if step is None:
            place.append(draw(JSON))
        elif draw(st.booleans()) and isinstance(place, dict):
            place.pop(step, None)
        else:
            place[step] = draw(JSON)
    return role, event


@given(ROLES, st.none() | st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()), HEADERS)
def test_any_record_gives_an_event_or_an_error_of_ours(role: Role, value: bytes | None, headers: Headers) -> None:
    error = refusal(a_record(role, value, headers))
    assert error is None or re.fullmatch("[a-z0-9_]+", error.code)


@given(altered())
def test_a_damaged_event_gives_an_event_or_an_error_of_ours(drawn: tuple[Role, dict[str, Any]]) -> None:
    role, event = drawn
    error = refusal(a_record(role, json.dumps(event).encode()))
    assert error is None or error.path.startswith("$") or error.code in {"non_finite_number", "lone_surrogate"}


@given(altered())
def test_both_content_modes_say_the_same(drawn: tuple[Role, dict[str, Any]]) -> None:
    role, event = drawn
    if not all(_is_header_text(event.get(name)) for name in ATTRIBUTES) or "data" not in event:
        return
    named = {name: event[name] for name in (*ATTRIBUTES, "data")}
    structured = outcome(a_record(role, json.dumps(named).encode()))
    assert outcome(a_record(role, *binary(named))) == structured


def _is_header_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= sign <= "\udfff" for sign in value)


@given(altered(), st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(drawn: tuple[Role, dict[str, Any]], choose: Any) -> None:
    role, event = drawn

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            members = [(name, shuffled(inner)) for name, inner in value.items()]
            choose.shuffle(members)
            return dict(members)
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    one, other = (outcome(a_record(role, json.dumps(form).encode())) for form in (event, shuffled(event)))
    assert isinstance(one, str) == isinstance(other, str)
    if not isinstance(one, str):
        assert one == other


@given(altered(), st.text("ABCDEFGH", min_size=12, max_size=12))
def test_an_error_never_quotes_a_value(drawn: tuple[Role, dict[str, Any]], mark: str) -> None:
    role, event = drawn

    def marked(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: marked(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [marked(item) for item in value]
        return f"{value}{mark}" if isinstance(value, str) else value

    for form in (marked(event), {**event, "data": marked(event.get("data"))}):
        error = refusal(a_record(role, json.dumps(form).encode()))
        assert mark not in str(error)


@given(altered(), st.integers(1, 3))
def test_a_limit_is_never_widened_by_another_form(drawn: tuple[Role, dict[str, Any]], bytes_max: int) -> None:
    role, event = drawn
    record = a_record(role, json.dumps(event).encode())
    with raises_code("too_large"):
        read_event(record, limits=Limits(record_bytes_max=bytes_max))
