"""The state that facts add up to: what was in force where and when.

One class serves the registry, for the servers of its partition, and the join, for all of them. State changes only by
``apply`` and ``forget``; both are idempotent and do not depend on the order of facts of different keys.
"""

from __future__ import annotations

from assay_stream.model.control_facts import Signatures
from assay_stream.model.facts import (
    Allowance,
    Announcement,
    Catalogue,
    Fact,
    FormerTool,
    Horizon,
    ItemFact,
    ItemList,
    Progress,
    Rejection,
    Seen,
    ToolFact,
    decode_fact,
    decode_key,
    foreign_fact,
)
from assay_stream.model.fields import Subject
from assay_stream.model.record import Record
from assay_stream.model.wire import FactKey, origin_of_key
from assay_stream.registry.runs import Shelf
from assay_stream.registry.server import AnswerBound, ServerBindings
from assay_stream.registry.shared_facts import SharedFacts


class Bindings:
    """All servers, and how far the registry has come in each of its input partitions.

    Args:
        keep_definitions: whether definitions are kept beside their fingerprints.
        shelf: where older lists are put, ``None`` for memory; not for who keeps definitions.
    """

    __slots__ = ("_answers", "_holders", "_keep_definitions", "_shared_facts", "_shelf", "progress", "servers")

    def __init__(self, *, keep_definitions: bool = False, shelf: Shelf | None = None) -> None:
        self._keep_definitions = keep_definitions
        self.servers: dict[str, ServerBindings] = {}
        self.progress: dict[tuple[str, int], int] = {}
        self._answers = AnswerBound()
        self._shelf = shelf
        self._shared_facts = SharedFacts()
        self._holders: dict[FactKey, int] = {}
        """The partitions whose registry holds a definition, catalogue or set of signatures: a server in two partitions
        has two registries, and what one of them drops the other may still name. Partitions are bits of a number."""

    def server(self, server_id: str) -> ServerBindings:
        found = self.servers.get(server_id)
        if found is None:
            found = self.servers[server_id] = ServerBindings(
                self._answers, packed_lists=not self._keep_definitions, shelf=self._shelf
            )
        return found

    def take(self, record: Record) -> None:
        """Apply one record of the binding topic, a fact or a tombstone.

        Raises:
            IntegrityError: if it is none that this version writes.
        """
        key = decode_key(record.key)
        if record.value is not None:
            read = decode_fact if self._keep_definitions else self._shared_facts.read
            self.apply(read(key, record.value), partition=record.origin.partition)
            return
        try:
            self.forget(key, partition=record.origin.partition)
        except (ValueError, IndexError):
            raise foreign_fact() from None

    def apply(self, fact: Fact, *, partition: int = 0) -> None:
        if isinstance(fact, ToolFact | Catalogue | Signatures):
            key = fact.key()
            self._holders[key] = self._holders.get(key, 0) | 1 << partition
        if isinstance(fact, Progress):
            self.progress[fact.topic, fact.partition] = fact.position
            return
        if isinstance(fact, ItemFact | ItemList | Allowance | FormerTool):
            if self._keep_definitions:
                _apply_own(self.server(fact.server_id), fact)
            return
        server = self.server(fact.server_id)
        server.answers.clear()
        server.partitions.add(partition)
        match fact:
            case ToolFact():
                place = (fact.server_scoped, fact.full)
                server.tools[place] = fact.fingerprint
                if self._keep_definitions:
                    server.keep_definition(place, fact.packed)
            case Catalogue():
                server.list_catalogue(fact)
            case Seen():
                server.see(fact)
                server.endings.has_listed(fact.observer_id)
            case Rejection() | Announcement():
                server.end(fact)
            case Horizon():
                server.lose_history(fact.observer_id, fact.time_us)
            case _:
                server.controls.apply(fact)

    def forget(self, key: FactKey, *, partition: int = 0) -> None:
        holders = self._holders.get(key)
        if holders is not None:
            holders &= ~(1 << partition)
            if holders:
                self._holders[key] = holders
                return
            del self._holders[key]
        kind, *rest = key
        server = self.servers.get(str(rest[0])) if rest else None
        if server is None:
            return
        server.answers.clear()
        if kind == "seen":
            _, observer_id, *place = rest
            server.unsee(str(observer_id), origin_of_key(place))
        elif kind == "catalogue":
            server.drop_catalogue(str(rest[1]))
        elif kind == "tool":
            server.tools.pop((bool(rest[1]), str(rest[2])), None)
            server.keep_definition((bool(rest[1]), str(rest[2])), None)
        elif kind == "item":
            item = (Subject(str(rest[1])), str(rest[2]))
            server.keep_item(item, None)
            server.items.pop(item, None)
        elif kind == "item_list":
            server.drop_item_list((Subject(str(rest[1])), str(rest[2])))
        elif kind == "former_tool":
            server.formers.drop(str(rest[1]))
        elif kind in ("rejection", "announcement"):
            server.unend(origin_of_key(rest[-3:]))
        else:
            server.controls.forget(key)


def _apply_own(server: ServerBindings, fact: ItemFact | ItemList | Allowance | FormerTool) -> None:
    """Apply what only a registry asks about: no answer for a call rests on it."""
    match fact:
        case Allowance():
            server.allowance = fact
        case FormerTool():
            server.formers.keep(fact)
        case ItemFact():
            server.keep_item((fact.subject, fact.full), fact.packed)
        case _:
            server.list_items(fact)
