"""Writing logs at given offsets: its steps, and how a log is held against what is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from assay_stream.errors import InputError
from assay_stream.kafka.exact import (
    FILLERS_MAX,
    RUN_BYTES_MAX,
    TRANSACTION_OFFSETS_MAX,
    Cost,
    Gap,
    fillers,
    first_difference,
    steps,
)
from assay_stream.model.record import Origin, Record, Role


def a_record(offset: int, key: bytes = b"key", value: bytes | None = b"value", time_ms: int = 7) -> Record:
    return Record(Role.CALLS, Origin("calls", 0, offset), key, value, timestamp_ms=time_ms)


def test_records_between_gaps_are_runs() -> None:
    """A gap goes before, between and behind them."""
    three, four, six = a_record(3), a_record(4), a_record(6)
    assert list(steps([three, four, six], first=0, end=8)) == [
        Gap(0, 3, 7),
        [three, four],
        Gap(5, 1, 7),
        [six],
        Gap(7, 1, 7),
    ]


def test_a_log_that_never_had_a_record_is_one_gap() -> None:
    assert list(steps([], first=0, end=5)) == [Gap(0, 5, 0)]
    assert list(steps([], first=5, end=5)) == []


def test_a_run_is_bounded_in_bytes() -> None:
    """Two records that exceed the bound together are two runs."""
    large = [a_record(offset, value=bytes(RUN_BYTES_MAX)) for offset in range(2)]
    assert list(steps(large, first=0, end=2)) == [[record] for record in large]


@pytest.mark.parametrize("offsets", [[2, 2], [3, 2], [8], [0]])
def test_records_out_of_order_or_outside_are_refused(offsets: list[int]) -> None:
    with pytest.raises(InputError, match="offsets_disagree"):
        list(steps(map(a_record, offsets), first=1, end=8))


def differs(wanted: list[Record], found: list[Record], end: int, **how: bool) -> int | None:
    async def read() -> AsyncIterator[Record]:
        for record in found:
            yield record

    options = {"is_compacted": False, "keeps_time": True} | how
    return asyncio.run(first_difference(read(), iter(wanted), end=end, **options))


def test_a_beginning_of_what_is_wanted_does_not_differ() -> None:
    wanted = [a_record(1), a_record(2), a_record(4)]
    for count, end in ((0, 1), (1, 2), (2, 4), (3, 5)):
        assert differs(wanted, wanted[:count], end) is None


@pytest.mark.parametrize(
    "found",
    [a_record(2, b"other"), a_record(2, value=b"other"), a_record(2, time_ms=8), a_record(2, value=None)],
    ids=["key", "value", "time", "tombstone"],
)
def test_another_content_differs(found: Record) -> None:
    assert differs([a_record(1), a_record(2)], [a_record(1), found], 3) == 2


def test_a_missing_and_an_unexpected_record_differ() -> None:
    """Whether another follows or not."""
    assert differs([a_record(1), a_record(2)], [a_record(2)], 3) == 1
    assert differs([a_record(1), a_record(2)], [a_record(1)], 3) == 2
    assert differs([a_record(1)], [a_record(1), a_record(2)], 3) == 2


def test_headers_differ() -> None:
    assert differs([a_record(1)._replace(headers=(("a", b"1"),))], [a_record(1)], 2) == 1


def test_a_compacted_log_may_lack_what_was_superseded() -> None:
    """Where its key comes again, and tombstones."""
    wanted = [a_record(1, b"a"), a_record(2, b"b"), a_record(3, b"a"), a_record(4, b"c", None)]
    assert differs(wanted, wanted[1:3], 5, is_compacted=True) is None
    assert differs(wanted, wanted[2:3], 5, is_compacted=True) == 2
    assert differs(wanted, wanted[1:3], 5) == 1


def test_a_log_whose_brokers_set_the_time_may_differ_in_it() -> None:
    assert differs([a_record(1)], [a_record(1, time_ms=9)], 2, keeps_time=False) is None


@pytest.mark.parametrize("offsets", [1, 2, TRANSACTION_OFFSETS_MAX, TRANSACTION_OFFSETS_MAX + 1, 1_234_567])
def test_a_gap_costs_what_fills_it(offsets: int) -> None:
    cost = Cost()
    cost.add(Gap(3, offsets, 0))
    found = list(fillers(offsets))
    assert (cost.filler_records, cost.transactions) == (sum(found), len(found))


def test_a_gap_of_any_length_is_priced_at_once() -> None:
    """Before it is refused: an archive or evidence can state any offset."""
    cost = Cost()
    cost.add(Gap(0, 2**62, 0))
    assert cost.filler_records > FILLERS_MAX
