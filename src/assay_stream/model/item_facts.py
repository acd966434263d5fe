"""The facts that follow from the prompts and resource templates which a snapshot states beside its tools.

No call is bound to them: only the registry keeps them, to tell what changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay_stream.drift import Subject
from assay_stream.model.control_facts import FactKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFact:
    """One distinct prompt or resource template seen on a server.

    Args:
        server_id: the server.
        subject: which of both.
        full: digest of it as received.
        packed: the definition itself, ``None`` where it is beyond the limits and known by its digest alone.
    """

    server_id: str
    subject: Subject
    full: str
    packed: str | None

    def key(self) -> FactKey:
        return ("item", self.server_id, self.subject.value, self.full)

    def value_json(self) -> dict[str, Any]:
        return {"packed": self.packed}


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemList:
    """One distinct set of prompts, or of resource templates, offered by a server.

    Args:
        server_id: the server.
        subject: which of both.
        digest: digest of the set, whatever its order.
        items: name and full digest of each, sorted; a name that stood twice with different definitions stands
            twice.
        is_cut: whether there were more of them than are kept.
    """

    server_id: str
    subject: Subject
    digest: str
    items: tuple[tuple[str, str], ...]
    is_cut: bool

    def key(self) -> FactKey:
        return ("item_list", self.server_id, self.subject.value, self.digest)

    def value_json(self) -> dict[str, Any]:
        return {"items": self.items, "is_cut": self.is_cut}

    def by_name(self) -> dict[str, tuple[str, ...]]:
        """Return the full digests that stood under each name."""
        named: dict[str, list[str]] = {}
        for name, full in self.items:
            named.setdefault(name, []).append(full)
        return {name: tuple(fulls) for name, fulls in named.items()}


def read_item(key: FactKey, value: dict[str, Any]) -> ItemFact:
    """Return the fact that a key and its value hold.

    Args:
        key: a key of the kind ``item``.
        value: its value.
    """
    _, server_id, subject, full = key
    return ItemFact(server_id=str(server_id), subject=_subject(subject), full=str(full), packed=value["packed"])


def read_item_list(key: FactKey, value: dict[str, Any]) -> ItemList:
    """Return the fact that a key and its value hold.

    Args:
        key: a key of the kind ``item_list``.
        value: its value.
    """
    _, server_id, subject, digest = key
    return ItemList(
        server_id=str(server_id),
        subject=_subject(subject),
        digest=str(digest),
        items=tuple((name, full) for name, full in value["items"]),
        is_cut=value["is_cut"],
    )


def _subject(given: object) -> Subject:
    subject = Subject(str(given))
    if subject is Subject.TOOL:
        raise ValueError("tools have facts of their own")
    return subject
