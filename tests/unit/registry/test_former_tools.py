"""Former tools: what is kept of names whose lists were folded away."""

from typing import Any

from assay_stream.bindings.state import Bindings
from assay_stream.limits import Limits
from assay_stream.model.evidence import Producer
from assay_stream.model.facts import FormerTool, decode_fact, decode_key
from assay_stream.model.record import Output, Role
from assay_stream.model.wire import record_model
from assay_stream.registry.retention import surplus_formers
from tests.support import engine
from tests.support.engine import EngineState
from tests.support.events import SERVER, TOOL, a_snapshot, record_of

OTHER = {"name": "list_files", "inputSchema": {"type": "object"}}
WIDE = TOOL | {"inputSchema": {"type": "object"}}


def a_former(name: str, time_us: int, size: int = 10) -> FormerTool:
    return FormerTool(
        server_id=SERVER, tool_name=name, server_scoped=False, full=f"full:{name}", size=size, time_us=time_us
    )


class Log:
    def __init__(self, **limits: int) -> None:
        self._limits = Limits(timeline_entries_max=2, **limits)
        self._offset = 0
        self._topic: dict[bytes | None, bytes | None] = {}
        self.state = EngineState(producer=Producer(version="1"), limits=self._limits)

    def lists(self, *tools: object) -> list[Output]:
        fields: dict[str, Any] = {"number": self._offset, "second": self._offset, "snapshot_id": f"list-{self._offset}"}
        outputs = engine.process(
            self.state, record_of(Role.SNAPSHOTS, a_snapshot(*tools, **fields), offset=self._offset)
        )
        self._offset += 1
        for output in outputs:
            if output.role is Role.BINDINGS:
                self._topic[output.key] = output.value
        return outputs

    def restarts(self) -> None:
        self.state = EngineState(producer=Producer(version="1"), limits=self._limits)
        for key, value in self._topic.items():
            if value is not None:
                self.state.registry.bindings.take(record_of(Role.BINDINGS, value, key=key))

    @property
    def bindings(self) -> Bindings:
        return self.state.registry.bindings


def found(outputs: list[Output]) -> list[str]:
    return [output.label for output in outputs if output.label.startswith("finding:")]


def test_a_tool_that_comes_back_after_its_lists_were_folded_is_compared() -> None:
    for restarts in (False, True):
        log = Log()
        log.lists(TOOL, OTHER)
        for number in range(6):
            log.lists(OTHER | {"description": str(number)})
        if restarts:
            log.restarts()
        assert found(log.lists(OTHER | {"description": "5"}, WIDE)) == ["finding:tool_added", "finding:tool_changed"]


def test_what_came_back_is_kept_by_its_lists_again_and_by_its_last_definition_after_them() -> None:
    log = Log()
    log.lists(TOOL, OTHER)
    for shown in (WIDE, TOOL | {"description": "Last."}):
        for number in range(6):
            log.lists(OTHER | {"description": str(number)})
        log.lists(OTHER, shown)
    for number in range(6):
        log.lists(OTHER | {"description": str(number)})
    server = log.bindings.server(SERVER)
    former = server.formers.get("read_file")
    assert former is not None
    assert server.definition_of(former.full)["description"] == "Last."
    assert sum("read_file" in str(server.definition_of(full)) for _, full in server.tools) == 1


def test_no_more_are_kept_than_the_bound() -> None:
    log = Log(former_tools_max=5)
    for number in range(40):
        log.lists(*({"name": f"tool_{number}_{each}"} for each in range(3)))
    server = log.bindings.server(SERVER)
    assert len(server.formers) == 5
    assert len(server.tools) == 5 + 2 * 3


def test_the_earliest_go_first_until_both_bounds_hold() -> None:
    formers = [a_former("b", 2), a_former("a", 1), a_former("c", 3, size=50)]

    def surplus(tools_max: int, bytes_max: int) -> list[str]:
        limits = Limits(former_tools_max=tools_max, former_tools_bytes_max=bytes_max)
        return [tool.tool_name for tool in surplus_formers(formers, limits)]

    assert surplus(2, 100) == ["a"]
    assert surplus(9, 55) == ["a", "b"]
    assert surplus(3, 70) == []


def test_the_fact_is_valid_under_its_schema() -> None:
    log = Log()
    log.lists(TOOL, OTHER)
    outputs = [output for number in range(4) for output in log.lists(OTHER | {"description": str(number)})]
    [fact] = [output for output in outputs if output.label == "fact:former_tool"]
    record_model(FormerTool).model_validate_json(fact.value or b"")
    assert decode_fact(decode_key(fact.key), fact.value or b"") == log.bindings.server(SERVER).formers.get("read_file")
