"""Laws of the binding rules, over random histories."""

from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given, strategies as st

from assay_stream.bindings import sightings
from assay_stream.bindings.as_of import Binding, bind
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.sightings import Sightings, row_of, shared_part
from assay_stream.bindings.state import Bindings
from assay_stream.bindings.timeline import AFTER_ALL_US, BEFORE_ALL_US, Timeline, latest_of_equal
from assay_stream.errors import IntegrityError
from assay_stream.model.evidence import Scope, Unbound
from assay_stream.model.facts import Announcement, Fact, Progress, Rejection, Seen
from assay_stream.model.record import Origin, Record, Role
from assay_stream.registry.step import fact_output
from tests.support.facts import SERVER, a_catalogue, a_pin, announcement, bindings_with, rejection, seen

CATALOGUES = {
    "one": a_catalogue("one", {"t": "a"}),
    "two": a_catalogue("two", {"t": "b", "u": "c"}),
    "none": a_catalogue("none", {"u": "c"}),
}
TIMES = st.integers(min_value=0, max_value=12)


OBSERVERS = st.sampled_from(["alice", "bob", "carol"])
History = list[Seen | Rejection | Announcement]


@st.composite
def histories(draw: st.DrawFn) -> History:
    count = draw(st.integers(min_value=0, max_value=12))
    facts: History = []
    for offset in range(count):
        time_us = draw(TIMES)
        match draw(st.integers(min_value=0, max_value=7)):
            case 0:
                facts.append(rejection(time_us, offset=offset, observer_id=draw(st.none() | OBSERVERS)))
            case 1:
                facts.append(announcement(draw(OBSERVERS), time_us, offset=offset))
            case _:
                facts.append(
                    seen(
                        draw(OBSERVERS),
                        time_us,
                        draw(st.sampled_from(sorted(CATALOGUES))),
                        offset=offset,
                        snapshot_id=draw(st.sampled_from([f"snapshot-{offset}", "snapshot-s"])),
                        completeness=draw(st.sampled_from(["complete", "partial", "unknown"])),
                        attributed=draw(st.booleans()),
                    )
                )
    return facts


def tell(entry: Seen) -> tuple[str | None, Unbound | None]:
    full = CATALOGUES[entry.catalogue].tools.get("t")
    if full is not None:
        return full.replace("full:", "v1:"), None
    return None, Unbound.NOT_LISTED if entry.completeness == "complete" else Unbound.NOT_OBSERVED


def _is_refused(entry: Seen, refused: list[Rejection]) -> bool:
    return any(
        bad.origin.offset > entry.origin.offset
        for bad in refused
        if bad.observer_id == entry.observer_id or (bad.observer_id is None and not entry.attributed)
    )


def _as_of(past: History) -> tuple[dict[str, Seen], set[str]]:
    latest: dict[str, Seen] = {}
    told: set[str] = set()
    for fact in sorted(past, key=lambda fact: fact.position):
        if isinstance(fact, Seen):
            latest[fact.observer_id] = fact
            told.discard(fact.observer_id)
        elif isinstance(fact, Announcement):
            told.add(fact.observer_id)
    return latest, told


def naive_bind(
    facts: History, observer_id: str, snapshot_id: str | None, time_us: int
) -> tuple[Scope | None, str | None, Unbound | None]:
    """The rules of the design, as a scan over the whole history: scope, digest, reason."""

    named = [entry for entry in facts if isinstance(entry, Seen) and entry.snapshot_id == snapshot_id]
    own_named = [entry for entry in named if entry.observer_id == observer_id]
    if own_named or len({(entry.catalogue, entry.completeness) for entry in named}) == 1:
        answers = {tell(entry) for entry in own_named or named}
        telling = {answer for answer in answers if answer[1] is not Unbound.NOT_OBSERVED} or answers
        return (Scope.EXACT, *(telling.pop() if len(telling) == 1 else (None, Unbound.AMBIGUOUS)))
    past = [fact for fact in facts if fact.time_us <= time_us]
    refused = [fact for fact in past if isinstance(fact, Rejection)]
    latest, told = _as_of(past)
    own = latest.get(observer_id)
    if any(
        bad.observer_id == observer_id and (own is None or bad.origin.offset > own.origin.offset) for bad in refused
    ):
        return None, None, Unbound.SNAPSHOT_REJECTED
    if observer_id in told:
        return None, None, Unbound.LIST_CHANGE_ANNOUNCED
    readable = {name: entry for name, entry in latest.items() if not _is_refused(entry, refused)}
    if own is None or not own.attributed:
        nobody = max((bad.origin.offset for bad in refused if bad.observer_id is None), default=-1)
        readable = {name: entry for name, entry in readable.items() if entry.origin.offset > nobody}
    in_force = {name: entry for name, entry in readable.items() if name not in told}
    if observer_id in in_force:
        return (Scope.OBSERVER, *tell(in_force[observer_id]))
    if not in_force:
        hidden = len(readable) < len(latest) or any(bad.observer_id is None for bad in refused)
        return None, None, Unbound.SNAPSHOT_REJECTED if hidden else Unbound.NOT_OBSERVED
    telling = {answer for answer in map(tell, in_force.values()) if answer[1] is not Unbound.NOT_OBSERVED}
    if not telling:
        return Scope.SERVER, None, Unbound.NOT_OBSERVED
    if len(telling) > 1:
        return Scope.SERVER, None, Unbound.AMBIGUOUS
    return (Scope.SERVER, *telling.pop())


@given(
    histories(),
    st.randoms(use_true_random=False),
    st.sampled_from(["alice", "bob", "dora"]),
    TIMES,
    st.none() | st.just("s") | st.integers(0, 14),
)
def test_binding_is_the_naive_scan_in_any_order_of_arrival(
    facts: History, random: object, observer_id: str, time_us: int, named: int | str | None
) -> None:
    """The join gives what a scan of the whole history gives, however the history arrived, with duplicates."""
    shuffled = facts + facts[:3]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    bindings = bindings_with(*CATALOGUES.values())
    for fact in shuffled:
        bindings.apply(fact)
    snapshot_id = None if named is None else f"snapshot-{named}"
    found = bind(
        bindings.servers.get(SERVER), tool_name="t", observer_id=observer_id, snapshot_id=snapshot_id, time_us=time_us
    )
    digest = found.fingerprint.definition_digest() if found.fingerprint else None
    assert (found.scope, digest, found.unbound) == naive_bind(facts, observer_id, snapshot_id, time_us)


@given(histories(), st.sampled_from(["alice", "bob", "dora"]), TIMES)
def test_a_digest_is_one_that_was_observed(facts: History, observer_id: str, time_us: int) -> None:
    bindings = bindings_with(*CATALOGUES.values())
    for fact in facts:
        bindings.apply(fact)
    found = bind(
        bindings.servers.get(SERVER), tool_name="t", observer_id=observer_id, snapshot_id=None, time_us=time_us
    )
    if found.unbound is None:
        assert found.seen is not None
        assert found.fingerprint is not None
        assert found.seen in facts
        assert found.seen.time_us <= time_us
        assert found.fingerprint.full == CATALOGUES[found.seen.catalogue].tools["t"]
    else:
        assert found.fingerprint is None


@given(histories(), st.sampled_from(["alice", "bob", "dora"]), TIMES, st.randoms(use_true_random=False))
def test_facts_that_are_taken_back_leave_no_trace(
    facts: History, observer_id: str, time_us: int, random: object
) -> None:
    bindings = bindings_with(*CATALOGUES.values())
    for fact in facts:
        bindings.apply(fact)
    kept = [fact for fact in facts if random.random() < 0.5]  # type: ignore[attr-defined]
    for fact in facts:
        if fact not in kept:
            bindings.forget(fact.key())
    found = bind(
        bindings.servers.get(SERVER), tool_name="t", observer_id=observer_id, snapshot_id=None, time_us=time_us
    )
    digest = found.fingerprint.definition_digest() if found.fingerprint else None
    assert (found.scope, digest, found.unbound) == naive_bind(kept, observer_id, None, time_us)


@given(histories(), st.sampled_from(["alice", "bob", "dora"]), TIMES)
def test_an_answer_holds_for_the_whole_of_its_span(facts: History, observer_id: str, time_us: int) -> None:
    bindings = bindings_with(*CATALOGUES.values())
    for fact in facts:
        bindings.apply(fact)
    server = bindings.server(SERVER)

    def answer(at_us: int) -> Binding:
        return bind(server, tool_name="t", observer_id=observer_id, snapshot_id=None, time_us=at_us)

    found = answer(time_us)
    since_us, until_us = found.span_us or (time_us, time_us + 1)
    for other_us in range(max(since_us, 0), min(until_us, 14)):
        assert answer(other_us) == found


# --- laws of sightings: a timeline over the table answers what a plain list of them would ---------------------

FEW_OBSERVERS = ("alice", "bob")
_ZEROS = f"{0:08}-0000-0000-0000-{0:012}"
UUIDS = (_ZEROS, f"{_ZEROS[:-1]}1", f"01{_ZEROS[2:]}", "0191d3a7-6d0c-7b3e-9f5a-4c1be27f8d60")
TEXTS = ("s", "é\n", UUIDS[3].upper(), UUIDS[3].replace("-", "_"), f" {UUIDS[3][1:]}")
NAMES = (*UUIDS, *TEXTS)
USUAL = st.sampled_from([True] * 7 + [False])
Steps = list[tuple[bool, Seen]]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index so small that a short history splits and merges its parts, and most hashes collide."""
    monkeypatch.setattr(sightings, "_PART_MAX", 4)
    monkeypatch.setattr(sightings, "_hash", lambda packed: packed.count(0) // 4)


@st.composite
def observations(draw: st.DrawFn, names: tuple[str, ...], offset: int) -> Seen:
    """One of few observers, times, places and lists, mostly of the usual ones, so that repeats and ties are common."""
    return seen(
        FEW_OBSERVERS[0 if draw(USUAL) else 1],
        draw(st.integers(0, 9)),
        "one" if draw(USUAL) else "two",
        offset=offset,
        snapshot_id=draw(st.sampled_from(names)),
        completeness="complete" if draw(USUAL) else "partial",
        partition=0 if draw(USUAL) else 1,
        attributed=not draw(USUAL),
    )


@st.composite
def sighting_histories(draw: st.DrawFn) -> Steps:
    names, offsets = draw(st.sampled_from((UUIDS, NAMES))), draw(st.permutations(range(draw(st.integers(1, 30)))))
    come = [draw(observations(names, offset)) for offset in offsets]
    steps = [(True, fact) for fact in come]
    for place in draw(st.lists(st.integers(0, len(come) - 1), max_size=12)):
        steps.insert(draw(st.integers(place + 1, len(steps))), (draw(st.booleans()), come[place]))
    return steps


def states(steps: Steps) -> Iterator[tuple[ServerBindings, list[Seen]]]:
    server, plain = ServerBindings(), dict[Seen, None]()
    for comes, fact in steps:
        if comes:
            server.add_observation(fact)
            plain[fact] = None
        else:
            server.remove_observation(fact.observer_id, fact.origin)
            plain.pop(fact, None)
        yield server, sorted(plain, key=lambda each: each.position)


@given(sighting_histories())
def test_a_timeline_answers_what_a_scan_does(steps: Steps) -> None:
    for server, everything in states(steps):
        assert {observer for observer, timeline in server.observers.items() if timeline} == {
            each.observer_id for each in everything
        }
        for observer_id, timeline in server.observers.items():
            plain = [each for each in everything if each.observer_id == observer_id]
            assert list(timeline) == plain
            assert list(timeline.newest_first()) == plain[::-1]
            assert timeline.latest == (plain[-1] if plain else None)
            for time_us in range(-1, 11):
                until = [each for each in plain if each.time_us <= time_us]
                ends_us = [each.time_us for each in plain if each.time_us > time_us]
                assert timeline.as_of(time_us) == (until[-1] if until else None)
                assert timeline.span_at(time_us) == (
                    until[-1].time_us if until else BEFORE_ALL_US,
                    ends_us[0] if ends_us else AFTER_ALL_US,
                )
                assert list(timeline.at(time_us)) == [each for each in plain if each.time_us == time_us]
            for place, entry in enumerate(plain):
                assert list(timeline.back_from(entry.position)) == plain[:place][::-1]
                force = [(one, other.position) for one, other in pairwise(plain[place:])]
                assert list(timeline.in_force_since(entry.position)) == [*force, (plain[-1], None)]
                assert timeline.first_after(entry.position) == next(iter(plain[place + 1 :]), None)


@given(sighting_histories())
def test_an_id_names_what_a_scan_finds(steps: Steps) -> None:
    """Of the caller's own observer, else the one list that others published; whatever hashes collide."""
    for server, everything in states(steps):
        for name in (*NAMES, "never seen"):
            named = [each for each in everything if each.snapshot_id == name]
            for observer_id in (*FEW_OBSERVERS, "carol"):
                own = latest_of_equal(each for each in named if each.observer_id == observer_id)
                others = latest_of_equal(named)
                assert server.named_by(name, observer_id) == own
                assert server.named(name, observer_id) == (own or (others if len(others) == 1 else []))


@given(sighting_histories(), sighting_histories())
def test_a_server_that_is_dropped_leaves_its_rows_to_others(steps: Steps, later: Steps) -> None:
    table = Sightings()
    dropped, server, alone = (ServerBindings(table=table), ServerBindings(table=table), ServerBindings())
    for _, fact in steps:
        dropped.add_observation(fact)
    dropped.clear()
    for comes, fact in later:
        for each in (server, alone):
            if comes:
                each.add_observation(fact)
            else:
                each.remove_observation(fact.observer_id, fact.origin)
    assert {name: list(found) for name, found in server.observers.items()} == {
        name: list(found) for name, found in alone.observers.items()
    }
    assert len(table.kinds) <= len(steps) + len(later)


@given(sighting_histories(), st.integers(1, 20))
def test_only_a_repeat_is_folded_without_loss(steps: Steps, entries_max: int) -> None:
    """What goes first stands between equal lists; where none does, the oldest goes, and history with it."""
    timeline = Timeline()
    for _, fact in steps:
        if fact.observer_id == FEW_OBSERVERS[0]:
            timeline.add(shared_part(fact), [row_of(fact)])
    plain, surplus = list(timeline), timeline.one_too_many(entries_max, lambda *_: False)
    repeats = [
        seen
        for older, seen, newer in zip(plain, plain[1:], plain[2:], strict=False)
        if len({(each.catalogue, each.completeness) for each in (older, seen, newer)}) == 1
        and older.attributed == seen.attributed
    ]
    if len(plain) <= entries_max:
        assert surplus is None
    else:
        assert surplus == ((repeats[0], False) if repeats else (plain[0], True))


# --- laws of servers that are read when they are asked for: when that is changes no answer --------------------


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
