"""State of any size, quickly: what the registry says of one server, said of many."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import accumulate
from random import Random

from assay_stream import engine
from assay_stream.engine import EngineState
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Origin, Record, Role
from tests.support.fleet import START, a_call_by, a_listing, server_name

Fact = tuple[bytes, bytes]

_SERVER = b'"%s"' % server_name(0).encode()
_OBSERVER = b'"observer-0"'
_START_US = int(START.timestamp()) * 1_000_000
_TIME = b'"time_us":%d' % _START_US
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
    for server in range(servers):
        name = b'"%s"' % server_name(server).encode()
        for key, value in shared:
            yield key.replace(_SERVER, name), value
        of_server = seen_key.replace(_SERVER, name)
        for observer in range(observers):
            for number in range(lists):
                first = server * observers + observer
                yield (
                    of_server.replace(_OBSERVER, b'"observer-%d"' % observer).replace(b",0]", b",%d]" % number),
                    seen_value.replace(b'"snapshot-0"', b'"%s"' % _snapshot_id(first, number).encode()).replace(
                        _TIME, b'"time_us":%d' % (_START_US + number * _HOUR_US)
                    ),
                )


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
