"""The state that facts add up to: what was in force where and when.

One class serves the registry, for the servers of its partition, and the join, for all of them. State changes only by
``apply`` and ``forget``; both are idempotent and do not depend on the order of facts of different keys. So the records
about a server, the last one of each key, are kept unread until the server is first needed: most of what a process
reads when it starts is not needed for its first calls.

The registry packs repeated lists (``registry.retention``): a run, then tombstones of the single facts it stands for.

1. Every observation of its observer with an offset between the first and the last of a run is a row of it, or is gone.
   So a single fact or its tombstone with such an offset changes nothing, whether it comes before or after its run.
2. A run is only ever written again with more rows at its end, or with those that are left of it.
3. A cut names rows of a run that were folded away since the run was written.

The records of one transaction may come in any order, and compaction may leave any of them out that a later one with the
same key replaces.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from zlib import compress, decompress

from assay_stream.bindings.server import AnswerBound, Answers, ServerBindings
from assay_stream.bindings.sightings import Sightings
from assay_stream.errors import IntegrityError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.control import Signatures
from assay_stream.model.facts import (
    Allowance,
    Catalogue,
    Fact,
    FormerTool,
    ItemFact,
    ItemList,
    Progress,
    RunCut,
    Seen,
    SeenRun,
    ToolFact,
    decode_fact,
    decode_key,
    foreign_fact,
)
from assay_stream.model.record import Record, home_of
from assay_stream.model.state_table import KEY, read_level
from assay_stream.model.wire import FactKey
from assay_stream.schemes.fingerprint import ContentCache

_DIGEST_BYTES = 16
_SHARED = ("tool", "catalogue")


class SharedFacts:
    """Definitions, without their text, and catalogues as they were last read.

    Apart from its server, a fact follows from its record's key and value: a digest of both identifies it. The cache
    saves reading and memory, and changes no result.
    """

    __slots__ = ("_known",)

    def __init__(self, bytes_max: int = DEFAULT_LIMITS.shared_facts_bytes_max) -> None:
        self._known = ContentCache[ToolFact | Catalogue](bytes_max, bytes_max)

    def read(self, key: FactKey, value: bytes) -> Fact:
        """Return the fact that a record holds; a definition comes without its text.

        Raises:
            IntegrityError: as ``decode_fact``.
        """
        if key[0] not in _SHARED:
            return decode_fact(key, value)
        content = blake2b(repr((key[0], *key[2:])).encode(), digest_size=_DIGEST_BYTES)
        content.update(value)
        known = self._known.get(content.digest())
        if known is not None:
            return replace(known, server_id=str(key[1]))
        fact = decode_fact(key, value)
        if isinstance(fact, ToolFact):
            fact = replace(fact, packed="")
        if isinstance(fact, ToolFact | Catalogue):
            self._known.put(content.digest(), fact, len(value))
        return fact


_FASTEST = 1
"""Compression level."""


class Bindings:
    """All servers, and how far the registry has come in each of its input partitions.

    Args:
        keep_definitions: whether definitions are kept beside their fingerprints.
        home_partitions: number of partitions of the binding topic; ``None`` if unknown. Records from another partition
            than a server's own are left out, as a join does not see them.
    """

    def __init__(self, *, keep_definitions: bool = False, home_partitions: int | None = None) -> None:
        self._home_partitions = home_partitions
        self._keep_definitions = keep_definitions
        self._servers: dict[str, ServerBindings] = {}
        self._unread: dict[str, dict[tuple[int, bytes], bytes]] = {}
        """Records about servers not read yet: by partition and key, the value, compressed for a run."""
        bytes_max = DEFAULT_LIMITS.shared_facts_bytes_max
        self._values = ContentCache[bytes](bytes_max, bytes_max)
        self.progress: dict[tuple[str, int], int] = {}
        self._bound, self._table = AnswerBound(), Sightings()
        self._shared_facts = SharedFacts()
        self._holders: dict[str, dict[FactKey, int]] = {}
        """For each server, the partitions whose registry holds a definition, catalogue or set of signatures: a server
        in two partitions has two registries, and what one drops the other may still name. Partitions are bits."""

    def __len__(self) -> int:
        return len(self._servers) + len(self._unread)

    @property
    def observers_at_most(self) -> int:
        """Upper bound of the number of observers of all servers: an unread server counts one per fact."""
        return self._table.observers + sum(map(len, self._unread.values()))

    @property
    def servers(self) -> dict[str, ServerBindings]:
        """All servers, each of them read.

        Raises:
            IntegrityError: as ``find``.
        """
        for server_id in list(self._unread):
            self._read(server_id)
        return self._servers

    def find(self, server_id: str) -> ServerBindings | None:
        """Return what is known of a server, ``None`` for nothing.

        Raises:
            IntegrityError: if the binding topic holds a fact about it that this version does not write.
        """
        found = self._servers.get(server_id)
        if found is None and server_id in self._unread:
            return self._read(server_id)
        return found

    def server(self, server_id: str) -> ServerBindings:
        found = self.find(server_id)
        if found is None:
            found = self._servers[server_id] = ServerBindings(Answers(self._bound), self._table)
        return found

    def take(self, record: Record) -> None:
        """Apply one record of the binding topic, a fact or a tombstone, or keep it until its server is needed.

        Raises:
            ConfigurationError: ``format_too_new`` for the mark of a later format level.
            IntegrityError: if its key is none that this version writes; ``find`` may report a bad value later.
        """
        if record.key == KEY:
            read_level(record)
            return
        key, partition = decode_key(record.key), record.origin.partition
        if key[0] in OF_REGISTRIES and not self._keep_definitions:
            return
        server_id = str(key[1])
        is_progress, count = key[0] == Progress.fact_kind, self._home_partitions
        if count is not None and not is_progress and home_of(server_id, count) != partition:
            return
        if is_progress or server_id in self._servers:
            self._apply_record(key, record.value, partition)
            return
        unread = self._unread.setdefault(server_id, {})
        place = (partition, record.key or b"")
        # The latest record of a key comes last, as compaction would leave it.
        unread.pop(place, None)
        if record.value is not None:
            value = record.value
            # No two lists are equal, so sharing their values would only keep them.
            if key[0] not in OF_LISTS and (known := self._values.get(value)) is not None:
                value = known
            elif key[0] not in OF_LISTS:
                self._values.put(value, value, len(value))
            unread[place] = compress(value, _FASTEST) if key[0] == SeenRun.fact_kind else value
            if len(unread) > DEFAULT_LIMITS.unread_facts_max:
                self._read(server_id)
        elif not unread:
            del self._unread[server_id]

    def _read(self, server_id: str) -> ServerBindings:
        found = self._servers[server_id] = ServerBindings(Answers(self._bound), self._table)
        try:
            for (partition, raw_key), value in self._unread[server_id].items():
                key = decode_key(raw_key)
                self._apply_record(key, decompress(value) if key[0] == SeenRun.fact_kind else value, partition)
        except IntegrityError:
            # A server read in part must never be used.
            self.drop(server_id)
            raise
        del self._unread[server_id]
        return found

    def _apply_record(self, key: FactKey, value: bytes | None, partition: int) -> None:
        # A registry's times and offsets have 63 bits, and the parts of its keys are scalars.
        wrong = (ValueError, IndexError, TypeError) if value is None else OverflowError
        try:
            if value is None:
                self.forget(key, partition=partition)
            else:
                read = decode_fact if self._keep_definitions else self._shared_facts.read
                self.apply(read(key, value), partition=partition)
        except wrong:
            raise foreign_fact() from None

    def apply(self, fact: Fact, *, partition: int = 0) -> None:
        if isinstance(fact, ToolFact | Catalogue | Signatures):
            key, holders = fact.key(), self._holders.setdefault(fact.server_id, {})
            holders[key] = holders.get(key, 0) | 1 << partition
        if isinstance(fact, Progress):
            self.progress[fact.topic, fact.partition] = fact.position
            return
        if fact.fact_kind in OF_REGISTRIES and not self._keep_definitions:
            return
        self.server(fact.server_id).apply(fact, keep_definitions=self._keep_definitions)

    def forget(self, key: FactKey, *, partition: int = 0) -> None:
        server_id = str(key[1])
        of_server = self._holders.get(server_id, {})
        holders = of_server.get(key)
        if holders is not None:
            holders &= ~(1 << partition)
            if holders:
                of_server[key] = holders
                return
            del of_server[key]
        server = self.find(server_id)
        if server is None:
            return
        server.forget(key)
        if not self._keep_definitions and server.is_empty:
            self.drop(server_id)

    def drop(self, server_id: str) -> None:
        """Drop a server, and what is left of its facts."""
        self._servers.pop(server_id).clear()
        self._holders.pop(server_id, None)


OF_LISTS = {fact.fact_kind for fact in (Seen, SeenRun, RunCut)}
OF_REGISTRIES = {fact.fact_kind for fact in (ItemFact, ItemList, Allowance, FormerTool)}
"""Kinds of facts that no answer for a call rests on."""
