"""What a message costs does not grow with what waits on its connection: a hostile client or server decides how much."""

import itertools
import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any

import pytest

from assay_stream.observe.gate import HidingGate
from assay_stream.observe.observation import Observation
from assay_stream.observe.session import ClientSaid, Missed, ServerSaid
from assay_stream.observe.wire import Direction
from tests.support.counting import counted_calls
from tests.support.mcp_dialogue import START, THE_VANTAGE, tool

KINDS: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "t", "_meta": {"progressToken": 1}},
    "tools/list": {},
    "prompts/list": {},
    "initialize": {},
    "tasks/get": {"taskId": "task"},
}
WAYS = ("stdio", "http", "orphaned", "half answered")
"""Where the requests wait: on one stream, each in its exchange, or for any later one."""


class Crowd:
    """A connection on which ``number`` requests of each kind wait, and as many calls for input and tasks."""

    def __init__(self, number: int, way: str) -> None:
        ids = itertools.count()
        self.observer = HidingGate(
            THE_VANTAGE,
            session_id="s",
            new_id=lambda: f"id-{next(ids)}",
            decide=lambda *_: pytest.fail("ruled"),
            over_http=True,
        )
        self.exchanges = itertools.count(1) if way in ("http", "orphaned") else itertools.repeat(0)
        for place, (method, params) in enumerate(KINDS.items()):
            for each in range(number):
                key, exchange = 1_000 * place + each, next(self.exchanges)
                request = {"id": key, "method": method, "params": params}
                self.say("client->server", request, exchange)
                if way == "orphaned":
                    self.observer.orphaned((False, key, exchange), START)
                elif way == "half answered" and method == "tools/list":
                    self.say("server->client", {"id": str(key), "result": {"tools": []}})
        for each in range(number):
            exchange = next(self.exchanges)
            result = {"resultType": "input_required", "requestState": f"state {each}"}
            self.ask_and_answer(10_000 + each, exchange, result)
            self.ask_and_answer(20_000 + each, exchange, {"resultType": "task", "taskId": f"task {each}"})

    def ask_and_answer(self, key: int, exchange: int, result: dict[str, Any]) -> None:
        self.say("client->server", {"id": key, "method": "tools/call", "params": {"name": "t"}}, exchange)
        self.say("server->client", {"id": key, "result": result}, exchange)

    def say(self, direction: Direction, message: object, exchange: int = 0) -> list[Observation]:
        raw = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.observer.take(direction, self.observer.read(raw), raw, START, exchange=exchange)

    def steps(self) -> Iterator[tuple[str, Callable[[], object]]]:
        def client(message: object) -> tuple[str, Callable[[], object]]:
            return f"client: {message}", lambda: self.say("client->server", message, next(self.exchanges))

        def server(message: object) -> tuple[str, Callable[[], object]]:
            return f"server: {message}", lambda: self.say("server->client", message, next(self.exchanges))

        for number, (method, params) in enumerate(KINDS.items()):
            yield client({"id": 90_000 + number, "method": method, "params": params})
            yield client({"id": 1_000 * number + 1, "method": method, "params": params})
        for each in (0, 5, 1_005, 99_999):
            yield client({"method": "notifications/cancelled", "params": {"requestId": each}})
        yield client({"id": 7, "method": "tools/list", "params": {"cursor": "unknown"}})
        yield client({"id": 7, "method": "tools/call", "params": {"name": "t", "requestState": "unknown"}})
        yield client({"id": 7, "method": "tools/call", "params": {"name": "t", "requestState": "state 3"}})
        yield client({"id": 7, "method": "tasks/update", "params": {"taskId": "task 3", "inputResponses": {}}})
        yield client({"id": 99_999, "result": {}})
        yield client(b"\0")
        yield server({"method": "notifications/tools/list_changed"})
        yield server({"method": "notifications/tools/list_changed"})
        yield server({"method": "notifications/progress", "params": {"progressToken": 1}})
        yield server({"method": "notifications/progress", "params": {"progressToken": 99_999}})
        yield server({"method": "notifications/tasks", "params": {"taskId": "task 4", "status": "working"}})
        yield server({"method": "notifications/tasks", "params": {"taskId": "task 4", "status": "cancelled"}})
        yield server({"id": 1, "method": "sampling/createMessage", "params": {}})
        results: tuple[dict[str, Any], ...] = ({}, {"tools": [tool("a")]}, {"prompts": []}, {"resultType": "task"})
        for result in results:
            for key in (99_999, "99999", 6, "7", 1_006, "1007", 2_006, "2007", 3_006, 4_006, 10_003, 20_003):
                yield server({"id": key, "result": result})
        yield server(b'{"id": 1008, "result": {"tools": [], "tools": []}}')
        yield server(b"\0")
        for exchange in itertools.islice(self.exchanges, 2):
            yield "missed", partial(self.observer.missed, "server->client", START, exchange=exchange)
            for event in (
                Missed("server->client", exchange),
                ServerSaid(b'{"tools": 1, "tools": 2}', exchange),
                ClientSaid(b'{"id": 7, "method": "ping"}'),
            ):
                yield f"gate: {event}", partial(self.observer.receive, event, START)
        yield "expired", partial(self.observer.expire, START)


@pytest.mark.parametrize("way", WAYS)
def test_a_message_costs_the_same_however_much_waits(way: str) -> None:
    """Of open calls, of lists, greetings and tasks that were asked for: nothing is searched for among all of them."""
    few, many = Crowd(20, way), Crowd(220, way)
    assert (few.observer.calls.open_calls, many.observer.calls.open_calls) == (60, 660)
    calls = [
        (name, counted_calls(step), counted_calls(other))
        for (name, step), (_, other) in zip(few.steps(), many.steps(), strict=True)
    ]
    assert [each for each in calls if each[2] > each[1] + 20] == []


@pytest.mark.parametrize("method", ["sampling/createMessage", *KINDS])
def test_a_long_id_is_not_kept(method: str) -> None:
    """Of thousands of requests that wait, hostile peers choose the ids: of a server's, and of a client's."""
    crowd = Crowd(1, "stdio")
    direction: Direction = "client->server" if method in KINDS else "server->client"
    params = KINDS.get(method, {})
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for each in range(20):
        request = {"id": f"{each}" + "x" * 100_000, "method": method, "params": params}
        crowd.say(direction, request, 0)
    kept_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert kept_bytes < 200_000


def test_a_long_id_names_its_call_as_before() -> None:
    crowd, long = Crowd(1, "stdio"), "x" * 600
    crowd.say("client->server", {"id": long, "method": "tools/call", "params": {"name": "t"}}, 0)
    found = crowd.say("server->client", {"id": long, "result": {"content": []}}, 0)
    digest = sha256(f'"{long}"'.encode()).hexdigest()
    assert [json.loads(each.value)["data"]["tool_call_id"] for each in found] == [f"s:sha256:{digest}#4"]
