"""Laws of the binding rules, over random histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay_stream.bindings.as_of import Binding, bind, span_of
from assay_stream.model.evidence import Scope, Unbound
from assay_stream.model.facts import Announcement, Rejection, Seen
from tests.support.facts import SERVER, a_catalogue, announcement, bindings_with, rejection, seen

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
    """No invention: a bound digest stands in a catalogue that was observed at or before the call."""
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
    """What is remembered for other calls is what each of them would be told."""
    bindings = bindings_with(*CATALOGUES.values())
    for fact in facts:
        bindings.apply(fact)
    server = bindings.server(SERVER)

    def answer(at_us: int) -> Binding:
        return bind(server, tool_name="t", observer_id=observer_id, snapshot_id=None, time_us=at_us)

    found = answer(time_us)
    since_us, until_us = span_of(server, found, observer_id=observer_id, time_us=time_us)
    for other_us in range(max(since_us, 0), min(until_us, 14)):
        assert answer(other_us) == found
