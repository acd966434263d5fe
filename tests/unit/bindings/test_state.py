"""The state that facts add up to."""

from dataclasses import replace

import pytest

from assay_stream.bindings.server import AnswerBound, Answers
from assay_stream.bindings.state import Bindings, SharedFacts
from assay_stream.errors import IntegrityError
from assay_stream.model.control import PinAct
from assay_stream.model.facts import Catalogue, Fact, Horizon, Progress, ToolFact, encode_value
from assay_stream.model.record import Origin, Record, Role, home_of
from assay_stream.registry.step import fact_output
from tests.support.facts import PACKED, SERVER, a_catalogue, a_fingerprint, a_pin, bindings_with, rejection, seen

ONE = a_catalogue("one", {"t": "a"})


def test_a_lost_catalogue_is_never_guessed() -> None:
    with pytest.raises(IntegrityError, match="lost_fact: the binding topic names the catalogue gone"):
        Bindings().server(SERVER).catalogue_of(seen("alice", 1, "gone", offset=0))


def test_a_lost_definition_is_never_guessed() -> None:
    server = Bindings().server(SERVER)
    with pytest.raises(IntegrityError, match="the tool full:a"):
        server.fingerprint_of(ONE, "full:a")


def test_the_scope_is_part_of_a_definition_s_identity() -> None:
    server = bindings_with(ONE).server(SERVER)
    assert server.fingerprint_of(ONE, "full:a").full == "full:a"
    unscoped = a_catalogue("one", {"t": "a"})
    object.__setattr__(unscoped, "server_scoped", False)
    with pytest.raises(IntegrityError):
        server.fingerprint_of(unscoped, "full:a")


@pytest.mark.parametrize(
    ("acts", "tool", "is_approved"),
    [
        ((), "t", False),
        (("set",), "t", True),
        (("set", "remove"), "t", False),
        (("set", "reject"), "t", False),
        (("set",), "u", False),
    ],
    ids=["no pin", "pinned", "taken back", "rejected", "another tool"],
)
def test_a_definition_is_approved_while_its_pin_stands(acts: tuple[PinAct, ...], tool: str, is_approved: bool) -> None:
    bindings = bindings_with(ONE)
    for number, act in enumerate(acts):
        bindings.apply(a_pin("v1:a", act=act, time_us=number, offset=number))
    assert bindings.server(SERVER).is_approved(tool, "full:a") is is_approved


def test_forgetting_what_is_unknown_is_nothing() -> None:
    bindings = Bindings()
    bindings.forget(("seen", "nobody", "alice", 0, 0))
    assert bindings.servers == {}


def test_progress_is_kept_per_input_partition() -> None:
    bindings = Bindings()
    for position in (3, 7):
        bindings.apply(Progress(topic="t", partition=0, position=position))
    bindings.apply(Progress(topic="t", partition=1, position=1))
    assert bindings.progress == {("t", 0): 7, ("t", 1): 1}


def test_between_partitions_only_times_can_tell() -> None:
    """A rejection of another partition ends what is not later than itself."""
    early, late = (seen("alice", time, "one", offset=0, partition=1) for time in (5, 6))
    assert rejection(5, offset=9).ends(early)
    assert not rejection(5, offset=9).ends(late)


def test_a_change_clears_what_was_worked_out() -> None:
    bindings = bindings_with(ONE)
    bindings.server(SERVER).answers.keep(("q",), 1)
    bindings.apply(Progress(topic="t", partition=0, position=1))
    assert bindings.server(SERVER).answers == {("q",): 1}
    bindings.apply(Horizon(server_id=SERVER, observer_id="alice", time_us=1))
    assert bindings.server(SERVER).answers == {}
    bindings.server(SERVER).answers.keep(("q",), 1)
    bindings.forget(ONE.key())
    assert bindings.server(SERVER).answers == {}


def a_fact_record(fact: Fact, *, value: bytes | None = None) -> Record:
    output = fact_output(fact, partition=0)
    return Record(Role.BINDINGS, Origin("bindings", 0, 0), output.key, output.value if value is None else value)


def test_a_server_is_read_when_it_is_asked_for() -> None:
    """What its records say matters to nobody else; its number counts at once."""
    bindings = Bindings()
    bindings.take(a_fact_record(ONE))
    bindings.take(a_fact_record(replace(ONE, server_id="other"), value=b"{}"))
    assert len(bindings) == 2
    server = bindings.find(SERVER)
    assert server is not None
    assert server.catalogues == {"one": ONE}
    assert bindings.find("unknown") is None


def test_half_of_a_server_never_answers() -> None:
    bindings = Bindings()
    for record in (a_fact_record(ONE), a_fact_record(seen("alice", 1, "one", offset=0), value=b"{}")):
        bindings.take(record)
    for _ in range(2):
        with pytest.raises(IntegrityError, match="unknown_fact"):
            bindings.find(SERVER)
    with pytest.raises(IntegrityError, match="unknown_fact"):
        assert bindings.servers


def test_a_time_that_no_log_has_leaves_no_half_of_a_server() -> None:
    """The second question would be answered from what was read before it."""
    bindings = Bindings()
    for fact in (ONE, seen("alice", 2**63, "one", offset=0)):
        bindings.take(a_fact_record(fact))
    for _ in range(2):
        with pytest.raises(IntegrityError, match="foreign_fact"):
            bindings.find(SERVER)


@pytest.mark.parametrize("key", [b'["tool","server",[1],"x"]', b'["seen","server","alice","t",null,1]'])
def test_a_tombstone_of_somebody_else_is_reported(key: bytes) -> None:
    bindings = Bindings()
    bindings.take(a_fact_record(ONE))
    assert bindings.find(SERVER) is not None
    with pytest.raises(IntegrityError, match="foreign_fact"):
        bindings.take(Record(Role.BINDINGS, Origin("bindings", 0, 1), key, None))


def test_a_key_of_somebody_else_is_reported_at_once() -> None:
    with pytest.raises(IntegrityError, match="foreign_fact"):
        Bindings().take(Record(Role.BINDINGS, Origin("bindings", 0, 0), b'["theirs","server"]', b"{}"))


def test_facts_of_another_partition_count_for_nothing() -> None:
    """Neither they nor what deletes them: a join of the server's own partition sees neither."""
    home = home_of(SERVER, 4)
    other = (home + 1) % 4

    def take(fact: Fact, partition: int, *, is_deleted: bool = False) -> None:
        record = a_fact_record(fact)._replace(origin=Origin("bindings", partition, 0))
        bindings.take(record._replace(value=None) if is_deleted else record)

    bindings = Bindings(home_partitions=4)
    take(ONE, other)
    take(Progress(topic="t", partition=other, position=7), other)
    assert len(bindings) == 0
    assert bindings.progress == {("t", other): 7}
    listed = seen("alice", 1, "one", offset=0)
    for fact in (ONE, listed):
        take(fact, home)
    take(listed, other, is_deleted=True)
    assert len(bindings.server(SERVER).observers["alice"]) == 1


def test_the_bound_is_shared() -> None:
    """What is kept about one server counts against what may be kept about another; without room all are dropped."""
    bound = AnswerBound(answers_max=3)
    one, other = Answers(bound), Answers(bound)
    one.keep(("a",), 1)
    one.keep(("b",), 2)
    other.keep(("a",), 3)
    assert (dict(one), dict(other), bound.count) == ({("a",): 1, ("b",): 2}, {("a",): 3}, 3)
    other.keep(("b",), 4)
    assert (dict(one), dict(other), bound.count) == ({}, {("b",): 4}, 1)


def test_an_answer_that_is_replaced_counts_once() -> None:
    answers = Answers(bound := AnswerBound(answers_max=2))
    for value in range(5):
        answers.keep(("a",), value)
    assert (dict(answers), bound.count) == ({("a",): 4}, 1)


def test_a_change_of_the_server_makes_room() -> None:
    answers = Answers(bound := AnswerBound(answers_max=2))
    answers.keep(("a",), 1)
    answers.clear()
    answers.clear()
    assert bound.count == 0


CATALOGUE = a_catalogue("one", {"t": "a", "u": "b"})


def a_tool(server_id: str, name: str = "a", *, server_scoped: bool = True) -> ToolFact:
    print_ = a_fingerprint(name)
    return ToolFact.of(server_id=server_id, server_scoped=server_scoped, fingerprint=print_, packed=PACKED)


def read(shared: SharedFacts, fact: ToolFact | Catalogue) -> ToolFact | Catalogue:
    found = shared.read(fact.key(), encode_value(fact))
    assert isinstance(found, ToolFact | Catalogue)
    return found


@pytest.mark.parametrize("bytes_max", [0, 10_000])
def test_each_server_gets_its_own_facts(bytes_max: int) -> None:
    shared = SharedFacts(bytes_max)
    for _ in range(2):
        for server_id in ("one", "two"):
            for name in ("a", "b"):
                for scoped in (True, False):
                    fact = a_tool(server_id, name, server_scoped=scoped)
                    assert read(shared, fact) == replace(fact, packed="")
            listed = replace(CATALOGUE, server_id=server_id)
            assert read(shared, listed) == listed


def test_equal_facts_share_what_they_hold() -> None:
    shared = SharedFacts()
    one, two = read(shared, a_tool("one")), read(shared, a_tool("two"))
    assert isinstance(one, ToolFact)
    assert isinstance(two, ToolFact)
    assert (one.schemes, one.fields) == (two.schemes, two.fields)
    assert one.schemes is two.schemes
    assert one.fields is two.fields
    lists = [read(shared, replace(CATALOGUE, server_id=name)) for name in ("one", "two")]
    assert isinstance(lists[0], Catalogue)
    assert isinstance(lists[1], Catalogue)
    assert lists[0].tools is lists[1].tools


def test_one_key_with_two_values_is_read_as_written() -> None:
    """What is remembered goes by the value too: a definition may be digested anew by a later version."""
    shared = SharedFacts()
    older = a_tool("one")
    newer = replace(older, errors={"assay.v1": "too_deep"})
    assert [read(shared, fact) for fact in (older, newer)] == [replace(f, packed="") for f in (older, newer)]


def test_other_facts_are_read_alike_and_foreign_ones_refused() -> None:
    fact = seen("alice", 1, "one", offset=0)
    shared = SharedFacts()
    assert shared.read(fact.key(), encode_value(fact)) == fact
    with pytest.raises(IntegrityError, match="unknown_fact"):
        shared.read(CATALOGUE.key(), b"[]")
