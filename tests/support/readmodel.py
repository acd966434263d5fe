"""What the stages write of a fleet's history, as records of their topics, and what a store made of it says."""

import sqlite3
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

import orjson

from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.readmodel.filling import ROLES
from assay_stream.replay.run import Replay
from tests.support.controls import a_control
from tests.support.fleet import START, Fleet
from tests.support.replaying import spooled

NOW_US = int(START.timestamp() * 1_000_000) + 3_600 * 1_000_000


def published(fleet: Fleet, controls: Iterable[bytes] = ()) -> list[Record]:
    given = [*fleet.history(), *((Role.CONTROL, b"server-0", value) for value in controls)]
    numbers: Counter[Role] = Counter()
    records = []
    for index, (role, key, value) in enumerate(given):
        origin = Origin(role.value, 0, numbers[role])
        numbers[role] += 1
        records.append(Record(role, origin, key, value, (), int(START.timestamp() * 1_000) + index))
    return records


def as_records(outputs: Iterable[Output]) -> list[Record]:
    numbers: Counter[tuple[Role, int]] = Counter()
    records = []
    for output in outputs:
        place = output.role, output.partition or 0
        origin = Origin(f"assay.{output.role.value}", place[1], numbers[place])
        numbers[place] += 1
        records.append(Record(output.role, origin, output.key, output.value, output.headers, output.timestamp_ms))
    return records


def written(records: Iterable[Record]) -> list[Record]:
    """What the stages write of some observations, facts included, as their topics hold it."""
    outputs: list[Output] = []
    with spooled(records) as spool:
        for step in Replay(spool, producer=Producer(version="1"), take_fact=outputs.append).steps():
            outputs += step
    return as_records(outputs)


@cache
def history(calls: int = 60, changes: int = 4, seed: int = 1) -> tuple[Record, ...]:
    """Everything that the store reads of a fleet with a pin, in the order in which it was written."""
    value = "sha256:" + "0" * 64
    pin = a_control("pin.set", server_id="server-0", tool_name="tool_1", scheme="assay.v1", value=value)
    records = published(Fleet(servers=3, calls=calls, changes=changes, seed=seed), [pin])
    return tuple(record for record in written(records) if record.role in ROLES)


def of_role(records: Iterable[Record], role: Role) -> list[Record]:
    return [record for record in records if record.role is role]


def data_of(record: Record) -> dict[str, Any]:
    data: dict[str, Any] = orjson.loads(record.value or b"")["data"]
    return data


def tables(connection: sqlite3.Connection, *without: str) -> dict[str, list[tuple[Any, ...]]]:
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    return {
        name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)  # noqa: S608
        for name in names
        if name not in without
    }
