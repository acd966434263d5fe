"""The prompts and resource templates of a snapshot, digested. None of them can make a snapshot be refused.

1. Absent is unknown: a snapshot that states no prompts says nothing of prompts.
2. Items are told apart by name, resource templates by URI template. One without a name, or with one that is no
   text, cannot be asked for by a client and is passed over. A name beyond the limit is cut, and ends with its
   digest.
3. A name may stand several times; each of its definitions counts by itself.
4. An item beyond the limits of a definition is known by its digest alone: that it changed is told, not what.
5. Of more items than the limit the first by name are kept, and the list counts as incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assay_stream.canonical.digest import canonicalize, jcs_digest, sha256_of
from assay_stream.limits import Limits
from assay_stream.model.facts import ItemFact, ItemList
from assay_stream.model.fields import Subject
from assay_stream.model.observation import SnapshotData
from assay_stream.registry.offer import BYTES_PER_DEFINITION, content_key
from assay_stream.registry.packed import pack
from assay_stream.schemes.fingerprint import ContentCache

_LISTS_KEPT = 1_024
_NAMES = {Subject.PROMPT: "name", Subject.TEMPLATE: "uriTemplate"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOffer:
    """The prompts, or the resource templates, of one snapshot.

    Args:
        subject: which of both.
        digest: digest of the set, whatever its order.
        items: name and full digest of each, sorted.
        definitions: the items as received, by full digest.
        oversized: full digests of those that are beyond the limits of a definition.
        is_cut: whether there were more than are kept.
    """

    subject: Subject
    digest: str
    items: tuple[tuple[str, str], ...]
    definitions: Mapping[str, dict[str, Any]]
    oversized: frozenset[str]
    is_cut: bool

    def as_fact(self, server_id: str) -> ItemList:
        """Return the set as a fact."""
        return ItemList(
            server_id=server_id,
            subject=self.subject,
            digest=self.digest,
            items=self.items,
            is_cut=self.is_cut,
        )

    def item_facts(self, server_id: str) -> Iterator[ItemFact]:
        """Yield each item as a fact, in the order of the set."""
        for full in dict.fromkeys(full for _, full in self.items):
            packed = None if full in self.oversized else pack(self.definitions[full])
            yield ItemFact(server_id=server_id, subject=self.subject, full=full, packed=packed)


class ItemOffers:
    """Digests the lists beside the tools, and remembers what it has seen.

    Args:
        limits: bounds on what is kept.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_list: ContentCache[ItemOffer] = ContentCache(_LISTS_KEPT, limits.offers_kept_bytes_max)

    def of(self, data: SnapshotData) -> dict[Subject, ItemOffer]:
        """Return what a snapshot states of prompts and of resource templates."""
        stated = {Subject.PROMPT: data.prompts, Subject.TEMPLATE: data.resource_templates}
        return {subject: self._offer(subject, items) for subject, items in stated.items() if items is not None}

    def _offer(self, subject: Subject, items: list[dict[str, Any]]) -> ItemOffer:
        content = content_key(items, subject.value)
        cached = self._by_list.get(content) if content else None
        if cached is None:
            cached, weight = self._digested(subject, items)
            if content:
                self._by_list.put(content, cached, weight)
        return cached

    def _digested(self, subject: Subject, items: list[dict[str, Any]]) -> tuple[ItemOffer, int]:
        """Return the set of a list, and what it weighs where it is kept."""
        named: dict[tuple[str, str], dict[str, Any]] = {}
        oversized: set[str] = set()
        weight = 0
        for item in items:
            name = item.get(_NAMES[subject])
            if isinstance(name, str) and name:
                full, fits, size_bytes = self._digest_of(item)
                weight += size_bytes + BYTES_PER_DEFINITION
                named[self._bounded(name), full] = item
                if not fits:
                    oversized.add(full)
        kept = tuple(sorted(named)[: self._limits.items_max])
        is_cut = len(kept) < len(named)
        definitions = {place[1]: named[place] for place in kept}
        offer = ItemOffer(
            subject=subject,
            digest=str(jcs_digest([subject.value, kept, is_cut])),
            items=kept,
            definitions=definitions,
            oversized=frozenset(oversized & definitions.keys()),
            is_cut=is_cut,
        )
        return offer, weight

    def _digest_of(self, item: dict[str, Any]) -> tuple[str, bool, int]:
        """Return the full digest of an item, whether it is within the limits of a definition, and its bytes."""
        limits = self._limits
        canonical = canonicalize(item)
        fits = (
            len(canonical) <= limits.definition_bytes_max
            and len(item) <= limits.tool_fields_max
            and all(len(field) <= limits.field_name_chars_max for field in item)
        )
        return str(sha256_of(canonical)), fits, len(canonical)

    def _bounded(self, name: str) -> str:
        if len(name) <= self._limits.identifier_chars_max:
            return name
        digest = str(sha256_of(name.encode()))
        return f"{name[: self._limits.identifier_chars_max - len(digest) - 1]}~{digest}"
