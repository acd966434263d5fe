"""Eviction: which servers a registry forgets, so that names which somebody made up do not fill its memory.

1. Beyond ``servers_max`` servers with lists or refused records, those with the fewest lists go first, of these the ones
   that were seen longest ago. Whoever makes servers up has to list each more often than the fleet lists its own before
   it displaces one of these.
2. A server that anything was decided about stays, and so does the one whose record is being applied.
3. What goes follows from the facts that are kept, never from a clock or from what a process remembers beside them: a
   restart and a replay evict the same.
4. Every fact of a server that goes gets a tombstone, and its claims to names are withdrawn. It comes back as new.
"""

from __future__ import annotations

from collections.abc import Iterator

from assay_stream.model.facts import encode_key
from assay_stream.model.record import Output, Record
from assay_stream.model.wire import FactKey
from assay_stream.registry.ledger import Registry
from assay_stream.registry.name_claims import claims_between
from assay_stream.registry.server import ServerBindings

_OUTPUTS_MAX = 1_000
"""Records after which a step evicts no more than it must. Otherwise it makes room for some, so that the search is
rare."""


def evict(registry: Registry, record: Record, server_id: str, time_us: int) -> list[Output]:
    """Evict what is too much once a record has brought a new server."""
    bindings, servers_max = registry.bindings, registry.limits.servers_max
    own = bindings.find(server_id)
    if len(bindings) <= servers_max or own is None or sum(_standing(own)[:2]) != 1:
        return []
    standings = [(_standing(server), name) for name, server in bindings.servers.items()]
    surplus = sum(any(standing[:2]) for standing, _ in standings) - servers_max
    spare = servers_max // 64 if surplus > 0 else 0
    outputs: list[Output] = []
    for (lists, ends, _), name in sorted(standings):
        if surplus <= 0 and (surplus <= -spare or len(outputs) >= _OUTPUTS_MAX):
            break
        server = bindings.servers[name]
        if name != server_id and (lists or ends) and not server.controls.is_decided:
            outputs += _evicted(registry, record, name, server, time_us)
            surplus -= 1
    return outputs


def _standing(server: ServerBindings) -> tuple[int, int, int]:
    """Return how many lists and how many refusals and announcements are kept, and the offset of the latest."""
    latest = [timeline.latest for timeline in server.observers.values()]
    offsets = [fact.origin.offset for fact in (*latest, *server.endings) if fact is not None]
    lists = sum(map(len, server.observers.values()))
    return lists, len(offsets) - sum(seen is not None for seen in latest), max(offsets, default=-1)


def _evicted(
    registry: Registry, record: Record, server_id: str, server: ServerBindings, time_us: int
) -> Iterator[Output]:
    offered = {(name, full): False for name in server.fleet.names_known() for full in server.fleet.offers(name)}
    for claim in claims_between(offered, {}, server_id, time_us=time_us, origin=record.origin):
        yield claim.output()
    keys = sorted(_keys(server_id, server), key=encode_key)
    # Before its facts are taken back: else each of them would bring its indexes up to date.
    registry.forget(server_id)
    for output in registry.ledger.retract(record, *keys):
        yield output._replace(label="fact:evicted")


def _keys(server_id: str, server: ServerBindings) -> Iterator[FactKey]:
    """Yield the keys of all facts of a server that nothing was decided about."""
    yield from (("tool", server_id, *place) for place in server.tools)
    yield from (("item", server_id, subject.value, full) for subject, full in server.items)
    for facts in (server.catalogues, server.item_lists, server.controls.signatures):
        yield from (fact.key() for fact in facts.values())
    yield from (fact.key() for fact in (*server.formers, *server.endings))
    if server.allowance is not None:
        yield server.allowance.key()
    for observer_id, timeline in server.observers.items():
        if timeline.horizon_us is not None:
            yield "horizon", server_id, observer_id
        yield from (seen.key() for seen in timeline if timeline.run_of(seen.origin) is None)
        for ranges in timeline.runs:
            yield from ((kind, server_id, observer_id, *ranges.place, offset) for kind, offset in ranges.facts())
