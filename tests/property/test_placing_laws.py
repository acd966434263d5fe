"""Where calls stand changes nothing in their evidence but its origin, and the hash of what holds that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_stream.model.envelope import Producer
from assay_stream.model.record import Origin, Record, Role, murmur2_partition
from assay_stream.replay.run import replay
from tests.chaos.placing import BINDINGS, CALLS, Placing
from tests.support.fleet import Fleet

SERVERS = 4
LATE_MS = 10**13


def evidence(fleet: Fleet, place: Callable[[bytes, bytes], int]) -> tuple[list[bytes], set[Origin]]:
    """Evidence of a fleet's calls without what its origin says, in order, and those origins."""
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
