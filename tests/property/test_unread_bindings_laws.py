"""Laws of servers that are read when they are asked for: when that is changes no answer."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assay_stream.bindings.as_of import bind
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.state import Bindings
from assay_stream.errors import IntegrityError
from assay_stream.model.facts import Fact, Progress
from assay_stream.model.record import Origin, Record, Role
from assay_stream.registry.ledger import fact_output
from tests.property.test_binding_laws import CATALOGUES, histories
from tests.support.facts import SERVER, a_pin


@st.composite
def topics(draw: st.DrawFn) -> list[Record]:
    facts: list[Fact] = [*CATALOGUES.values(), *draw(histories())]
    outputs = [fact_output(fact, partition=draw(st.integers(0, 1))) for fact in facts]
    again = draw(st.lists(st.sampled_from(outputs), max_size=4))
    # What an operator sets is never taken back.
    taken_back = [output._replace(value=None) for output in draw(st.lists(st.sampled_from(outputs), max_size=6))]
    pins: list[Fact] = [a_pin("v1:a", time_us=draw(st.integers(0, 9)), offset=90)]
    outputs += [fact_output(pin, partition=0) for pin in pins]
    return [
        Record(Role.BINDINGS, Origin("bindings", output.partition or 0, number), output.key, output.value)
        for number, output in enumerate([*outputs, *again, *taken_back])
    ]


def bound(server: ServerBindings, *question: Any) -> Any:
    """What a call is bound to; of a fact that was taken back, that it is lost."""
    tool_name, observer_id, snapshot_id, time_us = question
    try:
        return bind(server, tool_name=tool_name, observer_id=observer_id, snapshot_id=snapshot_id, time_us=time_us)
    except IntegrityError as error:
        return str(error)


def answers(server: ServerBindings | None) -> list[Any]:
    if server is None:
        return []
    observers = ("alice", "bob", "carol", "dave")
    questions = product(("t", "u", "none"), observers, (None, "snapshot-0", "snapshot-3"), range(0, 13, 3))
    lists = {observer: list(timeline) for observer, timeline in server.observers.items() if len(timeline)}
    return [
        *(bound(server, *question) for question in questions),
        sorted(lists.items()),
        server.rejections,
        sorted(server.catalogues),
        server.controls.pins,
    ]


@given(topics(), st.booleans(), st.sets(st.integers(0, 40)))
def test_when_a_server_is_asked_for_changes_no_answer(
    records: list[Record], keep_definitions: bool, asked_at: set[int]
) -> None:
    eager, sometimes, late = (Bindings(keep_definitions=keep_definitions) for _ in range(3))
    for number, record in enumerate(records):
        for bindings in (eager, sometimes, late):
            bindings.take(record)
        eager.find(SERVER)
        if number in asked_at:
            sometimes.find(SERVER)
    assert answers(late.find(SERVER)) == answers(eager.find(SERVER)) == answers(sometimes.find(SERVER))


def test_progress_is_known_at_once() -> None:
    bindings = Bindings()
    output = fact_output(Progress(topic="snapshots", partition=1, position=7), partition=1)
    bindings.take(Record(Role.BINDINGS, Origin("bindings", 1, 0), output.key, output.value))
    assert bindings.progress == {("snapshots", 1): 7}
    assert len(bindings) == 0
