"""Laws over records that were sound before somebody damaged them, and over batches that end anywhere."""

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given, settings, strategies as st

from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import Filler, fill
from tests.support import engine
from tests.support.engine import EngineState
from tests.support.fleet import START, a_call_by, a_listing
from tests.support.readmodel import history, tables

INPUTS = (Role.CALLS, Role.SNAPSHOTS, Role.CONTROL)
TOKENS = [
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\u0000", b"\\ud800", b"\x00", b"\xff", b"null", b"true"),
    *(b"1e999", b"-0.0", b"NaN", b"9" * 400, b'"a":1,"a":2', b"[" * 200, "\u202e".encode(), b" " * 1_000),
]
SOUND = [
    value
    for number in range(4)
    for _, _, value in (
        a_listing(0, 0, number, number, START + timedelta(minutes=number)),
        a_call_by(0, 0, number, START + timedelta(minutes=number), f"snapshot-{number}" if number % 2 else None),
    )
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sound record in which parts are replaced, repeated, moved or cut off."""
    raw = bytearray(draw(st.sampled_from(SOUND)))
    for _ in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, len(raw)))
        end = draw(st.integers(start, min(len(raw), start + draw(st.sampled_from([0, 1, 4, 64])))))
        part = bytes(raw[start:end])
        raw[start:end] = draw(st.sampled_from(TOKENS) | st.binary(max_size=8) | st.just(part * 2) | st.just(part[::-1]))
    return bytes(raw)


@given(st.lists(st.tuples(st.sampled_from(INPUTS), damaged(), st.booleans()), min_size=1, max_size=8))
def test_stages_take_damaged_records(records: Sequence[tuple[Role, bytes, bool]]) -> None:
    """Whatever the inputs hold, nothing raises, and each call gives evidence or a rejected copy."""
    state = EngineState(producer=Producer(version="fuzz"), snapshot_partitions=1)
    for offset, (role, value, has_key) in enumerate(records):
        origin = Origin(topic=role.value, partition=0, offset=offset)
        key = b"server-0" if has_key else None
        record = Record(role=role, origin=origin, key=key, value=value, headers=(), timestamp_ms=0)
        outputs = engine.process(state, record)
        if role is Role.CALLS:
            assert sum(output.role in (Role.EVIDENCE, Role.REJECTED) for output in outputs) == 1
        for output in outputs:
            if output.role is Role.BINDINGS:
                state.view.take(record._replace(role=output.role, key=output.key, value=output.value))


RECORDS = history(calls=25, changes=3, seed=5)


def _whole() -> dict[str, list[tuple[object, ...]]]:
    connection = schema.temporary()
    fill(connection, RECORDS)
    return tables(connection)


WHOLE = _whole()


@settings(deadline=None, max_examples=40)
@given(cuts=st.lists(st.integers(0, len(RECORDS)), max_size=8), back=st.integers(0, 30), restarts=st.booleans())
def test_any_batches_and_restarts_give_the_same_tables(cuts: list[int], back: int, restarts: bool) -> None:
    """Split anywhere, with records delivered again after a restart or not: the tables are those of one pass."""
    connection = schema.temporary()
    filler, begin = Filler(connection), 0
    for end in [*sorted(cuts), len(RECORDS)]:
        filler.take(RECORDS[max(begin - back, 0) : end])
        begin = end
        if restarts:
            filler = Filler(connection)
    assert tables(connection) == WHOLE
