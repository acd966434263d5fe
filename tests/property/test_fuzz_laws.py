"""The short form of ``make fuzz``: a few examples of each law, with a seed that repeats."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import Filler, fill
from tests.fuzz import __main__ as fuzzing
from tests.support.readmodel import history, tables


def test_stages_take_damaged_records() -> None:
    fuzzing.stages_take_anything()


def test_a_broken_law_is_named_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @fuzzing.given(fuzzing.st.binary())
    def never_holds(raw: bytes) -> None:
        assert len(raw) < 3

    monkeypatch.setattr(fuzzing, "LAWS", (never_holds,))
    with pytest.raises(AssertionError):
        fuzzing.fuzz(0.0, 77, examples=100)
    assert "seed 77, never_holds" in capsys.readouterr().err


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
