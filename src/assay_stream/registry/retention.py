"""What the registry gives up to keep its state within bounds: packed repeats, folded history, evicted servers.

Packing: repeated lists of an observer become one fact, in which each of them is a row. Once at least
``seen_run_rows_min`` of an observer's latest observations are single facts that repeat each other, a run replaces
them: the run, and tombstones for the single facts, are written in the transaction of the list that completes the
number. It joins the preceding run where both repeat each other and fit into one. What is packed follows from the state
alone, so that a restart continues as before.

Folding: see ``bindings.timeline``. Eviction:

1. Beyond ``servers_max`` servers with lists or refused records, those with the fewest lists go first, among these the
   ones seen longest ago. An attacker has to list each made-up server more often than the fleet lists its own to
   displace one of these.
2. A server with any operator decision or discovered key stays, and so does the one whose record is being applied.
3. Evictions follow from the facts that are kept, never from a clock or other state of a process: a restart and a replay
   evict the same.
4. Every fact of an evicted server gets a tombstone, and its claims to names are withdrawn. It comes back as new.
5. Beyond ``observers_max`` observers of all servers, those with the fewest lists go in the same order, with what only
   they were shown. Decisions about a server stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from heapq import nsmallest

from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.sightings import run_fact, shared_part
from assay_stream.bindings.timeline import Timeline
from assay_stream.limits import Limits
from assay_stream.model.facts import Catalogue, FormerTool, Horizon, Rejection, RunCut, Seen, SeenRun, encode_key
from assay_stream.model.fields import ITEM_SUBJECTS
from assay_stream.model.record import Role
from assay_stream.model.wire import FactKey
from assay_stream.registry.name_claims import claims_between
from assay_stream.registry.step import Step, changed_verdicts


def pack_repeats(step: Step, timeline: Timeline, seen: Seen) -> None:
    count = _packable(timeline, seen, step.limits)
    if count < step.limits.seen_run_rows_min:
        return
    table, together = timeline.table, count + _joined(timeline, count, step.limits)
    tail, entries = ([table.seen(number) for number in timeline.numbers[-rows:]] for rows in (count, together))
    key = table.run_of(timeline.numbers[-together]) or entries[0].origin
    step.publish(run_fact(key, entries))
    step.retract(*[packed.key() for packed in tail])


def take_away(step: Step, timeline: Timeline, folded: Seen) -> None:
    """Retract an observation, whether it is a fact of its own or a row of a run."""
    number = timeline.row_at(folded.origin)
    run = None if number is None else timeline.table.run_of(number)
    if number is None or run is None:
        step.retract(folded.key())
        return
    gone = timeline.cuts.get(run, ())
    rows = timeline.table.count_alike(number) + len(gone)
    cut = RunCut(
        server_id=folded.server_id,
        observer_id=folded.observer_id,
        origin=run,
        gone=tuple(sorted({*gone, folded.origin.offset - run.offset})),
    )
    if rows == 1:
        step.retract((SeenRun.fact_kind, *cut.key()[1:]))
        return
    step.publish(cut)
    if 2 * len(cut.gone) >= rows:
        # Rewritten with the rows that are left: a row is rewritten once per halving of its run.
        left = [timeline.table.seen(number) for number in timeline.in_run(run)]
        step.publish(run_fact(run, left))
        step.retract(cut.key())


def _packable(timeline: Timeline, seen: Seen, limits: Limits) -> int:
    """Return how many of the latest observations a run may replace: none where ``seen`` is not the latest.

    No other observation of the observer may have an offset among theirs, as one dated ahead may.
    """
    table, numbers = timeline.table, timeline.numbers
    if len(numbers) < limits.seen_run_rows_min or table.position(numbers[-1]) != seen.position:
        return 0
    kind, tail, before = table.kinds[numbers[-1]], list[int](), seen.origin.offset + 1
    for number in reversed(numbers[-limits.seen_run_rows_max :]):
        offset = table.offsets[number]
        if table.kinds[number] != kind or offset >= before:
            break
        tail.append(offset)
        before = offset
    if len(tail) < limits.seen_run_rows_min:
        return 0
    highest = _highest_before(timeline, len(tail))
    return sum(offset > highest for offset in tail)


def _highest_before(timeline: Timeline, count: int) -> int:
    table, numbers = timeline.table, timeline.numbers
    place = table.origin(numbers[-1])[:2]
    return max((table.offsets[each] for each in numbers[:-count] if table.shared(each).origin[:2] == place), default=-1)


def _joined(timeline: Timeline, count: int, limits: Limits) -> int:
    """Return the rows of the preceding run if it can absorb the latest observations, else 0."""
    table, before = timeline.table, timeline.numbers[:-count]
    run = table.run_of(before[-1]) if before else None
    rows = table.count_alike(before[-1]) if before else 0
    if run is None or run in timeline.cuts or rows + count > limits.seen_run_rows_max:
        return 0
    own, latest = table.shared(before[-1]), table.shared(timeline.numbers[-1])
    # An observation inserted among them stays a fact of its own.
    is_last = all(table.kinds[each] == table.kinds[before[-1]] for each in before[-rows:])
    if not is_last or replace(own, origin=latest.origin) != latest:
        return 0
    return rows if _highest_before(timeline, count + rows) < table.offsets[before[-rows]] else 0


_LATEST_KEPT = 2
"""Observations that stay however large they are: the latest, and the one it is compared with."""


def fold(step: Step, server: ServerBindings, seen: Seen) -> None:
    """Fold surplus observations of the observer's timeline, and drop what nothing refers to any more."""
    timeline = server.observers[seen.observer_id]
    while True:
        entries_max = step.limits.timeline_entries_max
        if len(timeline) > _LATEST_KEPT and server.definitions_bytes > step.limits.server_definitions_bytes_max:
            entries_max = min(entries_max, len(timeline) - 1)
        surplus = timeline.one_too_many(entries_max, server.endings.parts)
        if surplus is None:
            break
        folded, history_lost = surplus
        take_away(step, timeline, folded)
        if history_lost:
            oldest = next(iter(timeline))
            horizon_us = max(oldest.time_us, timeline.horizon_us or 0)
            step.publish(Horizon(server_id=seen.server_id, observer_id=seen.observer_id, time_us=horizon_us))
            # No answer rests on an announcement before the first list that is kept.
            announced = server.endings.announcements_of(seen.observer_id)
            step.retract(*[end.key() for end in announced if end.position < oldest.position])
        _drop_unused(step, server, folded)


def forget_observer(step: Step, server: ServerBindings, server_id: str, observer_id: str) -> None:
    """Retract an observer's observations and their endings, and what nothing refers to any more."""
    timeline = server.observers[observer_id]
    seen_once = {shared_part(seen): seen for seen in timeline}
    keys = [*timeline.keys(server_id, observer_id), *(end.key() for end in server.endings.of(observer_id))]
    step.retract(*sorted(keys, key=encode_key))
    for folded in seen_once.values():
        _drop_unused(step, server, folded)


def merge_rejections(step: Step, server: ServerBindings, observer_id: str | None) -> None:
    """Merge the oldest two rejections into one that ends what either did: nothing comes into force again."""
    while len(kept := server.endings.rejections_of(observer_id)) > step.limits.rejections_max:
        oldest, second = kept[:2]
        step.retract(oldest.key())
        step.publish(replace(second, time_us=oldest.time_us))


def fold_unlisted(step: Step, server: ServerBindings) -> None:
    """Once too many observers without a list are remembered, replace the earliest ones by one rejection.

    Made-up observers can then neither fill the memory nor get an observer without a list bound.
    """
    endings, limit = server.endings, step.limits.unlisted_observers_max
    surplus = len(endings.without_list) - limit
    if surplus <= 0:
        return
    # More than necessary, so that the search for the earliest is rare.
    surplus += limit // 8
    earliest = sorted(endings.without_list, key=lambda name: max(end.origin for end in endings.of(name)))[:surplus]
    folded = [end for name in earliest for end in endings.of(name)]
    gone = folded if endings.unlisted is None else [*folded, endings.unlisted]
    step.retract(*[end.key() for end in gone])
    stands_for_all = Rejection(
        server_id=folded[0].server_id,
        origin=folded[0].origin,
        time_us=min(end.time_us for end in gone),
        code="too_many_observers",
        unlisted=True,
    )
    step.publish(stands_for_all)


def fold_discoveries(step: Step, server: ServerBindings, domain: str) -> None:
    """Fold away surplus discoveries of a domain, and signature checks against a key that is no longer known.

    The oldest between two with the same result goes first, which changes no answer; else the oldest.
    """
    controls = server.controls
    if len(controls.discoveries[domain]) <= step.limits.discoveries_max:
        return
    while len(history := controls.discoveries[domain]) > step.limits.discoveries_max:
        repeated = (
            found
            for older, found, newer in zip(history, history[1:], history[2:], strict=False)
            if older.says_the_same(found) and found.says_the_same(newer)
        )
        step.retract(next(repeated, history[0]).key())
    known = controls.key_documents()
    step.retract(*sorted(held.key() for held in controls.checked.values() if held.fingerprint not in known))


def is_redundant(server: ServerBindings, rejection: Rejection) -> bool:
    """Return True if nothing it may concern was observed since the last one like it, so that it changes no answer."""
    kept = server.endings.rejections_of(rejection.observer_id)
    if not kept or kept[-1].time_us > rejection.time_us:
        return False
    if rejection.observer_id is None:
        return server.observations.all_before(kept[-1])
    return all(kept[-1].is_after(seen) for timeline in server.concerned(rejection) for seen in timeline)


def _drop_unused(step: Step, server: ServerBindings, folded: Seen) -> None:
    """Retract the lists and signatures of an observation that no other has, and the definitions only in these."""
    is_used, fleet, controls = server.observations.uses, server.fleet, server.controls
    catalogue, signatures = server.catalogues.get(folded.catalogue), controls.signatures.get(folded.signatures or "")
    if catalogue is not None and not is_used("catalogue", catalogue.digest):
        step.retract(catalogue.key())
        unused = {(catalogue.server_scoped, full) for _, full in catalogue.definitions()}
        unused |= _keep_formers(step, server, catalogue, folded.time_us)
        formers = {tool.place for tool in server.formers.values()}
        gone = sorted(place for place in (unused & server.tools.keys()) - formers if place not in fleet.tool_uses)
        step.retract(*[("tool", catalogue.server_id, *place) for place in gone])
    if signatures is not None and not is_used("signatures", signatures.digest):
        checked = [held.key() for held in controls.checked.values() if held.signatures == signatures.digest]
        step.retract(signatures.key(), *sorted(checked))
    for subject in ITEM_SUBJECTS:
        items = server.item_lists.get((subject, folded.listed(subject) or ""))
        if items is not None and not is_used(subject, items.digest):
            step.retract(items.key())
            fulls = sorted({full for _, full in items.items if (subject, full) not in fleet.item_uses})
            step.retract(*[("item", folded.server_id, subject.value, full) for full in fulls])


def _keep_formers(step: Step, server: ServerBindings, catalogue: Catalogue, time_us: int) -> set[tuple[bool, str]]:
    """Keep the definitions of names that went with a catalogue, and return those that are no longer kept."""
    lost = [name for name in sorted(catalogue.tools) if name not in server.fleet.known]
    released: set[tuple[bool, str]] = set()
    for name in lost[: step.limits.former_tools_max]:
        place = (catalogue.server_scoped, catalogue.definitions_of(name)[0])
        older = server.formers.get(name)
        if older is not None:
            released.add(older.place)
        if place in server.packed:
            former = FormerTool(
                server_id=catalogue.server_id,
                tool_name=name,
                server_scoped=place[0],
                full=place[1],
                size=len(server.packed[place]),
                time_us=time_us,
            )
            step.publish(former)
    surplus = surplus_formers(server.formers.values(), step.limits) if lost else []
    step.retract(*[tool.key() for tool in surplus])
    return released.union(tool.place for tool in surplus)


def surplus_formers(formers: Collection[FormerTool], limits: Limits) -> list[FormerTool]:
    count, size = len(formers), sum(tool.size for tool in formers)
    surplus: list[FormerTool] = []
    for tool in sorted(formers, key=lambda one: (one.time_us, one.tool_name)):
        if count <= limits.former_tools_max and size <= limits.former_tools_bytes_max:
            break
        surplus.append(tool)
        count, size = count - 1, size - tool.size
    return surplus


_OUTPUTS_MAX = 1_000
"""Records after which a step evicts no more than it must. Below it, a step frees some extra room so that the search is
rare."""
_OBSERVERS_MAX = 256
"""Observers beyond the surplus that a step evicts, for the same reason."""


def evict(step: Step, server_id: str, time_us: int) -> None:
    bindings, servers_max = step.bindings, step.limits.servers_max
    own = bindings.find(server_id)
    if len(bindings) <= servers_max or own is None or sum(_standing(own)[:2]) != 1:
        return
    standings = [(_standing(server), name) for name, server in bindings.servers.items()]
    surplus = sum(any(standing[:2]) for standing, _ in standings) - servers_max
    spare, before = servers_max // 64 if surplus > 0 else 0, len(step.outputs)
    for (lists, ends, _), name in sorted(standings):
        if surplus <= 0 and (surplus <= -spare or len(step.outputs) - before >= _OUTPUTS_MAX):
            break
        server = bindings.servers[name]
        if name != server_id and (lists or ends) and not server.controls.is_decided:
            _evict(step, name, server, time_us)
            surplus -= 1


def evict_observers(step: Step, time_us: int) -> None:
    registry, bindings, observers_max = step.registry, step.bindings, step.limits.observers_max
    # Reading all servers takes seconds after a restart.
    if bindings.observers_at_most <= observers_max:
        return
    servers, before = bindings.servers, len(step.outputs)
    surplus = bindings.observers_at_most - observers_max
    if surplus <= 0:
        return
    standings = (
        (len(timeline), timeline.table.offsets[timeline.numbers[-1]], server_id, observer_id)
        for server_id, server in servers.items()
        for observer_id, timeline in server.observers.items()
        if timeline and timeline.table.origin(timeline.numbers[-1]) != step.record.origin
    )
    evicted: dict[str, list[str]] = {}
    for _, _, server_id, observer_id in nsmallest(surplus + min(observers_max // 64, _OBSERVERS_MAX), standings):
        evicted.setdefault(server_id, []).append(observer_id)
    for server_id, names in evicted.items():
        server = servers[server_id]
        if len(names) == len(server.observers) and not server.controls.is_decided:
            _evict(step, server_id, server, time_us)
            continue
        verdicts = registry.verdicts(server_id, server)
        server.fleet.forget_changes()
        for observer_id in names:
            forget_observer(step, server, server_id, observer_id)
        gone = {place: False for place, is_offered in server.fleet.changes() if not is_offered}
        claims = claims_between(gone, {}, server_id, (time_us, step.record.origin))
        step.outputs += [claim.output() for claim in claims]
        step.outputs += changed_verdicts(step.record, server_id, verdicts, registry.revised_verdicts(server_id, server))
        server.drop_small_indexes()
    _mark_evicted(step, before)


def _mark_evicted(step: Step, first: int) -> None:
    """Count the facts published and retracted from an output on as evicted."""
    for place, output in enumerate(step.outputs[first:], first):
        if output.role is Role.BINDINGS:
            step.outputs[place] = output._replace(label="fact:evicted")


def _standing(server: ServerBindings) -> tuple[int, int, int]:
    latest = [timeline.latest for timeline in server.observers.values()]
    offsets = [fact.origin.offset for fact in (*latest, *server.endings) if fact is not None]
    lists = sum(map(len, server.observers.values()))
    return lists, len(offsets) - sum(seen is not None for seen in latest), max(offsets, default=-1)


def _evict(step: Step, server_id: str, server: ServerBindings, time_us: int) -> None:
    offered = {(name, full): False for name in sorted(server.fleet.known) for full in server.fleet.offers(name)}
    claims = claims_between(offered, {}, server_id, (time_us, step.record.origin))
    step.outputs += [claim.output() for claim in claims]
    keys = sorted(_keys(server_id, server), key=encode_key)
    # Before retracting its facts: otherwise each retraction would update the indexes.
    step.registry.forget(server_id)
    first = len(step.outputs)
    step.retract(*keys)
    _mark_evicted(step, first)


def _keys(server_id: str, server: ServerBindings) -> Iterator[FactKey]:
    """Yield the keys of all facts of a server without decisions."""
    yield from (("tool", server_id, *place) for place in server.tools)
    yield from (("item", server_id, subject.value, full) for subject, full in server.items)
    for facts in (server.catalogues, server.item_lists, server.controls.signatures):
        yield from (fact.key() for fact in facts.values())
    yield from (fact.key() for fact in (*server.formers.values(), *server.endings))
    if server.allowance is not None:
        yield server.allowance.key()
    for observer_id, timeline in server.observers.items():
        yield from timeline.keys(server_id, observer_id)
