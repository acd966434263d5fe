"""Facts about definitions: what a server offers, in which lists, and the records that reviewers read.

They say nothing of who saw a list and when; ``Seen`` does (``model.facts``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Required, cast

from typing_extensions import TypedDict

from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.model.fields import Base64, DigestText, Identifier, Micros, Natural, SchemeValue, Subject
from assay_stream.model.record import Output, Record, Role
from assay_stream.model.wire import BaseFact, Wire, fact, pairs, rows, shared
from assay_stream.schemes.assay import tool as assay
from assay_stream.schemes.fingerprint import Fingerprint


class Projection(TypedDict, total=False):
    """The bounded projection that the tool definition digest covers, without a server's id."""

    name: Required[str]
    description: str
    input_schema: dict[str, Any]


class Definition(TypedDict):
    """One distinct tool, prompt, resource template or instructions text, for reviewers. Its key is the full digest."""

    full_digest: DigestText
    definition: dict[str, Any]
    projection: NotRequired[Projection]


def definition_record(record: Record, full: str, definition: dict[str, Any]) -> Output:
    """Return the record of a definition: the same bytes for every observer and kind of list.

    Args:
        definition: a tool, a prompt or a resource template as received, or ``{"instructions": text}``.
    """
    value: Definition = {"full_digest": full, "definition": definition}
    label = "definition"
    if definition.keys() != {"instructions"}:
        try:
            value["projection"] = cast(Projection, assay.definition_projection(definition, server_id=None))
        except InputError:
            label = "definition:not_digestible"
    return Output(
        role=Role.DEFINITIONS,
        key=full.encode(),
        value=canonicalize(value),
        timestamp_ms=record.timestamp_ms,
        label=label,
    )


def _item_subject(given: Any) -> Subject:
    subject = Subject(str(given))
    if subject is Subject.TOOL:
        raise ValueError("tools have facts of their own")
    return subject


_ItemSubject = Annotated[Subject, Wire(Literal["prompt", "template", "instructions"], read=_item_subject)]


@fact("tool", "server_id", "server_scoped", "full")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFact(BaseFact):
    """A definition seen on a server: its digest under every scheme, and of every top-level field."""

    server_id: Identifier
    server_scoped: bool
    full: DigestText
    schemes: Annotated[Mapping[str, str], Wire(dict[str, SchemeValue], dict)]
    errors: Annotated[Mapping[str, str], Wire(dict[str, str], dict)]
    fields: Annotated[Mapping[str, str], pairs(DigestText)]
    packed: Base64

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(full=self.full, schemes=self.schemes, errors=self.errors, fields=self.fields)

    @classmethod
    def of(cls, *, server_id: str, server_scoped: bool, fingerprint: Fingerprint, packed: str) -> ToolFact:
        return cls(
            server_id=server_id,
            server_scoped=server_scoped,
            full=fingerprint.full,
            schemes=fingerprint.schemes,
            errors=fingerprint.errors,
            fields=fingerprint.fields,
            packed=packed,
        )


def _tools(given: list[tuple[str, str | None]]) -> dict[str, str | None]:
    return {name: None if full is None else shared(full) for name, full in given}


@fact("catalogue", "server_id", "digest")
@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue(BaseFact):
    """A set of definitions: name to full digest, null where the name stood twice with two definitions.

    Args:
        digest: digest of the set, whatever its order.
        server_scoped: whether digests of this catalogue cover the server's id.
        tools: tool name to full digest; ``None`` where the name stood twice with different definitions.
        ambiguous: full digests of those definitions, sorted, of each such name.
    """

    server_id: Identifier
    digest: DigestText
    server_scoped: bool
    tools: Annotated[Mapping[str, str | None], pairs(DigestText | None)._replace(read=_tools)]
    ambiguous: Annotated[
        Mapping[str, tuple[str, ...]],
        Wire(
            list[tuple[str, list[DigestText]]],
            lambda named: sorted([name, list(fulls)] for name, fulls in named.items()),
            dict,
        ),
    ] = field(default_factory=dict)

    def definitions_of(self, tool_name: str) -> tuple[str, ...]:
        """Return the sorted full digests of the definitions under a name, none where it is not listed."""
        full = self.tools.get(tool_name)
        return self.ambiguous.get(tool_name, ()) if full is None else (full,)

    def lists(self, tool_name: str, full: str) -> bool:
        """Return True if a definition is listed under a name, alone or among others."""
        fulls = self.definitions_of(tool_name)
        index = bisect_left(fulls, full)
        return index < len(fulls) and fulls[index] == full

    def definitions(self) -> Iterator[tuple[str, str]]:
        for name in self.tools:
            for full in self.definitions_of(name):
                yield name, full


@fact("item", "server_id", "subject", "full")
@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFact(BaseFact):
    """A prompt, a resource template or instructions seen on a server; null where it is beyond the limits.

    No call is bound to these: only the registry keeps them, to find what changed.
    """

    server_id: Identifier
    subject: _ItemSubject
    full: DigestText
    packed: Base64 | None


@fact("item_list", "server_id", "subject", "digest")
@dataclass(frozen=True, slots=True, kw_only=True)
class ItemList(BaseFact):
    """A set of prompts or of resource templates: names or URI templates, and full digests. Or the instructions.

    Args:
        digest: digest of the set, whatever its order.
        items: name and full digest of each, sorted; a name listed twice with different definitions stands twice.
        is_cut: whether there were more of them than are kept.
    """

    server_id: Identifier
    subject: _ItemSubject
    digest: DigestText
    items: Annotated[tuple[tuple[str, str], ...], rows(tuple[str, DigestText])]
    is_cut: bool

    def by_name(self) -> dict[str, tuple[str, ...]]:
        named: dict[str, list[str]] = {}
        for name, full in self.items:
            named.setdefault(name, []).append(full)
        return {name: tuple(fulls) for name, fulls in named.items()}


@fact("former_tool", "server_id", "tool_name")
@dataclass(frozen=True, slots=True, kw_only=True)
class FormerTool(BaseFact):
    """The last definition of a name that no list which is kept names any more.

    Args:
        server_scoped: whether its digests cover the server's id.
        size: length of the definition, packed.
        time_us: event time of the list that was folded away with it, microseconds since the epoch.
    """

    server_id: Identifier
    tool_name: Identifier
    server_scoped: bool
    full: DigestText
    size: Natural
    time_us: Micros

    @property
    def place(self) -> tuple[bool, str]:
        return self.server_scoped, self.full
