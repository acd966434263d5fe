"""Evidence is the same bytes wherever a join keeps its lists: as they are, or packed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from assay_stream.join.processor import Join, process
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Origin, Record, Role
from assay_stream.registry.state import Bindings
from bench.synthetic import facts
from tests.support.fleet import START, a_call_by
from tests.support.plain_sightings import plain_lists

_LISTS = 150


def evidence_of(view: Bindings) -> list[bytes | None]:
    """The evidence of calls at any time, by snapshot id and without, where some lists were taken back."""
    written = [*facts(2, 2, _LISTS)]
    for place, (key, value) in enumerate(written):
        view.take(Record(Role.BINDINGS, Origin("b", 0, place), key, value))
    seen = [key for key, _ in written if key.startswith(b'["seen"')]
    for place, key in enumerate([*seen[1:40], *seen[80:_LISTS:3], *seen[-3:]]):
        view.take(Record(Role.BINDINGS, Origin("b", 0, len(written) + place), key, None))
    names = [None, "never-seen", *(f"{0:08x}-0000-4000-8000-{number:012x}" for number in range(0, _LISTS, 7))]
    join = Join(producer=Producer(version="1"), view=view)
    return [
        output.value
        for number in range(-1, _LISTS + 1, 5)
        for name in names
        for output in process(
            join,
            Record(
                Role.CALLS,
                Origin("c", 0, number + 1),
                None,
                a_call_by(number % 2, number % 3, number + 1, START + timedelta(hours=number), name)[2],
            ),
        )
    ]


@pytest.fixture(scope="module")
def plain() -> list[bytes | None]:
    """The evidence of a join that keeps lists as they are."""
    with plain_lists():
        return evidence_of(Bindings())


def test_packed_lists_give_the_same_evidence(plain: list[bytes | None]) -> None:
    """In memory."""
    assert evidence_of(Bindings()) == plain
    assert {b'"exact"', b'"observer"'} <= {
        scope for scope in (b'"exact"', b'"observer"') for value in plain if value and scope in value
    }
