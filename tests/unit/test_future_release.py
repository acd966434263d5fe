"""What this release does with what a later one writes: docs/upgrading.md has the table. Nothing is dropped unseen."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import orjson
import pytest

from assay_stream.agents import Agent
from assay_stream.agents.processing import AgentState
from assay_stream.alerts.remembered import AlertTable
from assay_stream.bindings.controls import VerdictTable
from assay_stream.bindings.state import Bindings
from assay_stream.config import Settings
from assay_stream.errors import AssayStreamError, ConfigurationError
from assay_stream.kafka.stage import Stage, Topology
from assay_stream.kafka.topics import topic_names
from assay_stream.model.facts import Catalogue, read_progress
from assay_stream.model.finding import decode_entry
from assay_stream.model.record import TOPIC_NAMES, Origin, Output, Record, Role
from assay_stream.model.rejected import MARK_BYTES, read_accepted
from assay_stream.model.state_table import KEY, LEVEL, UNREADABLE, read_level, write_level
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import Filler
from assay_stream.registry.step import fact_output
from tests.support.agents import a_set
from tests.support.controls import a_control
from tests.support.errors import raises_code
from tests.support.events import Story, a_call, a_snapshot
from tests.support.findings import RULES, a_finding, an_end
from tests.support.future_release import NEW_FACT, NEW_STATE
from tests.support.memory_cluster import MemoryCluster

FINDINGS = TOPIC_NAMES[Role.FINDINGS]
MARK = b'{"by":"0.2.0","level":2,"since":"tomorrow"}'


def stored(role: Role, key: bytes | None, value: bytes | None, *, offset: int = 7) -> Record:
    return Record(role, Origin(TOPIC_NAMES[role], 0, offset), key, value)


def with_insight(value: bytes | None) -> bytes:
    return orjson.dumps({**orjson.loads(value or b""), "insight": 1})


def a_fact(*, insight: bool) -> Record:
    fact = Catalogue(server_id="server", digest="sha256:" + "a" * 64, server_scoped=False, tools={})
    output = fact_output(fact, partition=0)
    return stored(Role.BINDINGS, output.key, with_insight(output.value) if insight else output.value)


def find(record: Record) -> object:
    bindings = Bindings()
    bindings.take(record)
    return bindings.find("server")


def restore_alerts(record: Record) -> AlertTable:
    table = AlertTable(0, RULES)
    table.restore(record)
    return table


def restore_agents(record: Record) -> AgentState:
    agent = Agent("a", title="A")
    agent.evidence(key=lambda event: event.server_id)(lambda _event, _memory: None)
    state = AgentState(a_set(agent), 0, input_topic="internal")
    state.restore(record)
    return state


REFUSED: Mapping[str, tuple[Callable[[], object], str]] = {
    "the mark of a level, at a join": (lambda: find(stored(Role.BINDINGS, KEY, MARK)), "format_too_new"),
    "a kind of fact": (lambda: find(stored(Role.BINDINGS, NEW_FACT, b"{}")), "foreign_fact"),
    "a member of a fact": (lambda: find(a_fact(insight=True)), "unknown_fact"),
    "an alert state": (lambda: restore_alerts(stored(Role.ALERT_STATES, NEW_STATE, b"{}")), "unknown_state"),
    "a member of name claims": (
        lambda: restore_alerts(
            stored(Role.ALERT_STATES, b"names/0/x", b'{"names":[],"left_out":0,"through":1,"insight":1}')
        ),
        "unknown_state",
    ),
    "a member of counts": (
        lambda: restore_alerts(stored(Role.ALERT_STATES, b"records/x", b'{"records":[],"insight":1}')),
        "unknown_state",
    ),
    "a member of the progress": (
        lambda: restore_alerts(stored(Role.ALERT_STATES, b"progress", b'{"position":1,"states":0,"insight":1}')),
        "unknown_state",
    ),
    "a member of what an agent remembers": (
        lambda: restore_agents(stored(Role.AGENT_STATES, b'state/["a","x"]', b'{"last_us":1,"state":{},"insight":1}')),
        "unknown_state",
    ),
    "a kind of finding": (
        lambda: decode_entry(with_insight(a_finding().encode()).replace(b"tool_changed", b"tool_insight")),
        "unknown_finding",
    ),
    "a member of a finding": (lambda: decode_entry(with_insight(a_finding().encode())), "unknown_finding"),
    "a member of a resolution": (lambda: decode_entry(with_insight(an_end(1).encode())), "unknown_finding"),
    "a member of the join's progress": (lambda: read_progress(b'{"calls":1,"rerouted":0,"insight":1}'), "foreign_fact"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_state_of_a_later_form_is_refused_by_name(what: str) -> None:
    """With a code on which a worker waits, outside its group, for its replacement."""
    meet, code = REFUSED[what]
    with raises_code(code, kind=AssayStreamError):
        meet()
    assert code in UNREADABLE


def test_the_same_state_of_this_release_is_read() -> None:
    """What is refused above is refused for what is new in it."""
    assert find(a_fact(insight=False)) is not None
    assert decode_entry(a_finding().encode()) == a_finding()
    assert read_progress(b'{"calls":1,"rerouted":0}') == {"calls": 1, "rerouted": 0}


def test_what_an_agent_keeps_under_a_key_of_a_later_form_stays() -> None:
    """It counts as one of the table's records, so that nothing seems lost."""
    state = restore_agents(stored(Role.AGENT_STATES, b"insight/a", b'{"x":1}'))
    state.restore(stored(Role.AGENT_STATES, b"progress", b'{"position":5,"states":1}'))
    assert state.restored() == {"internal": 5}
    assert state["insight/a"] == {"x": 1}


def test_input_of_a_later_form_is_kept_with_its_reason() -> None:
    """The rejected topic has all of it: it can be published again after the upgrade."""
    control = a_control("insight.set", server_id="server-a", author="bob", reason="because")
    event = a_snapshot().replace(b"list.observed", b"insight.observed")
    for role, value, code in (
        (Role.CONTROL, control, b"unknown_type"),
        (Role.CALLS, a_call().replace(b"call.observed", b"insight.observed"), b"unknown_type"),
        (Role.SNAPSHOTS, event, b"unknown_type"),
    ):
        (rejected,) = Story().raw(role, value).tell().of(Role.REJECTED)
        assert rejected.value == value
        assert dict(rejected.headers)["error.code"] == code


def test_a_call_with_a_member_of_a_later_form_is_joined() -> None:
    """Evidence names the record, which keeps it."""
    plain, later = (Story().raw(Role.CALLS, call).tell() for call in (a_call(), a_call(insight=1)))
    assert later.evidence == plain.evidence


def test_a_verdict_of_a_later_form_stops_the_tap_from_reading_on() -> None:
    """It keeps the verdicts that it had. Of a member that it does not know the action stands."""
    table = VerdictTable()
    key, verdict = b'["server","tool"]', {"server_id": "server", "status": "rejected", "action": "block"}
    table.apply(key, orjson.dumps({**verdict, "insight": 1}))
    with pytest.raises(AssayStreamError, match="foreign_verdict"):
        table.apply(key, orjson.dumps({**verdict, "action": "quarantine"}))
    assert table.rule("server", "tool", None).action == "block"


def test_an_accepted_event_of_a_later_form_is_still_accepted() -> None:
    assert read_accepted(b'{"ids":["%s"],"insight":1}' % (b"0a" * MARK_BYTES)) == [b"\n" * MARK_BYTES]


def test_a_store_refuses_the_mark_of_a_later_level() -> None:
    """Nothing of its batch is taken in, so the release that can read it goes on there."""
    with schema.temporary() as connection:
        filler = Filler(connection)
        with pytest.raises(ConfigurationError, match="format_too_new"):
            filler.take([a_fact(insight=False), stored(Role.BINDINGS, KEY, MARK, offset=8)])
        assert filler.position(TOPIC_NAMES[Role.BINDINGS], 0) is None
        assert filler.take([stored(Role.BINDINGS, KEY, write_level(LEVEL))]) == 1


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (MARK, "format_too_new"),
        (b"{}", "unknown_state"),
        (b"[]", "unknown_state"),
        (b"{", "unknown_state"),
        (b'{"by":"x","level":true}', "unknown_state"),
        (b'{"by":"x","level":0}', "unknown_state"),
        (b'{"by":1,"level":1}', "unknown_state"),
    ],
)
def test_what_states_no_level_that_is_known_is_refused(value: bytes, code: str) -> None:
    with raises_code(code, kind=AssayStreamError):
        read_level(stored(Role.FORMATS, KEY, value))


def test_the_release_that_is_needed_is_named() -> None:
    """Unless it is no name of a release: strangers may write, and messages quote no input."""
    for by, named in (("0.2.0", "0.2.0 or later"), ("\u202e" * 9, "a later release or later")):
        with pytest.raises(ConfigurationError, match=named):
            read_level(stored(Role.FORMATS, KEY, json.dumps({"by": by, "level": 9}).encode()))


def test_without_a_record_and_after_a_tombstone_it_is_level_one() -> None:
    assert read_level(stored(Role.FORMATS, KEY, None)) == 1


def a_stage(cluster: MemoryCluster, level: int) -> Stage[AlertTable]:
    stage = Stage(
        "alerts",
        (Role.FINDINGS,),
        Topology(Settings(), {}, clients=cluster),
        state_role=Role.ALERT_STATES,
        new_state=lambda number: AlertTable(number, RULES),
    )
    stage.level = level
    return stage


async def test_a_partition_is_marked_once_before_anything_of_a_new_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows the topic meets the mark first. Level 1 needs none: releases without levels wrote it."""
    monkeypatch.setattr("assay_stream.model.state_table.LEVEL", 2)
    cluster = MemoryCluster(dict.fromkeys(topic_names(Settings()).values(), 1))

    async def flushed(level: int) -> list[Output]:
        stage = a_stage(cluster, level)
        await stage.open(0)
        assert stage.state(0).level == level
        outputs = [*stage.flush(0, {}), *stage.flush(0, {})]
        for output in outputs:
            cluster.append(TOPIC_NAMES[output.role], 0, output.key, output.value)
        return outputs

    monkeypatch.setattr(AlertTable, "flush", lambda *_: [Output(Role.ALERT_STATES, b"records/x", None, partition=0)])
    keys = [[output.key for output in await flushed(level)] for level in (1, 2, 2)]
    assert keys == [[b"records/x"] * 2, [KEY, b"records/x", b"records/x"], [b"records/x"] * 2]


def test_a_table_has_no_room_under_the_key_of_the_mark() -> None:
    table = AlertTable(0, RULES)
    with pytest.raises(ValueError, match="reserved"):
        table["format"] = {}
