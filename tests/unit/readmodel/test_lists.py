"""Lists in the store, from single facts and from runs."""

from __future__ import annotations

import random

import pytest

from assay_stream.limits import Limits
from assay_stream.model.facts import Seen
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import fill
from tests.property.test_packing_laws import compacted, lists_of, written
from tests.support.facts import SERVER, seen

_ROWS = """SELECT observer, pos, time_us, digest, snapshot FROM seen WHERE server = ?
  ORDER BY observer, time_us, pos"""
LIMITS = Limits(timeline_entries_max=12, seen_run_rows_min=3, seen_run_rows_max=8)


def a_history(chance: random.Random) -> list[Seen]:
    times = sorted(chance.randrange(200) for _ in range(50))
    return [
        seen(
            chance.choice(["alice", "alice", "alice", "bob"]),
            time_us if chance.random() < 0.9 else time_us + 50,
            "one" if chance.random() < 0.9 else "two",
            offset=offset,
        )
        for offset, time_us in enumerate(times)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_store_holds_what_the_registry_keeps(seed: int) -> None:
    """However far the topic was compacted, and whether its lists were packed or not."""
    chance = random.Random(seed)
    registry, transactions = written(a_history(chance), LIMITS)
    kept = [
        (name, each.origin.offset, each.time_us, each.catalogue, each.snapshot_id)
        for name, lists in sorted(lists_of(registry.bindings).items())
        for each in lists
    ]
    for left in (transactions, compacted(transactions, chance)):
        connection = schema.temporary()
        outputs = [output for outputs in left for output in outputs]
        assert any(b"seen_run" in (output.key or b"") for output in outputs)
        fill(
            connection,
            [
                Record(Role.BINDINGS, Origin("bindings", 0, number), output.key, output.value)
                for number, output in enumerate(outputs)
            ],
        )
        assert connection.execute(_ROWS, (SERVER,)).fetchall() == kept
        connection.close()
