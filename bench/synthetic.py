"""State of any size, quickly: what the registry says of one server, said of many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate
from random import Random

from assay_stream.model.evidence import Producer
from assay_stream.model.facts import Seen, decode_fact, decode_key
from assay_stream.model.record import Origin, Record, Role
from assay_stream.registry.retention import pack_repeats
from assay_stream.registry.step import Registry, Step
from tests.support import engine
from tests.support.engine import EngineState
from tests.support.fleet import START, a_call_by, a_listing, server_name

Fact = tuple[bytes, bytes]

_SERVER = b'"%s"' % server_name(0).encode()
_OBSERVER = b'"observer-0"'
_ID_PREFIX = b'"00000000-'
_HOUR_US = 3_600_000_000
_CALLED = START + timedelta(days=30)
"""Later than the last of as many hourly lists as are kept."""


def facts(servers: int, observers: int, lists: int = 1) -> Iterator[Fact]:
    """Yield keys and values of the binding topic of a fleet whose servers have three tools each.

    The registry works out the facts of one server; those of the others differ in their keys, for values name no
    server.

    Args:
        servers: how many servers.
        observers: how many observers each of them has.
        lists: how often each of these has listed the same tools, once an hour.
    """
    state = EngineState(producer=Producer(version="bench"))
    _, key, value = a_listing(0, 0, 0, 0, START)
    record = Record(Role.SNAPSHOTS, Origin("mcp.tools.list", 0, 0), key, value)
    outputs = engine.process(state, record)
    written = [(out.key, out.value) for out in outputs if out.role is Role.BINDINGS]
    shared = [(key, value) for key, value in written if key and value and _OBSERVER not in key]
    ((seen_key, seen_value),) = [(key, value) for key, value in written if key and value and _OBSERVER in key]
    lists_of_one = list(_compacted(seen_key, seen_value, lists).items())
    for server in range(servers):
        name = b'"%s"' % server_name(server).encode()
        for key, value in shared:
            yield key.replace(_SERVER, name), value
        for observer in range(observers):
            observer_name, prefix = b'"observer-%d"' % observer, b'"%08x-' % (server * observers + observer)
            for key, value in lists_of_one:
                yield (key.replace(_SERVER, name).replace(_OBSERVER, observer_name), value.replace(_ID_PREFIX, prefix))


def _compacted(key: bytes, value: bytes, lists: int) -> dict[bytes, bytes]:
    """Return what compaction leaves of the facts about an observer's lists, from the fact of its first one."""
    first, registry = decode_fact(decode_key(key), value), Registry(producer=Producer(version="bench"))
    assert isinstance(first, Seen)
    left: dict[bytes, bytes] = {}
    for number in range(lists):
        seen = replace(
            first,
            origin=first.origin._replace(offset=number),
            time_us=first.time_us + number * _HOUR_US,
            snapshot_id=_snapshot_id(0, number),
        )
        step = Step(registry, Record(Role.SNAPSHOTS, seen.origin, b"", b""))
        step.publish(seen)
        pack_repeats(step, registry.bindings.server(seen.server_id).observers[seen.observer_id], seen)
        for output in step.outputs:
            left.pop(output.key or b"", None)
            if output.value is not None:
                left[output.key or b""] = output.value
    return left


def calls(servers: int, observers: int, count: int, *, zipf_exponent: float | None = None) -> Iterator[bytes]:
    """Yield calls of that fleet; half of them name their snapshot.

    Args:
        servers: how many servers.
        observers: how many observers each has.
        count: how many calls.
        zipf_exponent: how skewed the choice of servers is; ``None``: not at all.
    """
    choose = Random(11)
    weights = None
    if zipf_exponent is not None:
        weights = list(accumulate((rank + 1) ** -zipf_exponent for rank in range(servers)))
    chosen = choose.choices(range(servers), cum_weights=weights, k=count)
    for number, server in enumerate(chosen):
        observer = choose.randrange(observers)
        named = _snapshot_id(server * observers + observer, 0) if choose.random() < 0.5 else None
        yield a_call_by(server, observer, number, _CALLED, named)[2]


def _snapshot_id(observer: int, number: int) -> str:
    """Return the id of one list of one observer of a server, as long as those that the tap makes up."""
    return f"{observer:08x}-0000-4000-8000-{number:012x}"
