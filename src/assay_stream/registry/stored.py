"""Bindings whose facts are in a local store: a server is made of them when it is asked for.

Few servers are in memory at a time; the one asked for least recently goes first. A server is what its facts add up to,
so that it can be dropped between any two records and made again: no answer depends on it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Protocol

import orjson

from assay_stream.limits.files import STATE_SEEN_COST, STATE_SERVER_COST
from assay_stream.model.facts import decode_key, foreign_fact
from assay_stream.model.record import Record
from assay_stream.model.wire import FactKey
from assay_stream.registry.runs import Shelf
from assay_stream.registry.server import ServerBindings
from assay_stream.registry.state import OF_REGISTRIES, Bindings

_OF_NO_SERVER = ""
"""What progress is kept under: an identifier is never empty."""


class FactStore(Protocol):
    """Facts of one partition of the binding topic, by server."""

    @property
    def servers(self) -> set[str]:
        """Every server that has facts."""

    def __contains__(self, server_id: str) -> bool: ...

    def write(self, server_id: str, key: bytes, value: bytes | None, place: int) -> None:
        """Take in a fact of a server, or with ``None`` take it back."""

    def facts(self, server_id: str) -> list[tuple[bytes, bytes]]:
        """Return key and value of all facts of a server, in the order of the log."""


class StoredBindings(Bindings):
    """Bindings that keep a bounded number of servers in memory.

    Args:
        stores: the facts, by partition of the binding topic. They hold what was read before.
        shelf: where older lists of servers in memory are put, ``None`` for memory.
        cost_max: what the servers in memory may cost together, bytes of facts; one may cost more.
    """

    __slots__ = ("_cost", "_cost_max", "_costs", "_kept", "_made_costs", "stores")

    def __init__(self, stores: Mapping[int, FactStore], *, shelf: Shelf | None = None, cost_max: int) -> None:
        super().__init__(shelf=shelf)
        self.stores = stores
        self._kept: OrderedDict[str, ServerBindings] = OrderedDict()
        """The servers in memory, the one asked for least recently first."""
        self._servers = self._kept
        self._costs: dict[str, int] = {}
        self._made_costs: dict[str, int] = {}
        """What each of them cost when it was made."""
        self._cost = 0
        self._cost_max = cost_max
        for partition in stores:
            self._take_in(_OF_NO_SERVER, partition)

    def find(self, server_id: str) -> ServerBindings | None:
        """Return what is known of a server, ``None`` where that is nothing.

        Raises:
            IntegrityError: as ``Bindings.find``, and as the store does.
        """
        found = self._kept.get(server_id)
        if found is None:
            return self._restored(server_id)
        self._kept.move_to_end(server_id)
        return found

    def take(self, record: Record) -> None:
        """Put a record of the binding topic into the store, and apply it to its server if that is in memory.

        Raises:
            IntegrityError: as ``Bindings.take``.
        """
        key, text = decode_key(record.key), record.key or b""
        if key[0] in OF_REGISTRIES:
            return
        server_id = _OF_NO_SERVER if key[0] == "progress" else str(key[1])
        value = record.value
        if key[0] == "tool" and value is not None:
            value = _without_text(value)
        self.stores[record.origin.partition].write(server_id, text, value, record.origin.offset)
        if server_id in self._kept:
            self._add_cost(server_id, _cost_of(key, text, value))
            if self._costs[server_id] > 2 * self._made_costs[server_id]:
                # Facts that were replaced or taken back count, too: what it costs shows when it is made anew.
                self.drop(server_id)
        if server_id in self._kept or server_id == _OF_NO_SERVER:
            self._apply_record(key, value, record.origin.partition)

    def _restored(self, server_id: str) -> ServerBindings | None:
        partitions = [number for number, store in self.stores.items() if server_id in store]
        if not partitions or server_id == _OF_NO_SERVER:
            return None
        made = self._kept[server_id] = self._new_server()
        self._costs[server_id] = 0
        self._add_cost(server_id, STATE_SERVER_COST)
        try:
            for partition in partitions:
                self._take_in(server_id, partition)
        except BaseException:
            # Half of a server must never answer.
            self.drop(server_id)
            raise
        self._made_costs[server_id] = self._costs[server_id]
        while self._cost > self._cost_max and len(self._kept) > 1:
            self.drop(next(iter(self._kept)))
        return made

    def release(self) -> None:
        """Drop every server from memory; the bindings are not used any more."""
        for server_id in list(self._costs):
            self.drop(server_id)

    def _take_in(self, server_id: str, partition: int) -> None:
        for text, value in self.stores[partition].facts(server_id):
            key = decode_key(text)
            if server_id != _OF_NO_SERVER:
                self._add_cost(server_id, _cost_of(key, text, value))
            self._apply_record(key, value, partition)

    def _add_cost(self, server_id: str, cost: int) -> None:
        self._costs[server_id] += cost
        self._cost += cost

    def drop(self, server_id: str) -> None:
        super().drop(server_id)
        self._cost -= self._costs.pop(server_id)
        self._made_costs.pop(server_id, None)


def _cost_of(key: FactKey, text: bytes, value: bytes | None) -> int:
    return STATE_SEEN_COST if key[0] == "seen" else len(text) + len(value or b"")


def _without_text(value: bytes) -> bytes:
    """Return a fact about a definition without the definition: no answer for a call rests on it.

    Raises:
        IntegrityError: it is no fact.
    """
    try:
        return orjson.dumps(orjson.loads(value) | {"packed": ""})
    except (TypeError, ValueError):
        raise foreign_fact() from None
