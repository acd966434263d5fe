"""The registry: facts, definitions, findings and refusals of single records."""

from typing import Any

import orjson
import pytest

from assay_stream.canonical.digest import jcs_digest
from assay_stream.config import load_settings
from assay_stream.kafka.topics import topic_table
from assay_stream.limits import Limits
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


def test_what_is_known_is_not_published_again() -> None:
    registry = Registry(producer=PRODUCER)
    process(registry, a_snapshot(TOOL, offset=0))
    assert labels(process(registry, a_snapshot(TOOL, offset=1))) == ["fact:seen"]


@pytest.mark.parametrize("change", [{"observer_id": "bob"}, {"completeness": "partial"}, {"second": 5}])
def test_the_same_id_of_another_observation_is_no_repetition(change: dict[str, Any]) -> None:
    registry = Registry(producer=PRODUCER)
    process(registry, a_snapshot(TOOL, offset=0))
    fields: dict[str, Any] = {"offset": 1, "snapshot_id": "snapshot-0", "second": 0, **change}
    second = a_snapshot(TOOL, **fields)
    assert "fact:seen" in labels(process(registry, second))


def test_a_definition_is_published_as_it_was_received() -> None:
    definition = next(
        output for output in process(Registry(producer=PRODUCER), a_snapshot(TOOL)) if output.role is Role.DEFINITIONS
    )
    full = str(jcs_digest(TOOL))
    assert definition.key == full.encode()
    assert orjson.loads(definition.value or b"") == {
        "full_digest": full,
        "definition": TOOL,
        "projection": {"name": "t", "description": "Does.", "input_schema": {"type": "object"}},
    }


def test_a_definition_without_a_name_is_shown_and_binds_nothing() -> None:
    """Nothing can call it; reviewers see it all the same, and the catalogue does not list it."""
    outputs = process(Registry(producer=PRODUCER), a_snapshot({"description": "nameless"}))
    assert labels(outputs) == ["definition:not_digestible", "fact:catalogue", "fact:seen", "finding:first_look"]
    assert orjson.loads(outputs[1].value or b"")["tools"] == []


@pytest.mark.parametrize("key", [None, b"", b"  ", b"\xff", b"k" * 5_000, b"k" * 1_025])
def test_without_a_server_to_name_nothing_ends(key: bytes | None) -> None:
    registry = Registry(producer=PRODUCER)
    assert labels(process(registry, a_record(b"{", key=key))) == ["rejected:not_json"]
    assert registry.bindings.servers == {}


def test_a_second_refusal_in_a_row_is_found_but_changes_nothing() -> None:
    registry = Registry(producer=PRODUCER)
    process(registry, a_record(b"{", offset=0))
    assert labels(process(registry, a_record(b"{", offset=1))) == ["rejected:not_json", "finding:snapshot_rejected"]


def test_the_oldest_rejections_are_forgotten() -> None:
    registry = Registry(producer=PRODUCER, limits=Limits(rejections_max=2))
    retracted = []
    for offset in range(8):
        record = a_snapshot(TOOL, offset=offset) if offset % 2 else a_record(b"{", offset=offset)
        retracted += [orjson.loads(o.key or b"") for o in process(registry, record) if o.label == "fact:retracted"]
    assert retracted == [["rejection", "server", "mcp.tools.list", 0, offset] for offset in (0, 2)]


def test_a_refused_record_changes_no_state() -> None:
    registry = Registry(producer=PRODUCER)
    process(registry, a_snapshot(TOOL, {"name": "n" * 2_000}))
    assert registry.bindings.server("server").tools == {}


def test_the_scope_of_a_list_is_part_of_it() -> None:
    registry = Registry(producer=PRODUCER)
    process(registry, a_snapshot(TOOL, offset=0))
    outputs = process(registry, a_snapshot(TOOL, offset=1, server_scoped=False))
    assert [label for label in labels(outputs) if label.startswith("fact")] == [
        "fact:tool",
        "fact:catalogue",
        "fact:seen",
    ]


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
