"""Equal definitions and catalogues are read once and kept once, whichever servers they stand on.

What a record says beside its server follows from its key and its value: a digest of both names it. What is kept here
saves reading and memory and changes nothing that is read.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.definition_facts import Catalogue, ToolFact
from assay_stream.model.facts import Fact, decode_fact
from assay_stream.model.wire import FactKey

_DIGEST_BYTES = 16
_SHARED = ("tool", "catalogue")


class SharedFacts:
    """Definitions, without their text, and catalogues as they were last read.

    Args:
        bytes_max: length of the records that are remembered together. Where there is no room, all are forgotten.
    """

    __slots__ = ("_bytes", "_bytes_max", "_known")

    def __init__(self, bytes_max: int = DEFAULT_LIMITS.shared_facts_bytes_max) -> None:
        self._known: dict[bytes, ToolFact | Catalogue] = {}
        self._bytes = 0
        self._bytes_max = bytes_max

    def read(self, key: FactKey, value: bytes) -> Fact:
        """Return the fact that a record holds; a definition comes without its text.

        Raises:
            IntegrityError: as ``decode_fact``.
        """
        if key[0] not in _SHARED:
            return decode_fact(key, value)
        content = blake2b(repr((key[0], *key[2:])).encode(), digest_size=_DIGEST_BYTES)
        content.update(value)
        digest = content.digest()
        known = self._known.get(digest)
        if known is not None:
            return _of_server(known, str(key[1]))
        fact = decode_fact(key, value)
        if isinstance(fact, ToolFact):
            fact = replace(fact, packed="")
        if isinstance(fact, ToolFact | Catalogue):
            if self._bytes + len(value) > self._bytes_max:
                self._known.clear()
                self._bytes = 0
            self._known[digest] = fact
            self._bytes += len(value)
        return fact


class SharedValues:
    """Equal values of records as one object.

    Args:
        bytes_max: length of the values that are remembered together. Where there is no room, all are forgotten.
    """

    __slots__ = ("_bytes", "_bytes_max", "_known")

    def __init__(self, bytes_max: int = DEFAULT_LIMITS.shared_facts_bytes_max) -> None:
        self._known: dict[bytes, bytes] = {}
        self._bytes = 0
        self._bytes_max = bytes_max

    def shared(self, value: bytes) -> bytes:
        """Return an equal value that came before, if there is one."""
        known = self._known.get(value)
        if known is not None:
            return known
        if self._bytes + len(value) > self._bytes_max:
            self._known.clear()
            self._bytes = 0
        self._known[value] = value
        self._bytes += len(value)
        return value


def _of_server(known: ToolFact | Catalogue, server_id: str) -> Fact:
    if isinstance(known, ToolFact):
        return ToolFact(
            server_id=server_id,
            server_scoped=known.server_scoped,
            full=known.full,
            schemes=known.schemes,
            errors=known.errors,
            fields=known.fields,
            packed="",
        )
    return replace(known, server_id=server_id)
