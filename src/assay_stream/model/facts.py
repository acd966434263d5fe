"""Facts: what the registry publishes to the compacted binding topic, and everything it restores itself from.

A fact's key is a JSON array that starts with the fact's kind; its value is a JSON object. A tombstone takes a
fact back. Facts are the only way state changes: the registry applies to itself what it publishes, so that a
restored registry and a join worker's view are the same thing read from the same log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from assay_stream.drift import Subject
from assay_stream.errors import IntegrityError
from assay_stream.model.control_facts import (
    AnyControlFact,
    FactKey,
    origin_of_key,
    read_checked,
    read_discovery,
    read_first_use,
    read_key_decision,
    read_pin,
    read_policy,
    read_signatures,
)
from assay_stream.model.end_facts import Announcement, Rejection, read_announcement, read_rejection
from assay_stream.model.item_facts import ItemFact, ItemList, read_item, read_item_list
from assay_stream.model.record import Origin, Position
from assay_stream.registry.allowance import Allowance, read_allowance
from assay_stream.registry.former_tools import FormerTool, read_former_tool
from assay_stream.schemes.fingerprint import Fingerprint

Completeness = Literal["complete", "partial", "unknown"]
_KEY_PARTS_MIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFact:
    """One distinct definition seen on a server, by its full digest; ``packed`` is the definition itself."""

    server_id: str
    server_scoped: bool
    fingerprint: Fingerprint
    packed: str

    def key(self) -> FactKey:
        return ("tool", self.server_id, self.server_scoped, self.fingerprint.full)

    def value_json(self) -> dict[str, Any]:
        print_ = self.fingerprint
        return {
            "schemes": dict(print_.schemes),
            "errors": dict(print_.errors),
            "fields": sorted(print_.fields.items()),
            "packed": self.packed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """One distinct set of tool definitions offered by a server.

    Args:
        server_id: the server.
        digest: digest of the set, whatever its order.
        server_scoped: whether digests of this catalogue cover the server's id.
        tools: tool name to full digest; ``None`` where the name stood twice with different definitions.
        ambiguous: full digests of those definitions, sorted, of each such name.
    """

    server_id: str
    digest: str
    server_scoped: bool
    tools: Mapping[str, str | None]
    ambiguous: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def key(self) -> FactKey:
        return ("catalogue", self.server_id, self.digest)

    def value_json(self) -> dict[str, Any]:
        value = {"server_scoped": self.server_scoped, "tools": sorted(self.tools.items())}
        return value | ({"ambiguous": sorted(self.ambiguous.items())} if self.ambiguous else {})

    def definitions_of(self, tool_name: str) -> tuple[str, ...]:
        """Return full digests of what stands under a name, sorted, none where it is not listed."""
        full = self.tools.get(tool_name)
        return self.ambiguous.get(tool_name, ()) if full is None else (full,)

    def lists(self, tool_name: str, full: str) -> bool:
        """Tell whether a definition stands under a name, alone or among others."""
        fulls = self.definitions_of(tool_name)
        index = bisect_left(fulls, full)
        return index < len(fulls) and fulls[index] == full

    def definitions(self) -> Iterator[tuple[str, str]]:
        """Yield name and full digest of every definition that has a name."""
        for name in self.tools:
            for full in self.definitions_of(name):
                yield name, full


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One observation: from this time on, this observer saw this catalogue on this server."""

    server_id: str
    observer_id: str
    origin: Origin
    time_us: int
    snapshot_id: str
    catalogue: str
    completeness: Completeness
    signatures: str | None = None
    """Digest of the signatures that came with it, ``None`` where none did."""
    prompts: str | None = None
    """Digest of the prompts that came with it, ``None`` where nothing was stated of them."""
    templates: str | None = None
    """Digest of the resource templates, in the same way."""
    auth_context: str | None = None
    """Digest of the name of the rights under which the server was asked, ``None`` where none is stated.

    No more than that: what a proxy puts there may be a credential.
    """
    attributed: bool = False
    """Whether a header of its record named the observer: what cannot be attributed does not end its force then."""
    rationed: bool = False
    """Whether its analysis was rationed: what it changed is still to be compared (``registry.list_drift``)."""

    def listed(self, subject: Subject) -> str | None:
        """Return the digest of the prompts or of the templates that it states, ``None`` where it states none."""
        return self.prompts if subject is Subject.PROMPT else self.templates

    @property
    def position(self) -> Position:
        return (self.time_us, self.origin)

    def key(self) -> FactKey:
        return ("seen", self.server_id, self.observer_id, *self.origin)

    def value_json(self) -> dict[str, Any]:
        stated = {
            "prompts": self.prompts,
            "templates": self.templates,
            "auth_context": self.auth_context,
            "attributed": self.attributed or None,
            "rationed": self.rationed or None,
        }
        return {
            "time_us": self.time_us,
            "snapshot_id": self.snapshot_id,
            "catalogue": self.catalogue,
            "completeness": self.completeness,
            "signatures": self.signatures,
            **{name: value for name, value in stated.items() if value is not None},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """Of what this observer saw before this time, the oldest was folded away to bound the state."""

    server_id: str
    observer_id: str
    time_us: int

    def key(self) -> FactKey:
        return ("horizon", self.server_id, self.observer_id)

    def value_json(self) -> dict[str, Any]:
        return {"time_us": self.time_us}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The registry has applied everything before this position of one of its input partitions."""

    topic: str
    partition: int
    position: int

    def key(self) -> FactKey:
        return ("progress", self.topic, self.partition)

    def value_json(self) -> dict[str, Any]:
        return {"position": self.position}


Fact = (
    ToolFact
    | Catalogue
    | ItemFact
    | ItemList
    | Seen
    | Rejection
    | Announcement
    | Horizon
    | Allowance
    | FormerTool
    | Progress
    | AnyControlFact
)


def encode_key(key: FactKey) -> bytes:
    """Return the binding topic's key bytes of a fact.

    Args:
        key: a fact's key.
    """
    return orjson.dumps(key)


def encode_value(fact: Fact) -> bytes:
    """Return the binding topic's value bytes of a fact: equal facts give equal bytes.

    Args:
        fact: a fact.
    """
    return orjson.dumps(fact.value_json(), option=orjson.OPT_SORT_KEYS)


def decode_key(key: bytes | None) -> FactKey:
    """Return the fact key that these bytes hold.

    Args:
        key: key bytes of a record of the binding topic.

    Raises:
        IntegrityError: where somebody else has written to the binding topic.
    """
    try:
        parts = orjson.loads(key or b"")
    except ValueError:
        raise foreign_fact() from None
    if not isinstance(parts, list) or len(parts) < _KEY_PARTS_MIN or parts[0] not in _READERS:
        raise foreign_fact()
    return tuple(parts)


def foreign_fact() -> IntegrityError:
    """Return the error for a record of the binding topic that somebody else has written."""
    return IntegrityError("foreign_fact", "the binding topic holds a key that is not ours: find who writes to it")


def decode_fact(key: FactKey, value: bytes) -> Fact:
    """Return the fact that a record of the binding topic holds.

    Args:
        key: its decoded key.
        value: its value bytes.

    Raises:
        IntegrityError: where the record is not a fact that this version knows.
    """
    try:
        return _READERS[str(key[0])](key, orjson.loads(value))
    except (KeyError, IndexError, TypeError, ValueError):
        raise IntegrityError(
            "unknown_fact",
            "the binding topic holds a fact this version cannot read: run the version that wrote it, "
            "or rebuild the topic from the snapshots",
        ) from None


def _read_tool(key: FactKey, value: dict[str, Any]) -> ToolFact:
    _, server_id, server_scoped, full = key
    print_ = Fingerprint(full=str(full), schemes=value["schemes"], errors=value["errors"], fields=dict(value["fields"]))
    return ToolFact(
        server_id=str(server_id), server_scoped=bool(server_scoped), fingerprint=print_, packed=value["packed"]
    )


def _read_catalogue(key: FactKey, value: dict[str, Any]) -> Catalogue:
    _, server_id, digest = key
    return Catalogue(
        server_id=str(server_id),
        digest=str(digest),
        server_scoped=value["server_scoped"],
        tools=dict(value["tools"]),
        ambiguous={name: tuple(fulls) for name, fulls in value.get("ambiguous", ())},
    )


def _read_seen(key: FactKey, value: dict[str, Any]) -> Seen:
    _, server_id, observer_id, *place = key
    return Seen(
        server_id=str(server_id),
        observer_id=str(observer_id),
        origin=origin_of_key(place),
        time_us=value["time_us"],
        snapshot_id=value["snapshot_id"],
        catalogue=value["catalogue"],
        completeness=value["completeness"],
        signatures=value["signatures"],
        prompts=value.get("prompts"),
        templates=value.get("templates"),
        auth_context=value.get("auth_context"),
        attributed=value.get("attributed", False),
        rationed=value.get("rationed", False),
    )


def _read_horizon(key: FactKey, value: dict[str, Any]) -> Horizon:
    _, server_id, observer_id = key
    return Horizon(server_id=str(server_id), observer_id=str(observer_id), time_us=value["time_us"])


def _read_progress(key: FactKey, value: dict[str, Any]) -> Progress:
    _, topic, partition = key
    return Progress(topic=str(topic), partition=int(partition), position=value["position"])


_READERS: dict[str, Callable[[FactKey, dict[str, Any]], Fact]] = {
    "tool": _read_tool,
    "catalogue": _read_catalogue,
    "item": read_item,
    "item_list": read_item_list,
    "seen": _read_seen,
    "rejection": read_rejection,
    "announcement": read_announcement,
    "pin": read_pin,
    "policy": read_policy,
    "key_decision": read_key_decision,
    "discovery": read_discovery,
    "signatures": read_signatures,
    "checked": read_checked,
    "first_use": read_first_use,
    "horizon": _read_horizon,
    "allowance": read_allowance,
    "former_tool": read_former_tool,
    "progress": _read_progress,
}
