"""What a list makes all stages write stays in proportion to the list, whatever a server puts into it."""

from typing import Any

import pytest

from assay_stream.alerts.processor import process as alert
from assay_stream.alerts.remembered import AlertTable
from assay_stream.alerts.rules import AlertRules
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.registry.processor import Registry, process
from tests.support.events import TEN_O_CLOCK_MS, a_snapshot, record_of

WRITTEN_PER_BYTE_MAX = 10
WRITTEN_PER_DEFINITION_MAX = 32 * 1024
"""As in docs/security.md: bytes for a byte of a list or of the one before it, and for a definition that differs."""

Tools = list[dict[str, Any]]
TOOLS = 50


def under_long_path(leaf: Any, name: str = "p" * 60) -> Any:
    for _ in range(16):
        leaf = {name: leaf}
    return leaf


def tools_of(*fields: dict[str, Any], name: str = "") -> Tools:
    content = {key: value for each in fields for key, value in each.items()}
    return [{"name": f"{number:04}{name}", **content} for number in range(TOOLS)]


def with_references(count: int, *, field: str = "inputSchema", to: str = "x", name: str = "p" * 60) -> dict[str, Any]:
    return {field: under_long_path([{"$ref": to}] * count, name)}


def with_schema(leaf: Any) -> dict[str, Any]:
    """A schema of which each keyword differs from the other one's, under a path that is cut."""
    inner: Any = {"type": "object", "properties": {"k": leaf}}
    for _ in range(8):
        inner = {"type": "object", "properties": {'"\\' * 32: inner}}
    return {"inputSchema": inner, "outputSchema": inner}


TEXT = {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "a", "description": "A.", "default": "b"}
NUMBER = {"type": "integer", "minimum": 3, "maximum": 7, "multipleOf": 2, "title": "B", "enum": [4], "examples": [4]}
FIELDS = {f"{number:02}" + "\x01" * 126: 0 for number in range(60)}
CONTRACT = {"tool_id": "a.b", "tool_version": "1.1.0", "side_effect": "read", "required_capabilities": ["a"]}
BROKEN = CONTRACT | {"tool_version": "1.0.0", "side_effect": "write", "required_capabilities": ["b"]}
PLAIN = tools_of()
SHAPES: dict[str, list[Tools]] = {
    "hundreds of signs under one path": [
        PLAIN,
        tools_of(with_references(256)),
        PLAIN,
        tools_of(with_references(256)),
        [],
    ],
    "a few signs under one path": [PLAIN, tools_of(with_references(10)), PLAIN],
    "signs in a first list": [tools_of(with_references(256)), []],
    "other signs, and those from before": [
        tools_of(with_references(30)),
        tools_of(with_references(30), with_references(30, field="other", to="y")),
    ],
    "names that grow in a path": [PLAIN, tools_of(with_references(30, name='"\\' * 30)), PLAIN],
    "changes under one path": [tools_of(with_schema(TEXT)), tools_of(with_schema(NUMBER)), tools_of(with_schema(TEXT))],
    "all at once": [
        tools_of(with_schema(TEXT), with_references(30, field="x"), {"_meta": {"handshake": CONTRACT}}),
        tools_of(
            with_schema(NUMBER),
            with_references(30, field="x"),
            with_references(30, field="y", to="y"),
            {"_meta": {"handshake": BROKEN}},
        ),
        PLAIN,
    ],
    "long fields": [tools_of(FIELDS), PLAIN, tools_of(FIELDS)],
    "long fields and a broken contract": [
        tools_of(FIELDS, {"_meta": {"handshake": CONTRACT}}),
        tools_of({"_meta": {"handshake": BROKEN}}),
    ],
    "long names": [tools_of(name="\x01" * 1_000), tools_of({"x": 1}, name="\x01" * 1_000), []],
    "nothing but names": [PLAIN, tools_of({"x": 0}), [], PLAIN],
}


def snapshot(number: int, tools: Tools, *, as_prompts: bool) -> Record:
    given: dict[str, Any] = {"server_id": "s", "observer_id": "o", "snapshot_id": f"n{number}", "server_scoped": True}
    if as_prompts:
        tools, given["prompts"] = [], tools
    value = a_snapshot(*tools, number=number, second=number, **given)
    return record_of(Role.SNAPSHOTS, value, key=b"s", offset=number, timestamp_ms=TEN_O_CLOCK_MS + number * 60_000)


class Stages:
    """The registry and the alert stage, which reads what a list led to in one batch."""

    def __init__(self) -> None:
        self._registry = Registry(producer=Producer(version="1"), partitions=1)
        self._table = AlertTable(0, AlertRules(version="1"))
        self._offset = 0

    def written_for(self, record: Record) -> list[Output]:
        outputs = process(self._registry, record)
        for output in [output for output in outputs if output.role is Role.FINDINGS]:
            place = Origin("assay.tool.finding", 0, self._offset)
            outputs += alert(self._table.alerts, Record(Role.FINDINGS, place, output.key, output.value))
            self._offset += 1
        return outputs + self._table.flush({"assay.tool.finding": self._offset})


@pytest.mark.parametrize("as_prompts", [False, True])
@pytest.mark.parametrize("lists", SHAPES.values(), ids=SHAPES)
def test_what_is_written_is_in_proportion_to_the_lists(lists: list[Tools], *, as_prompts: bool) -> None:
    stages, before_bytes = Stages(), 0
    for number, tools in enumerate(lists):
        record = snapshot(number, tools, as_prompts=as_prompts)
        outputs = stages.written_for(record)
        assert Role.REJECTED not in {output.role for output in outputs}
        written = sum(len(output.key or b"") + len(output.value or b"") for output in outputs)
        read = len(record.value or b"")
        print(f"list {number}: {written:,} bytes written for {read:,}")
        assert written <= WRITTEN_PER_BYTE_MAX * (read + before_bytes) + WRITTEN_PER_DEFINITION_MAX * TOOLS
        before_bytes = read
