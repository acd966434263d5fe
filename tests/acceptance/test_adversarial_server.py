"""A server that means harm: what it can make us keep, write and work is bounded, and said."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from assay_stream.config import Settings
from assay_stream.kafka.topics import topic_table
from assay_stream.limits import Limits
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Output, Record, Role
from tests.acceptance.test_cut_short import a_list, a_state, some_tools
from tests.support import engine
from tests.support.counting import counted_calls
from tests.support.engine import EngineState
from tests.support.events import snapshot_data
from tests.support.fleet import START, _event, a_call_by

SERVER = "server-0"
BYTES_MAX = {spec.role: int(spec.config.get("max.message.bytes", 0)) for spec in topic_table(Settings())}


class Stream:
    def __init__(self, **limits: int) -> None:
        self.state = EngineState(producer=Producer(version="1"), limits=Limits(**limits), snapshot_partitions=1)
        self.facts: dict[bytes, bytes] = {}
        """The binding topic as compaction leaves it."""
        self._offsets: Counter[Role] = Counter()

    def tells(self, role: Role, value: bytes, key: bytes = SERVER.encode()) -> list[Output]:
        outputs = self._step(role, key, value)
        for output in list(outputs):
            if output.role is Role.BINDINGS:
                self._keep(output)
            elif output.role is Role.FINDINGS:
                outputs += self._step(Role.FINDINGS, output.key, output.value, output.headers)
        for output in outputs:
            assert len(output.value or b"") + len(output.key or b"") < BYTES_MAX[output.role], output.label
        return outputs

    def lists(self, number: int, tools: Sequence[Any]) -> list[Output]:
        listed = {"server_id": SERVER, "observer_id": "observer-0", "snapshot_id": f"snapshot-{number}"}
        data = snapshot_data(*tools, **listed, server_scoped=True)
        at = START + timedelta(minutes=number)
        return self.tells(Role.SNAPSHOTS, _event("mcp.tools.list.observed", f"list-{number}", at, data))

    def calls(self, number: int, at: datetime) -> dict[str, Any]:
        [output] = self.tells(Role.CALLS, a_call_by(0, 0, number * 3, at, None)[2])
        assert output.role is Role.EVIDENCE
        data: dict[str, Any] = json.loads(output.value or b"")["data"]
        return data

    def _step(self, role: Role, key: bytes | None, value: bytes | None, headers: Any = ()) -> list[Output]:
        origin = Origin(topic=role.value, partition=0, offset=self._offsets[role])
        self._offsets[role] += 1
        record = Record(role=role, origin=origin, key=key, value=value, headers=headers, timestamp_ms=0)
        return engine.process(self.state, record)

    def _keep(self, output: Output) -> None:
        assert output.key is not None
        self.state.view.take(
            Record(
                role=Role.BINDINGS,
                origin=Origin(topic="bindings", partition=0, offset=0),
                key=output.key,
                value=output.value,
                headers=(),
                timestamp_ms=0,
            )
        )
        if output.value is None:
            self.facts.pop(output.key, None)
        else:
            self.facts[output.key] = output.value


def labels(outputs: list[Output]) -> set[str]:
    return {output.label for output in outputs}


def a_tool(number: int, **fields: Any) -> dict[str, Any]:
    return {"name": f"tool_{number}", "inputSchema": {"type": "object"}, **fields}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels // 2):
        schema = {"properties": {"p": schema}}  # two levels each
    return schema


def new_lists(lists: int, tools: int, chars: int) -> Iterator[list[dict[str, Any]]]:
    """Lists in which every definition is new each time, of text that does not compress."""
    chance = random.Random(6)
    for _ in range(lists):
        yield [a_tool(number, description=chance.randbytes(chars // 2).hex()) for number in range(tools)]


def test_ten_thousand_tools_are_refused_with_a_code() -> None:
    """Nothing of the list is kept, the refusal is told, and later calls are not bound to the past."""
    stream = Stream()
    stream.lists(0, [a_tool(0)])
    kept = dict(stream.facts)
    outputs = stream.lists(1, [a_tool(number) for number in range(10_000)])
    assert "rejected:too_many_tools" in labels(outputs)
    assert any(output.role is Role.FINDINGS for output in outputs)
    assert len(stream.facts) <= len(kept) + 2
    assert stream.calls(0, START + timedelta(minutes=5)).get("tool_definition_digest") is None


def test_a_megabyte_of_description_is_kept_once_and_told_in_short() -> None:
    stream = Stream()
    for number in range(4):
        outputs = stream.lists(number, [a_tool(0, description=chr(97 + number) * 1024 * 1024)])
        assert not {label for label in labels(outputs) if label.startswith("rejected:")}
    found = [output for output in outputs if output.role is Role.FINDINGS]
    assert found
    assert max(len(output.value or b"") for output in found) < 64 * 1024
    assert stream.calls(0, START + timedelta(minutes=9))["tool_definition_digest"].startswith("sha256:")


def test_a_hundred_levels_are_read_and_more_than_the_limit_refused() -> None:
    stream = Stream()
    stream.lists(0, [a_tool(0)])
    assert any(output.role is Role.FINDINGS for output in stream.lists(1, [a_tool(0, inputSchema=nested(100))]))
    assert "rejected:too_deep" in labels(stream.lists(2, [a_tool(0, inputSchema=nested(140))]))


def test_a_new_definition_on_every_list_keeps_no_more_than_the_limit() -> None:
    """State and topic stay within the bound; every change is told; what was forgotten is not guessed."""
    limit = 256 * 1024
    stream = Stream(server_definitions_bytes_max=limit)
    told = 0
    for number, tools in enumerate(new_lists(lists=30, tools=20, chars=2_000)):
        outputs = stream.lists(number, tools)
        told += any(output.role is Role.FINDINGS for output in outputs)
        bindings = stream.state.registry.bindings.server(SERVER)
        assert bindings.definitions_bytes <= limit
        assert sum(map(len, stream.facts.values())) < 2 * limit
        assert len(stream.state.view.server(SERVER).tools) <= 20 * 10
    assert told >= 29
    assert stream.calls(0, START + timedelta(minutes=100))["tool_definition_digest"].startswith("sha256:")
    assert stream.calls(1, START + timedelta(minutes=1, seconds=1)).get("tool_definition_digest") is None


def test_the_two_latest_lists_stay_however_large() -> None:
    """A single list above the bound is still what calls are bound to, and what the next one is compared with."""
    stream = Stream(server_definitions_bytes_max=1_000)
    for number, tools in enumerate(new_lists(lists=5, tools=5, chars=2_000)):
        outputs = stream.lists(number, tools)
        assert number == 0 or any(output.role is Role.FINDINGS for output in outputs)
        assert stream.calls(number, START + timedelta(minutes=number, seconds=1))["tool_definition_digest"]
    assert len(stream.state.registry.bindings.server(SERVER).observers["observer-0"]) == 2


def upgraded(observers: int) -> list[Record]:
    lists = [a_list(number, some_tools(3, 0), observer=f"o{number}") for number in range(observers)]
    return lists + [
        a_list(observers + number, some_tools(3, 1), observer=f"o{number}") for number in range(observers // 2)
    ]


def own_versions(observers: int) -> list[Record]:
    return [a_list(number, some_tools(3, number), observer=f"o{number}") for number in range(observers)]


def the_next(records: list[Record]) -> list[Record]:
    number = len(records)
    return [
        a_list(number, some_tools(3, 0), observer="o1"),
        a_list(number + 1, some_tools(3, 1), observer="o1"),
        a_list(number + 2, some_tools(3, 1), observer="newcomer"),
        a_list(number + 3, some_tools(2, 5_000), observer="o1"),
        a_list(1, some_tools(1, 6_000), observer="o2")._replace(origin=records[0].origin._replace(offset=number + 4)),
    ]


@pytest.mark.parametrize("fleet", [upgraded, own_versions])
def test_a_list_costs_the_same_in_a_fleet_of_any_size(fleet: Callable[[int], list[Record]]) -> None:
    costs = []
    for observers in (20, 200):
        state = a_state(Limits())
        records = fleet(observers)
        for record in records:
            engine.process(state, record)
        costs.append([counted_calls(partial(engine.process, state, record)) for record in the_next(records)])
    for small, large in zip(*costs, strict=True):
        assert large < 2 * small, costs
