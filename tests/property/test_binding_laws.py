"""Laws of the binding rules, over random histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay_stream.core.binding import Scope, Unbound, bind
from assay_stream.core.facts import Rejection, Seen
from tests.support.facts import SERVER, a_catalogue, bindings_with, rejection, seen

CATALOGUES = {
    "one": a_catalogue("one", {"t": "a"}),
    "two": a_catalogue("two", {"t": "b", "u": "c"}),
    "none": a_catalogue("none", {"u": "c"}),
}
TIMES = st.integers(min_value=0, max_value=12)


@st.composite
def histories(draw: st.DrawFn) -> list[Seen | Rejection]:
    """Observations and rejections at few distinct times, so that ties are common."""
    count = draw(st.integers(min_value=0, max_value=12))
    facts: list[Seen | Rejection] = []
    for offset in range(count):
        time_us = draw(TIMES)
        if draw(st.integers(min_value=0, max_value=5)) == 0:
            facts.append(rejection(time_us, offset=offset))
        else:
            facts.append(
                seen(
                    draw(st.sampled_from(["alice", "bob", "carol"])),
                    time_us,
                    draw(st.sampled_from(sorted(CATALOGUES))),
                    offset=offset,
                    completeness=draw(st.sampled_from(["complete", "partial", "unknown"])),
                )
            )
    return facts


def naive_bind(
    facts: list[Seen | Rejection], observer_id: str, snapshot_id: str | None, time_us: int
) -> tuple[Scope | None, str | None, Unbound | None]:
    """The rules of the design, as a scan over the whole history: scope, digest, reason."""

    def tell(entry: Seen) -> tuple[str | None, Unbound | None]:
        full = CATALOGUES[entry.catalogue].tools.get("t")
        if full is not None:
            return full.replace("full:", "v1:"), None
        return None, Unbound.NOT_LISTED if entry.completeness == "complete" else Unbound.NOT_OBSERVED

    sightings = [fact for fact in facts if isinstance(fact, Seen)]
    for entry in sightings:
        if entry.snapshot_id == snapshot_id:
            return (Scope.EXACT, *tell(entry))
    past = [fact for fact in facts if fact.time_us <= time_us]
    rejections = [fact.origin.offset for fact in past if isinstance(fact, Rejection)]
    since = max(rejections, default=-1)
    latest: dict[str, Seen] = {}
    for entry in sorted((fact for fact in past if isinstance(fact, Seen)), key=lambda fact: fact.position):
        latest[entry.observer_id] = entry
    in_force = {name: entry for name, entry in latest.items() if entry.origin.offset > since}
    if observer_id in in_force:
        return (Scope.OBSERVER, *tell(in_force[observer_id]))
    if not in_force:
        return None, None, Unbound.SNAPSHOT_REJECTED if rejections else Unbound.NOT_OBSERVED
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
    st.none() | st.integers(0, 14),
)
def test_binding_is_the_naive_scan_in_any_order_of_arrival(
    facts: list[Seen | Rejection], random: object, observer_id: str, time_us: int, named: int | None
) -> None:
    """The join gives what a scan of the whole history gives, however the history arrived, with duplicates."""
    shuffled = facts + facts[:3]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    bindings = bindings_with(*CATALOGUES.values())
    for fact in shuffled:
        bindings.apply(fact)
    snapshot_id = None if named is None else f"snapshot-{named}"
    found = bind(
        bindings.servers.get(SERVER),
        tool_name="t",
        observer_id=observer_id,
        snapshot_id=snapshot_id,
        time_us=time_us,
    )
    digest = found.fingerprint.definition_digest() if found.fingerprint else None
    assert (found.scope, digest, found.unbound) == naive_bind(facts, observer_id, snapshot_id, time_us)


@given(histories(), st.sampled_from(["alice", "bob", "dora"]), TIMES)
def test_a_digest_is_one_that_was_observed(facts: list[Seen | Rejection], observer_id: str, time_us: int) -> None:
    """No invention: a bound digest stands in a catalogue that was observed at or before the call."""
    bindings = bindings_with(*CATALOGUES.values())
    for fact in facts:
        bindings.apply(fact)
    found = bind(
        bindings.servers.get(SERVER),
        tool_name="t",
        observer_id=observer_id,
        snapshot_id=None,
        time_us=time_us,
    )
    if found.unbound is None:
        assert found.seen in facts
        assert found.seen.time_us <= time_us
        assert found.fingerprint.full == CATALOGUES[found.seen.catalogue].tools["t"]
    else:
        assert found.fingerprint is None
