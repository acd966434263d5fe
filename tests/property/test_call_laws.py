"""Laws of calls on a wire: however client and server interleave, misuse ids and fall silent, a call is one record."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import orjson
from hypothesis import given, settings, strategies as st

from assay_stream.limits import HTTP_LIMITS, Limits
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Record, Role, murmur2_partition
from assay_stream.observe import Observation
from assay_stream.observe.http.connections import Contexts, Exchange
from assay_stream.observe.http.traffic import Answered, HttpEvent, Opened, Passed, Traffic
from assay_stream.observe.recorded import check_observation
from assay_stream.observe.wire import Direction
from tests.chaos.placing import BINDINGS, CALLS, Placing
from tests.support.fleet import Fleet
from tests.support.mcp_dialogue import START, THE_VANTAGE, Dialogue
from tests.support.replaying import replay

LIMITS = Limits(held_calls_max=3, call_inputs_max=3)
PENDING_MAX = 4
CODES = {
    *("no_response", "cancelled", "id_reused", "timed_out", "tool_error", "jsonrpc_-32602", "bad_result"),
    *("input_required", "interim_result", "task_unfinished", "task_result_not_read", "task_failed"),
    *("task_id_reused", "task_id_mismatch", "answers_differ"),
}

Said = tuple[Direction, dict[str, Any] | bytes, int]
"""Who says what, and how many seconds later."""

IDS = st.sampled_from([1, 2, 3, "1"])
TASKS = st.sampled_from(["task-secret-1", "task-secret-2", "task-secret-3"])
STATES = st.sampled_from([None, "state-secret-1", "state-secret-2"])
STATUSES = st.sampled_from(["working", "input_required", "completed", "failed", "cancelled", "secret"])
RESULTS = st.sampled_from([{"content": "secret"}, {"isError": True, "content": "secret"}, "secret"])
INPUTS = st.dictionaries(
    st.sampled_from(["secret-a", "secret-b"]),
    st.sampled_from(
        [{"method": "elicitation/create", "params": {"mode": "url", "url": "secret"}}, {"method": "secret"}, "secret"]
    ),
)
ANSWERS = st.dictionaries(st.sampled_from(["secret-a", "secret-b"]), st.sampled_from([{"action": "decline"}, {}, 1]))
RELATED = "io.modelcontextprotocol/related-task"


def present(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


@st.composite
def task_states(draw: st.DrawFn) -> dict[str, Any]:
    state: dict[str, Any] = {"taskId": draw(TASKS), "status": draw(STATUSES)}
    more = draw(st.sampled_from(["", "result", "error", "inputRequests"]))
    values: dict[str, Any] = {"result": draw(RESULTS), "error": {"code": -32602}, "inputRequests": draw(INPUTS)}
    return state | {name: value for name, value in values.items() if name == more}


@st.composite
def client_messages(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["call"] * 4 + ["task"] * 3 + ["cancel", "answer"]))
    if kind == "answer":
        return {"id": draw(IDS), "result": {"action": "accept", "content": "secret"}}
    if kind == "cancel":
        return {"method": "notifications/cancelled", "params": {"requestId": draw(IDS)}}
    if kind == "task":
        method = draw(st.sampled_from(["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"]))
        return {"id": draw(IDS), "method": method, "params": {"taskId": draw(TASKS), "inputResponses": draw(ANSWERS)}}
    is_retry = draw(st.integers(0, 3)) == 0
    params = present(
        name=draw(st.sampled_from(["a", "b"])),
        arguments={"key": "secret"},
        task=draw(st.sampled_from([None, {}])),
        requestState=draw(STATES) if is_retry else None,
        inputResponses=draw(st.none() | ANSWERS) if is_retry else None,
        _meta={"progressToken": draw(IDS)},
    )
    return {"id": draw(IDS), "method": "tools/call", "params": params}


@st.composite
def server_messages(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["final"] * 3 + ["task", "handle", "input", "state", "notice", "request", "progress"]))
    if kind == "notice":
        method = draw(st.sampled_from(["notifications/tasks", "notifications/tasks/status"]))
        return {"method": method, "params": draw(task_states())}
    if kind == "request":
        meta = {RELATED: {"taskId": draw(TASKS)}} if draw(st.booleans()) else {}
        return {"id": draw(IDS), "method": "elicitation/create", "params": {"message": "secret", "_meta": meta}}
    if kind == "progress":
        return {"method": "notifications/progress", "params": {"progressToken": draw(IDS), "message": "secret"}}
    if kind == "final" and draw(st.booleans()):
        return {"id": draw(IDS), "error": {"code": -32602, "message": "secret"}}
    result: Any = {
        "final": draw(RESULTS),
        "task": {"resultType": "task", **draw(task_states())},
        "handle": {"task": draw(task_states())},
        "input": present(resultType="input_required", inputRequests=draw(INPUTS), requestState=draw(STATES)),
        "state": draw(task_states()),
    }[kind]
    return {"id": draw(IDS), "result": result}


def line(message: dict[str, Any] | bytes) -> bytes:
    return message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()


@st.composite
def talks(draw: st.DrawFn) -> list[Said]:
    """What passes on a connection: mostly as the protocol says, with ids, tasks and states that were used before."""
    talk: list[Said] = []
    asked: list[Any] = []
    states: list[Any] = []
    for number in range(draw(st.integers(0, 30))):
        is_proper, is_retry = draw(st.integers(0, 4)) > 0, draw(st.integers(0, 1)) > 0
        if draw(st.booleans()):
            message = draw(client_messages())
            if is_proper and "method" in message and "id" in message:
                message["id"] = number + 10
                if message["method"] == "tools/call" and states and is_retry:
                    message["params"] = {"name": "a", "arguments": {"key": "secret"}} | states.pop()
            asked += [message["id"]] if "method" in message and "id" in message else []
            talk.append(("client->server", message, draw(st.sampled_from([0] * 9 + [2_000]))))
            continue
        message = draw(server_messages())
        if is_proper and "method" not in message and asked:
            message["id"] = asked.pop(draw(st.integers(0, len(asked) - 1)))
        result = message.get("result")
        if isinstance(result, dict) and result.get("resultType") == "input_required":
            states.append({"inputResponses": {}} | present(requestState=result.get("requestState")))
        talk.append(("server->client", message, 0))
    return talk


def heard(talk: Sequence[Said]) -> tuple[list[Observation], Dialogue]:
    """Return what is observed of a talk over pipes: the same whole and byte by byte, as the dialogue sees to."""
    dialogue = Dialogue(limits=LIMITS, pending_max=PENDING_MAX)
    observations = []
    for direction, message, seconds in talk:
        dialogue.now += timedelta(seconds=seconds)
        observations += dialogue.raw(direction, line(message))
        assert dialogue.observer.calls.open_calls <= PENDING_MAX + LIMITS.held_calls_max
    return observations + dialogue.observer.close(dialogue.now), dialogue


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@given(talks())
def test_each_call_is_one_record_with_all_its_rounds(talk: list[Said]) -> None:
    observations, dialogue = heard(talk)
    records = [json.loads(each.value)["data"] for each in observations]
    requests = sum(isinstance(message, dict) and message.get("method") == "tools/call" for _, message, _ in talk)
    assert sum(record.get("rounds", 1) for record in records) == requests
    assert len(records) == dialogue.observer.stats.calls == len({record["tool_call_id"] for record in records})
    assert dialogue.observer.calls.open_calls == 0


@given(talks())
def test_a_record_of_a_call_is_sound_and_tells_no_content(talk: list[Said]) -> None:
    """The stream accepts it; success has no error; no id of a task, state, argument, result or question is in it."""
    for observation in heard(talk)[0]:
        check_observation(observation)
        data = json.loads(observation.value)["data"]
        assert b"secret" not in observation.value
        code = data.get("error", {}).get("code")
        assert code in CODES if data.get("ok") is not True else code is None
        if data.get("ok") is True:
            assert data.get("task", {}).get("status") != "cancelled"
            assert "result_hash" in data


@given(talks(), st.sampled_from([1, 2, 7, 10_000]))
def test_the_cuts_of_a_stream_change_nothing(talk: list[Said], size: int) -> None:
    """In bodies of HTTP, as over pipes: recorded traffic is published as it was live."""
    steps = [(True, said) for said in talk]
    assert passed(steps, True, size) == passed(steps, True)


@settings(max_examples=20)
@given(talks(), talks(), st.lists(st.booleans(), min_size=60, max_size=60), st.booleans())
def test_sessions_and_contexts_are_as_if_each_were_alone(
    one: list[Said], two: list[Said], order: list[bool], has_session: bool
) -> None:
    """Ids, tasks and states of one mean nothing in another: of a session, or of a client without one."""
    talks_of = {False: iter(one), True: iter(two)}
    steps = [(who, said) for who in order if (said := next(talks_of[who], None)) is not None]
    both = passed(steps, has_session)
    for who in (False, True):
        alone = passed([(each, said) for each, said in steps if each is who], has_session)
        assert [each for each in both if each["args_hash"] is who] == alone


def passed(steps: Sequence[tuple[bool, Said]], has_session: bool, size: int = 10**9) -> list[dict[str, Any]]:
    ids = iter(range(10**9))
    traffic = Traffic(THE_VANTAGE, Contexts(b"key", b"process"), new_id=lambda: str(next(ids)), limits=HTTP_LIMITS)
    streams: dict[bool, Exchange] = {}
    observations: list[Observation] = []
    number = 0
    names: dict[str, bool] = {}

    def opens(who: bool, message: dict[str, Any] | bytes) -> Exchange:
        nonlocal number
        number += 1
        fields = [("Content-Type", "application/json"), ("Authorization", f"Bearer {who}")]
        fields += [("Mcp-Session-Id", str(who))] if has_session else []
        takes(number, Opened("POST", fields))
        for piece in (*pieces(line(message), size), None):
            takes(number, Passed("client->server", piece))
        takes(number, Answered(200, [("Content-Type", "text/event-stream")]))
        exchange = traffic.exchanges[number]
        names[exchange.session.session_id] = who
        return exchange

    def takes(number: int, event: HttpEvent) -> None:
        observations.extend(traffic.receive(number, event, START).observations)

    for who, (direction, message, _) in steps:
        if direction == "client->server" or who not in streams:
            streams[who] = opens(who, message if direction == "client->server" else {"method": "ping", "id": 9})
        if direction == "server->client":
            for piece in pieces(b"data: " + line(message) + b"\n\n", size):
                takes(streams[who].number, Passed("server->client", piece))
    observations.extend(traffic.close(START))
    found = []
    for each in observations:
        data = json.loads(each.value)["data"]
        who = names[data["tool_call_id"].partition(":")[0]]
        found.append({**data, "args_hash": who, "tool_call_id": None})
    return found


SERVERS = 4
LATE_MS = 10**13


def evidence(fleet: Fleet, place: Callable[[bytes, bytes], int]) -> tuple[list[bytes], set[Origin]]:
    ends: Counter[tuple[Role, int]] = Counter()
    records = []
    for role, key, value in fleet.history():
        partition = place(key, value) if role is Role.CALLS else murmur2_partition(key, BINDINGS)
        records.append(Record(role, Origin(role.value, partition, ends[role, partition]), key, value, (), LATE_MS))
        ends[role, partition] += 1
    written, origins = [], set()
    for output in replay(records, producer=Producer(version="1"), snapshot_partitions=BINDINGS):
        if output.role is Role.EVIDENCE:
            content = orjson.loads(output.value or b"")
            del content["assaycontenthash"]
            origins.add(Origin(**content["data"].pop("origin")))
            written.append(orjson.dumps(content))
    return sorted(written), origins


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, CALLS // BINDINGS), st.integers(0, SERVERS - 1))
def test_evidence_of_a_call_differs_by_its_origin_alone(seed: int, spread: int, hot: int) -> None:
    """Spread, misplaced or by any key: the bytes are equal once the origin is left out, and only then."""
    fleet = Fleet(servers=SERVERS, calls=40, changes=4, seed=seed)
    anywhere, places = evidence(fleet, lambda _, value: len(value) % CALLS)
    placing = Placing(servers=SERVERS, seed=seed, hot=hot, spread=spread)
    placed, others = evidence(fleet, placing.partition)
    assert len(placed) == fleet.calls
    assert placed == anywhere
    assert others != places
