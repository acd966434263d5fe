"""Laws of writing logs at given offsets, on a log that assigns them as brokers do."""

from hypothesis import given, strategies as st

from assay_stream.kafka import exact
from assay_stream.kafka.exact import Cost, Gap, fillers, steps
from assay_stream.model.record import Origin, Record, Role


def a_record(offset: int) -> Record:
    return Record(Role.CALLS, Origin("calls", 0, offset), b"key", b"%d" % offset, timestamp_ms=offset)


class KilledError(Exception):
    """The writer was killed."""


class BrokerLog:
    """What brokers keep: a record, or ``None`` for what no reader of committed records sees."""

    def __init__(self, *kills: int) -> None:
        self.entries: list[Record | None] = []
        self._kills = list(kills)

    def write(self, wanted: list[Record], end: int) -> None:
        """Write what is missing, until killed; an open transaction is then aborted by its next owner."""
        first = len(self.entries)
        for step in steps((each for each in wanted if each.origin.offset >= first), first=first, end=end):
            if isinstance(step, list):
                for record in step:
                    self._append(record)
                continue
            assert step.first == len(self.entries)
            for count in fillers(step.offsets):
                try:
                    for _ in range(count):
                        self._append(None)
                finally:
                    self.entries.append(None)

    def _append(self, entry: Record | None) -> None:
        if self._kills:
            self._kills[0] -= 1
            if self._kills[0] < 0:
                del self._kills[0]
                raise KilledError
        self.entries.append(entry)


OFFSETS = st.sets(st.integers(0, 60)).map(sorted)


@given(OFFSETS, st.integers(0, 5), st.lists(st.integers(0, 30), max_size=4))
def test_every_record_gets_its_offset_however_often_the_writer_is_killed(
    offsets: list[int], behind: int, kills: list[int]
) -> None:
    """And the log ends where it is to end, each gap being invisible."""
    wanted, end = [a_record(offset) for offset in offsets], (offsets[-1] + 1 if offsets else 0) + behind
    log = BrokerLog(*kills)
    for _ in range(len(kills) + 1):
        try:
            log.write(wanted, end)
        except KilledError:
            continue
    log.write(wanted, end)
    assert [(at, each) for at, each in enumerate(log.entries) if each] == list(zip(offsets, wanted, strict=True))
    assert len(log.entries) == end


@given(st.integers(0, 3 * exact.TRANSACTION_OFFSETS_MAX))
def test_the_transactions_of_a_gap_take_its_offsets(count: int) -> None:
    """Each takes one for each filler and one for its marker, and none is long."""
    taken = list(fillers(count))
    assert sum(taken) + len(taken) == count
    assert all(0 <= each < exact.TRANSACTION_OFFSETS_MAX for each in taken)


@given(OFFSETS, st.integers(0, 5))
def test_the_cost_counts_every_offset(offsets: list[int], behind: int) -> None:
    """Of records, fillers and markers."""
    end, cost = (offsets[-1] + 1 if offsets else 0) + behind, Cost()
    for step in steps(map(a_record, offsets), first=0, end=end):
        cost.add(step)
    assert cost.records == len(offsets)
    assert cost.records + cost.filler_records + cost.transactions == end


@given(OFFSETS)
def test_a_gap_has_the_time_of_its_neighbour(offsets: list[int]) -> None:
    """Of the record behind it, or of the last one: a lookup by time finds nothing too early."""
    for step in steps(map(a_record, offsets), first=0, end=70):
        if isinstance(step, Gap):
            behind = [offset for offset in offsets if offset >= step.first]
            assert step.timestamp_ms == (behind or offsets[-1:] or [0])[0]
