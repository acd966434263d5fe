"""Records of the registry and of the alert stage that are none of theirs, in every member."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from assay_stream.model.record import Record, Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import fill
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter, Paging
from tests.support.readmodel import NOW_US, history

ODD: tuple[Any, ...] = (None, 5, 2**64 - 1, "", [], {"a": 1}, True, "\x00")
_HELD = ("digest", "alert", "alert_record", "decision", "definition", "verdict", "tool_fact", "seen", "listed")


def _kinds() -> dict[str, Record]:
    found: dict[str, Record] = {}
    for record in history():
        if record.role is not Role.EVIDENCE and record.value is not None:
            fact = orjson.loads(record.key or b"")[0] if record.role is Role.BINDINGS else ""
            found.setdefault(f"{record.role.value} {fact}".strip(), record)
    return found


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    members = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, member in members:
        yield from _paths(member, (*at, key))


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = orjson.loads(orjson.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return copy


def _ask_everything(store: Store) -> None:
    every = Paging(limit=1_000)
    store.servers(now_us=NOW_US)
    store.observers(now_us=NOW_US)
    store.status()
    for tool in store.tools(now_us=NOW_US, paging=every).rows:
        store.versions(tool.server_id, tool.tool_name)
    for alert in store.alerts(AlertFilter(state=None), every).rows:
        store.alert(alert.uid)
    for decision in store.decisions(paging=every).rows:
        assert isinstance(decision.origin.offset, int)
        store.places(decision.value or "x")


@pytest.mark.parametrize("kind", sorted(_kinds()))
def test_an_odd_member_stops_neither_filling_nor_asking(kind: str) -> None:
    """Such a record is taken in or refused, and of a refused one nothing is left."""
    record = _kinds()[kind]
    content = orjson.loads(record.value or b"")
    for path in _paths(content):
        for odd in ODD:
            connection = schema.temporary()
            fill(connection, [record._replace(value=orjson.dumps(_with(content, path, odd)))])
            _ask_everything(Store(connection))
            if connection.execute("SELECT sum(refused) FROM source").fetchone()[0]:
                left = {each: connection.execute(f"SELECT count(*) FROM {each}").fetchone()[0] for each in _HELD}  # noqa: S608
                assert not any(left.values()), (path, odd)
            connection.close()
