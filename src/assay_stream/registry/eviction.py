"""Eviction: which servers and observers a registry forgets, so that made-up names do not fill its memory.

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

from collections.abc import Iterator
from heapq import nsmallest

from assay_stream.bindings.server import ServerBindings
from assay_stream.model.facts import encode_key
from assay_stream.model.record import Output, Record, Role
from assay_stream.model.wire import FactKey
from assay_stream.registry.folding import forget_observer
from assay_stream.registry.ledger import Registry
from assay_stream.registry.name_claims import claims_between
from assay_stream.registry.verdicts import changed_verdicts

_OUTPUTS_MAX = 1_000
"""Records after which a step evicts no more than it must. Below it, a step frees some extra room so that the search is
rare."""
_OBSERVERS_MAX = 256
"""Observers beyond the surplus that a step evicts, for the same reason."""


def evict(registry: Registry, record: Record, server_id: str, time_us: int) -> list[Output]:
    """Evict surplus servers after a record has added one."""
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


def evict_observers(registry: Registry, record: Record, time_us: int) -> list[Output]:
    """Evict surplus observers after a record has added one."""
    observers_max = registry.limits.observers_max
    # To read all servers takes seconds after a restart.
    if registry.bindings.observers_at_most <= observers_max:
        return []
    servers = registry.bindings.servers
    surplus = registry.bindings.observers_at_most - observers_max
    if surplus <= 0:
        return []
    standings = (
        (len(timeline), timeline.latest.origin.offset, server_id, observer_id)
        for server_id, server in servers.items()
        for observer_id, timeline in server.observers.items()
        if timeline.latest is not None and timeline.latest.origin != record.origin
    )
    evicted: dict[str, list[str]] = {}
    for _, _, server_id, observer_id in nsmallest(surplus + min(observers_max // 64, _OBSERVERS_MAX), standings):
        evicted.setdefault(server_id, []).append(observer_id)
    outputs: list[Output] = []
    for server_id, names in evicted.items():
        server = servers[server_id]
        if len(names) == len(server.observers) and not server.controls.is_decided:
            outputs += _evicted(registry, record, server_id, server, time_us)
            continue
        verdicts = registry.verdicts(server_id, server)
        server.fleet.forget_changes()
        for observer_id in names:
            outputs += forget_observer(registry.ledger, record, server, server_id, observer_id)
        gone = {place: False for place, is_offered in server.fleet.changes() if not is_offered}
        claims = claims_between(gone, {}, server_id, time_us=time_us, origin=record.origin)
        outputs += [claim.output() for claim in claims]
        outputs += changed_verdicts(record, server_id, verdicts, registry.revised_verdicts(server_id, server))
        server.drop_small_indexes()
    return [output._replace(label="fact:evicted") if output.role is Role.BINDINGS else output for output in outputs]


def _standing(server: ServerBindings) -> tuple[int, int, int]:
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
    """Yield the keys of all facts of a server without decisions."""
    yield from (("tool", server_id, *place) for place in server.tools)
    yield from (("item", server_id, subject.value, full) for subject, full in server.items)
    for facts in (server.catalogues, server.item_lists, server.controls.signatures):
        yield from (fact.key() for fact in facts.values())
    yield from (fact.key() for fact in (*server.formers, *server.endings))
    if server.allowance is not None:
        yield server.allowance.key()
    for observer_id, timeline in server.observers.items():
        yield from timeline.keys(server_id, observer_id)
