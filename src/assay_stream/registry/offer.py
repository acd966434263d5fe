"""What a snapshot offers, fingerprinted: the part of the registry's work that depends on the content alone.

Equal bytes are never canonicalised twice, whether a whole list repeats or a single tool in it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from assay_stream.canonical.digest import jcs_digest
from assay_stream.canonical.numbers import NegativeZero
from assay_stream.errors import InputError
from assay_stream.limits import Limits
from assay_stream.model.observation import SnapshotData
from assay_stream.schemes.fingerprint import ContentCache, Fingerprint, fingerprint

_LISTS_KEPT = 1_024
_TOOLS_KEPT = 65_536
BYTES_PER_DEFINITION = 1_024
"""What a definition that is kept weighs beside its canonical form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The content of a snapshot, fingerprinted: what depends on its bytes alone."""

    digest: str
    tools: dict[str, str | None]
    fingerprints: dict[str, Fingerprint]
    definitions: dict[str, dict[str, Any]]
    ambiguous: dict[str, tuple[str, ...]]
    """Full digests of the definitions of each name that stands with several, sorted."""
    nameless: dict[str, dict[str, Any]]
    """Definitions without a name: they bind nothing, and reviewers see them all the same."""


class Offers:
    """Fingerprints snapshots and remembers what it has seen.

    Args:
        limits: bounds on what is accepted.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_list: ContentCache[Offer] = ContentCache(_LISTS_KEPT, limits.offers_kept_bytes_max)
        self._by_tool: ContentCache[Fingerprint] = ContentCache(_TOOLS_KEPT)

    def of(self, data: SnapshotData) -> Offer:
        """Return the fingerprinted content of a snapshot.

        Raises:
            InputError: where a tool is beyond the limits.
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
            self._check_tool(tool, index)
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
        )
        if content:
            self._by_list.put(content, offer, sum(map(_weight, fingerprints.values())))
        return offer

    def _check_tool(self, tool: dict[str, Any], index: int) -> None:
        path = f"$.data.tools[{index}]"
        name = tool.get("name")
        if isinstance(name, str) and len(name) > self._limits.identifier_chars_max:
            raise InputError("too_long", "the tool's name is longer than the limit", path=f"{path}.name")
        if len(tool) > self._limits.tool_fields_max:
            raise InputError(
                "too_many_fields", f"a tool may have {self._limits.tool_fields_max} fields at most", path=path
            )
        if any(len(field) > self._limits.field_name_chars_max for field in tool):
            raise InputError(
                "too_long", f"a field's name may have {self._limits.field_name_chars_max} characters", path=path
            )

    def _fingerprint_of(self, tool: dict[str, Any], scope: str | None, index: int) -> Fingerprint:
        content = content_key(tool, scope)
        found = self._by_tool.get(content) if content else None
        if found is None:
            found = fingerprint(tool, server_id=scope)
            if found.size_bytes > self._limits.definition_bytes_max:
                raise InputError(
                    "too_large",
                    f"a definition may have {self._limits.definition_bytes_max} bytes in canonical form",
                    path=f"$.data.tools[{index}]",
                )
            if content:
                self._by_tool.put(content, found)
        return found


def _weight(print_: Fingerprint) -> int:
    return print_.size_bytes + BYTES_PER_DEFINITION


def content_key(content: Any, scope: str | None) -> bytes | None:
    """Return what equal content has in common, or ``None`` for integers that orjson cannot write."""
    try:
        raw = orjson.dumps([scope, content], option=orjson.OPT_PASSTHROUGH_SUBCLASS, default=_told_apart)
    except TypeError:
        return None
    return sha256(raw).digest()


def _told_apart(value: Any) -> orjson.Fragment:
    if isinstance(value, NegativeZero):
        return orjson.Fragment(b"-0")
    raise TypeError
