"""The registry: facts, definitions, findings and refusals of single records."""

from typing import Any

import orjson
import pytest

from assay_stream.config import load_settings
from assay_stream.kafka.topics import topic_table
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.registry.processor import Registry, process
from tests.support.events import TEN_O_CLOCK_MS, an_event, snapshot_data

PRODUCER = Producer(version="0.1.0")
TOOL: dict[str, Any] = {"name": "t", "description": "Does.", "inputSchema": {"type": "object"}}


def a_snapshot(*tools: Any, offset: int = 0, partition: int = 0, second: int | None = None, **data: Any) -> Record:
    fields = {"server_id": "server", "snapshot_id": f"snapshot-{offset}", "server_scoped": True} | data
    second = offset if second is None else second
    value = an_event(Role.SNAPSHOTS, offset, second, snapshot_data(*tools, **fields))
    return a_record(value, offset=offset, partition=partition)


def a_record(value: bytes | None, *, key: bytes | None = b"server", offset: int = 0, partition: int = 0) -> Record:
    place = Origin(topic="mcp.tools.list", partition=partition, offset=offset)
    return Record(role=Role.SNAPSHOTS, origin=place, key=key, value=value, timestamp_ms=TEN_O_CLOCK_MS + offset * 1_000)


def labels(outputs: list[Output]) -> list[str]:
    return [output.label for output in outputs]


def test_a_first_snapshot_is_published_in_the_order_of_its_references() -> None:
    outputs = process(Registry(producer=PRODUCER), a_snapshot(TOOL, {"name": "u"}))
    assert labels(outputs) == [
        "fact:tool",
        "definition",
        "fact:tool",
        "definition",
        "fact:catalogue",
        "fact:seen",
        "finding:first_look",
        "name_claim:come",
        "name_claim:come",
        "fact:allowance",
    ]
    assert {output.partition for output in outputs if output.role is Role.BINDINGS} == {0}


@pytest.mark.parametrize("change", [{"observer_id": "bob"}, {"completeness": "partial"}, {"second": 5}])
def test_the_same_id_of_another_observation_is_no_repetition(change: dict[str, Any]) -> None:
    registry = Registry(producer=PRODUCER)
    process(registry, a_snapshot(TOOL, offset=0))
    fields: dict[str, Any] = {"offset": 1, "snapshot_id": "snapshot-0", "second": 0, **change}
    second = a_snapshot(TOOL, **fields)
    assert "fact:seen" in labels(process(registry, second))


def test_a_definition_without_a_name_is_shown_and_binds_nothing() -> None:
    """Nothing can call it; reviewers see it all the same, and the catalogue does not list it."""
    outputs = process(Registry(producer=PRODUCER), a_snapshot({"description": "nameless"}))
    assert labels(outputs) == [
        *("definition:not_digestible", "fact:catalogue", "fact:seen", "finding:first_look", "fact:allowance")
    ]
    assert orjson.loads(outputs[1].value or b"")["tools"] == []


def test_integers_beyond_64_bits_are_fingerprinted_too() -> None:
    """A definition that the fast encoder cannot write is digested the slow way."""
    record = a_snapshot(TOOL)
    value = (record.value or b"").replace(b'"type":"object"', b'"maximum":123456789012345678901234567890')
    outputs = process(Registry(producer=PRODUCER), record._replace(value=value))
    assert "fact:seen" in labels(outputs)


def test_what_an_accepted_list_gives_fits_its_topics() -> None:
    huge = a_snapshot(TOOL | {"description": "d" * 7_000_000})
    assert_fits(process(Registry(producer=PRODUCER), huge))


def test_what_a_change_gives_fits_its_topics() -> None:
    registry = Registry(producer=PRODUCER)
    process(registry, a_snapshot(TOOL | {"a" * 3_900_000: 1, "b" * 3_900_000: 1}, offset=0))
    assert_fits(process(registry, a_snapshot(TOOL | {"c" * 3_900_000: 1, "d" * 3_900_000: 1}, offset=1)))


def assert_fits(outputs: list[Output]) -> None:
    room = {spec.role: int(spec.config.get("max.message.bytes", 0)) for spec in topic_table(load_settings())}
    assert not [output.label for output in outputs if len(output.value or b"") > room[output.role]]
