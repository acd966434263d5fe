"""The composition of the core."""

import json

import orjson
import pytest

from assay_stream.errors import InputError, IntegrityError
from assay_stream.model.evidence import Producer
from assay_stream.model.observation import CallProfile
from assay_stream.model.record import Origin, Output, Record, Role
from tests.support import engine
from tests.support.engine import EngineState
from tests.support.events import a_call, an_event, handshake_call_data, read_live, record_of
from tests.support.fleet import START, Published, a_call_by, a_listing


def a_state() -> EngineState:
    return EngineState(producer=Producer(version="1"))


def at(offset: int, published: Published) -> Record:
    role, key, value = published
    return Record(role=role, origin=Origin(topic=role.value, partition=0, offset=offset), key=key, value=value)


def fed_back(output: Output, offset: int = 0) -> Record:
    place = Origin(topic=output.role.value, partition=0, offset=offset)
    return Record(role=output.role, origin=place, key=output.key, value=output.value)


LISTING = at(0, a_listing(0, 0, 0, 1, START))
CALL = at(0, a_call_by(0, 0, 0, START, "snapshot-1"))


def test_findings_become_alerts_once() -> None:
    """The finding topic feeds the alerts; a finding read twice raises one alert."""
    state = a_state()
    engine.process(state, LISTING)
    written = engine.process(state, at(1, a_listing(0, 0, 1, 2, START.replace(second=9))))
    finding = next(output for output in written if output.role is Role.FINDINGS)
    (alert,) = engine.process(state, fed_back(finding))
    assert json.loads(alert.value or b"")["unmapped"]["mcp_tool_name"] == "tool_0"
    assert engine.process(state, fed_back(finding, 7)) == []


@pytest.mark.parametrize("role", [Role.EVIDENCE, Role.ALERTS, Role.DEFINITIONS, Role.REJECTED])
def test_what_is_only_written_is_never_read(role: Role) -> None:
    """Feeding an output topic back in is a mistake of ours."""
    with pytest.raises(AssertionError, match="written, never read"):
        engine.process(a_state(), CALL._replace(role=role))


def test_foreign_facts_and_findings_stop_the_engine() -> None:
    """Our own logs contradicting themselves raise; bad input never does."""
    for role in (Role.BINDINGS, Role.FINDINGS):
        with pytest.raises(IntegrityError):
            engine.process(a_state(), CALL._replace(role=role))


def test_a_call_that_names_a_known_snapshot_is_ready_early() -> None:
    """It need not wait for the registry; one that names an unknown one, or none, must."""
    state = a_state()
    assert not is_ready(state, CALL)
    read_live(state, [LISTING])
    assert is_ready(state, CALL)
    assert not is_ready(state, at(0, a_call_by(0, 0, 0, START, None)))
    assert not is_ready(state, at(0, a_call_by(1, 0, 0, START, "snapshot-1")))
    # Known from another observer only: its own list under this id may be on its way.
    assert not is_ready(state, at(0, a_call_by(0, 1, 0, START, "snapshot-1")))


def is_ready(state: EngineState, record: Record) -> bool:
    event = state.join.read(record)
    assert not isinstance(event, InputError)
    return state.join.names_known_snapshot(event)


def test_a_call_is_read_once_whether_or_not_it_is_refused() -> None:
    """Nothing that the registry might yet say changes a refusal."""
    state, refused = a_state(), CALL._replace(value=None)
    event = state.join.read(refused)
    assert isinstance(event, InputError)
    assert engine.process(state, refused, event) == engine.process(state, refused)
    assert engine.process(state, CALL, state.join.read(CALL)) == engine.process(state, CALL)


@pytest.mark.parametrize("record", [CALL, LISTING], ids=["call", "list"])
def test_a_record_that_is_set_aside_is_refused_unread(record: Record) -> None:
    """It goes to the rejected topic with its code, and somebody is told."""
    written = engine.process(a_state(), record._replace(set_aside=True))
    assert written[0].label == "rejected:record_kills_worker"
    assert written[0].value == record.value
    finding = orjson.loads(written[-1].value or b"")
    assert finding["kind"] == ("record_set_aside" if record is CALL else "snapshot_rejected")
    assert finding["reason"] == "record_kills_worker"
    assert finding["server_id"] == "server-0"


def test_a_list_that_is_set_aside_ends_force() -> None:
    """As any list does that is refused: calls behind it are unbound."""
    state = a_state()
    read_live(state, [LISTING, at(1, a_listing(0, 0, 1, 2, START.replace(second=9)))._replace(set_aside=True)])
    (rejection,) = state.view.servers["server-0"].rejections
    assert rejection.code == "record_kills_worker"


@pytest.mark.parametrize(
    "key",
    [
        b"[]",
        b'[[],"server-0","o"]',
        b'["seen","server-0"]',
        b'["seen","server-0","o",1]',
        b'["catalogue","server-0"]',
        b'"seen"',
    ],
)
def test_a_foreign_tombstone_stops_the_engine(key: bytes) -> None:
    """A tombstone whose key is no key of ours is an integrity error, as a foreign fact is."""
    state = a_state()
    read_live(state, [LISTING])
    tombstone = CALL._replace(role=Role.BINDINGS, key=key, value=None)
    with pytest.raises(IntegrityError):
        engine.process(state, tombstone)


def test_names_that_no_list_has_leave_nothing_behind() -> None:
    """A caller who makes up tool names does not fill the memory of the join."""
    state = a_state()
    read_live(state, [LISTING])
    kept = []
    for number in range(20):
        event = orjson.loads(CALL.value or b"")
        event["data"]["tool_name"] = f"made-up-{number}"
        engine.process(state, CALL._replace(value=orjson.dumps(event)))
        kept.append(len(state.view.server("server-0").answers))
    assert kept[-1] == kept[0]


def test_a_listed_tool_is_worked_out_once() -> None:
    """Many calls of one tool under one list are answered from what was worked out for the first."""
    state = a_state()
    read_live(state, [LISTING])
    sizes = set()
    for _ in range(5):
        engine.process(state, CALL)
        sizes.add(len(state.view.server("server-0").answers))
    assert len(sizes) == 1


@pytest.mark.parametrize("profile", ["assay", "handshake"])
def test_the_profile_of_the_state_holds_for_every_call(profile: CallProfile) -> None:
    """Under the handshake profile a plain call is kept as rejected; one that has all of it gives evidence."""
    state = EngineState(producer=Producer(version="1"), call_profile=profile)
    plain = record_of(Role.CALLS, a_call())
    whole = record_of(Role.CALLS, an_event(Role.CALLS, 1, 1, handshake_call_data()))
    labels = [engine.process(state, record)[0].label for record in (plain, whole)]
    bound = "unbound:definition_not_observed"
    assert labels == ["rejected:missing_field" if profile == "handshake" else bound, bound]
    assert isinstance(state.join.read(plain), InputError) is (profile == "handshake")


def test_evidence_of_a_handshake_call_names_its_profile() -> None:
    """Profile, transport, key and references stand in evidence as they were given."""
    call = handshake_call_data()
    record = record_of(Role.CALLS, an_event(Role.CALLS, 1, 1, call))
    (output,) = engine.process(a_state(), record)
    data = json.loads(output.value or b"")["data"]
    for name in ("profile", "transport", "idempotency_key", "args_ref", "result_ref", "args_hash"):
        assert data[name] == call[name]
