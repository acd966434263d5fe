"""What a snapshot offers: its tools fingerprinted, its prompts, resource templates and instructions digested.

Equal bytes are never canonicalised twice, whether a whole list repeats or a single tool in it does. Prompts,
resource templates and instructions cannot cause a snapshot to be refused here:

1. Absent is unknown: a snapshot without prompts implies nothing about prompts. Empty instructions are none.
2. Prompts are identified by name, resource templates by URI template. A client cannot request one without it, so it
   is ignored. A name beyond the limit is cut, and ends with its digest.
3. A name may occur several times; each of its definitions counts by itself.
4. Of an item beyond the limits of a definition only the digest is known: a change is reported, but not its content.
5. Of more items than the limit the first by name are kept, and the list counts as incomplete.

Definitions are kept canonical and packed, so that a change is understood after a restart.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from assay_stream.canonical.decode import NegativeZero
from assay_stream.canonical.digest import canonicalize, jcs_digest, sha256_of
from assay_stream.errors import InputError, IntegrityError
from assay_stream.limits import Limits
from assay_stream.model.facts import ItemFact, ItemList
from assay_stream.model.fields import Subject, as_item
from assay_stream.model.observation import SnapshotData
from assay_stream.schemes.fingerprint import ContentCache, Fingerprint, fingerprint
from assay_stream.schemes.schemapin_canonical import carried_signature

_LISTS_KEPT = 1_024
_TOOLS_KEPT = 65_536
BYTES_PER_DEFINITION = 1_024
"""Overhead of a kept definition beside its canonical form, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The content of a snapshot, fingerprinted: only what depends on its bytes."""

    digest: str
    tools: dict[str, str | None]
    fingerprints: dict[str, Fingerprint]
    definitions: dict[str, dict[str, Any]]
    ambiguous: dict[str, tuple[str, ...]]
    """Full digests of the definitions of each name that has several, sorted."""
    nameless: dict[str, dict[str, Any]]
    """Definitions without a name: they bind nothing, but are searched, and reviewers see them."""
    carried: dict[str, str]
    """The SchemaPin signature within a tool, by the name of each tool that carries one and is not ambiguous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOffer:
    """The prompts, the resource templates, or the instructions of one snapshot.

    Args:
        digest: digest of the set, whatever its order.
        items: name and full digest of each, sorted.
        definitions: the items as received, by full digest.
        oversized: full digests of those beyond the limits of a definition.
        is_cut: whether there were more than are kept.
    """

    subject: Subject
    digest: str
    items: tuple[tuple[str, str], ...]
    definitions: Mapping[str, dict[str, Any]]
    oversized: frozenset[str]
    is_cut: bool

    def as_fact(self, server_id: str) -> ItemList:
        return ItemList(
            server_id=server_id, subject=self.subject, digest=self.digest, items=self.items, is_cut=self.is_cut
        )

    def item_facts(self, server_id: str) -> Iterator[ItemFact]:
        for full in dict.fromkeys(full for _, full in self.items):
            packed = None if full in self.oversized else pack(self.definitions[full])
            yield ItemFact(server_id=server_id, subject=self.subject, full=full, packed=packed)


class Offers:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_list: ContentCache[Offer] = ContentCache(_LISTS_KEPT, limits.offers_kept_bytes_max)
        self._by_tool: ContentCache[Fingerprint] = ContentCache(_TOOLS_KEPT)
        self._by_item_list: ContentCache[ItemOffer] = ContentCache(_LISTS_KEPT, limits.offers_kept_bytes_max)

    def of(self, data: SnapshotData) -> Offer:
        """Return the fingerprinted content of a snapshot.

        Raises:
            InputError: if a tool is beyond the limits.
        """
        scope = data.server_id if data.server_scoped else None
        content = content_key(data.tools, scope)
        cached = self._by_list.get(content) if content else None
        if cached is not None:
            return cached
        named: dict[str, set[str]] = {}
        fingerprints: dict[str, Fingerprint] = {}
        definitions: dict[str, dict[str, Any]] = {}
        for index, tool in enumerate(data.tools):
            _check_tool(tool, index, self._limits)
            print_ = self._fingerprint_of(tool, scope, index)
            fingerprints[print_.full] = print_
            definitions[print_.full] = tool
            name = tool.get("name")
            if isinstance(name, str) and name:
                named.setdefault(name, set()).add(print_.full)
        tools = {name: min(fulls) if len(fulls) == 1 else None for name, fulls in named.items()}
        ambiguous = {name: tuple(sorted(fulls)) for name, fulls in named.items() if len(fulls) > 1}
        binding = set(tools.values())
        unbinding = definitions.keys() - binding
        shared = {full for fulls in ambiguous.values() for full in fulls}
        nameless = {full: tool for full, tool in definitions.items() if full not in binding | shared}
        digest = jcs_digest([data.server_scoped, sorted(tools.items()), sorted(unbinding)])
        offer = Offer(
            digest=str(digest),
            tools=tools,
            fingerprints={full: print_ for full, print_ in fingerprints.items() if full not in nameless},
            definitions=definitions,
            ambiguous=ambiguous,
            nameless=nameless,
            carried={
                name: signature
                for name, full in tools.items()
                if full is not None and (signature := carried_signature(definitions[full])) is not None
            },
        )
        if content:
            weight = sum(print_.size_bytes + BYTES_PER_DEFINITION for print_ in fingerprints.values())
            self._by_list.put(content, offer, weight)
        return offer

    def _fingerprint_of(self, tool: dict[str, Any], scope: str | None, index: int) -> Fingerprint:
        content = content_key(tool, scope)
        found = self._by_tool.get(content) if content else None
        if found is None:
            found = fingerprint(tool, server_id=scope)
            _check_size(found.size_bytes, index, self._limits)
            if content:
                self._by_tool.put(content, found)
        return found

    def items_of(self, data: SnapshotData) -> dict[Subject, ItemOffer]:
        stated = {
            Subject.PROMPT: data.prompts,
            Subject.TEMPLATE: data.resource_templates,
            Subject.INSTRUCTIONS: None if data.instructions is None else as_item(data.instructions),
        }
        return {subject: self._item_offer(subject, items) for subject, items in stated.items() if items is not None}

    def _item_offer(self, subject: Subject, items: list[dict[str, Any]]) -> ItemOffer:
        content = content_key(items, subject.value)
        cached = self._by_item_list.get(content) if content else None
        if cached is None:
            cached, weight = self._digested(subject, items)
            if content:
                self._by_item_list.put(content, cached, weight)
        return cached

    def _digested(self, subject: Subject, items: list[dict[str, Any]]) -> tuple[ItemOffer, int]:
        limits, named = self._limits, dict[tuple[str, str], dict[str, Any]]()
        oversized: set[str] = set()
        weight = 0
        for item in items:
            name = subject.name_of(item)
            if isinstance(name, str) and name:
                canonical = canonicalize(item)
                full = str(sha256_of(canonical))
                weight += len(canonical) + BYTES_PER_DEFINITION
                named[self._bounded(name), full] = item
                if (
                    len(canonical) > limits.definition_bytes_max
                    or len(item) > limits.tool_fields_max
                    or any(len(field) > limits.field_name_chars_max for field in item)
                ):
                    oversized.add(full)
        kept = tuple(sorted(named)[: limits.items_max])
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

    def _bounded(self, name: str) -> str:
        if len(name) <= self._limits.identifier_chars_max:
            return name
        digest = str(sha256_of(name.encode()))
        return f"{name[: self._limits.identifier_chars_max - len(digest) - 1]}~{digest}"


def check_offer(data: SnapshotData, limits: Limits) -> Iterator[int]:
    """Check decoded content for a hundredth of what ``Offers`` costs; yield the canonical bytes of each part checked.

    Raises:
        InputError: as ``Offers.of`` and ``Offers.items_of``.
    """
    for index, tool in enumerate(data.tools):
        _check_tool(tool, index, limits)
        yield _check_size(len(canonicalize(tool)), index, limits)
    for item in (*(data.prompts or ()), *(data.resource_templates or ())):
        yield len(canonicalize(item))


def _check_tool(tool: dict[str, Any], index: int, limits: Limits) -> None:
    path = f"$.data.tools[{index}]"
    name = tool.get("name")
    if isinstance(name, str) and len(name) > limits.identifier_chars_max:
        raise InputError("too_long", "the tool's name is longer than the limit", path=f"{path}.name")
    if len(tool) > limits.tool_fields_max:
        raise InputError("too_many_fields", f"a tool may have {limits.tool_fields_max} fields at most", path=path)
    if any(len(field) > limits.field_name_chars_max for field in tool):
        raise InputError("too_long", f"a field's name may have {limits.field_name_chars_max} characters", path=path)


def _check_size(size_bytes: int, index: int, limits: Limits) -> int:
    if size_bytes > limits.definition_bytes_max:
        message = f"a definition may have {limits.definition_bytes_max} bytes in canonical form"
        raise InputError("too_large", message, path=f"$.data.tools[{index}]")
    return size_bytes


def content_key(content: Any, scope: str | None) -> bytes | None:
    """Return a key shared by equal content, ``None`` for integers that orjson cannot write."""
    try:
        raw = orjson.dumps([scope, content], option=orjson.OPT_PASSTHROUGH_SUBCLASS, default=_told_apart)
    except TypeError:
        return None
    return sha256(raw).digest()


def _told_apart(value: Any) -> orjson.Fragment:
    if isinstance(value, NegativeZero):
        return orjson.Fragment(b"-0")
    raise TypeError


_LEVEL = 6


def pack(definition: dict[str, Any]) -> str:
    """Pack a definition into the form that facts hold: base64 of its deflated canonical form.

    Raises:
        InputError: as ``canonicalize``.
    """
    return b64encode(zlib.compress(canonicalize(definition), _LEVEL)).decode()


def unpack(packed: str) -> dict[str, Any]:
    """Return the definition that a fact holds.

    Raises:
        IntegrityError: ``unknown_fact`` if it is anything else.
    """
    try:
        definition: dict[str, Any] = orjson.loads(zlib.decompress(b64decode(packed, validate=True)))
    except (ValueError, zlib.error):
        raise IntegrityError(
            "unknown_fact",
            "the binding topic holds a definition this version cannot read: run the version that wrote it",
        ) from None
    return definition
