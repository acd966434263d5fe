"""Models of the facts of the binding topic: their values and their keys."""

from __future__ import annotations

from typing import Literal

from assay_stream.model.control import Enforcement, KeyFingerprint, Scheme
from assay_stream.model.control_facts import DiscoveryStatus, KeyAct, PinAct
from assay_stream.model.facts import Completeness
from assay_stream.model.observation import Identifier, Text
from assay_stream.model.schemas.fields import (
    BareHex,
    Base64,
    Closed,
    DigestText,
    Micros,
    Natural,
    SchemeValue,
    UnknownText,
)
from assay_stream.schemes.schemapin import Mode


class ToolFactValue(Closed):
    """A definition seen on a server: its digest under every scheme, and of every top-level field."""

    schemes: dict[str, SchemeValue]
    errors: dict[str, str]
    fields: list[tuple[str, DigestText]]
    packed: Base64


class CatalogueFactValue(Closed):
    """A set of definitions: name to full digest, null where the name stood twice with two definitions."""

    server_scoped: bool
    tools: list[tuple[str, DigestText | None]]
    ambiguous: list[tuple[str, list[DigestText]]] | None = None


class SeenFactValue(Closed):
    """From this time on, this observer saw this catalogue on this server."""

    time_us: Micros
    snapshot_id: Identifier
    catalogue: DigestText
    completeness: Completeness
    signatures: DigestText | None
    prompts: DigestText | None = None
    templates: DigestText | None = None
    auth_context: BareHex | None = None
    attributed: Literal[True] | None = None
    rationed: Literal[True] | None = None


class ItemFactValue(Closed):
    """A prompt or resource template seen on a server; null where it is beyond the limits."""

    packed: Base64 | None


class ItemListFactValue(Closed):
    """A set of prompts or of resource templates: names or URI templates, and full digests."""

    items: list[tuple[str, DigestText]]
    is_cut: bool


class RejectionFactValue(Closed):
    """A record of the server was refused: what the observer saw before is in force no more.

    Without an observer it concerns those whose lists name none in a header.
    """

    time_us: Micros
    code: str
    observer_id: Identifier | None = None
    unlisted: Literal[True] | None = None


class AnnouncementFactValue(Closed):
    """The server told this observer that its tools changed: what it saw before is in force no more."""

    time_us: Micros
    overdue: bool


class PinFactValue(Closed):
    """An operator decided on a value of a tool; ``value`` is null only where a pin is removed."""

    time_us: Micros
    act: PinAct
    value: SchemeValue | None
    author: Text
    reason: Text
    upstream: Text | None = None


class PolicyFactValue(Closed):
    """An operator set a digest policy; ``tool_name`` is null where it is for the whole server."""

    time_us: Micros
    tool_name: Identifier | None
    enforcement: Enforcement
    unknown: UnknownText
    author: Text
    reason: Text


class KeyFactValue(Closed):
    """An operator accepted or revoked a SchemaPin key."""

    time_us: Micros
    act: KeyAct
    fingerprint: KeyFingerprint
    domain: str | None
    tool_name: Identifier | None
    author: Text
    reason: Text


class DiscoveryFactValue(Closed):
    """What was found at a domain, with its key where there is a usable one."""

    time_us: Micros
    status: DiscoveryStatus
    fingerprint: KeyFingerprint | None
    public_key_pem: str | None
    revoked: list[str]


SignatureClaim = Literal["expires_at", "schema_version", "previous_hash"]


class SignaturesFactValue(Closed):
    """Signatures that came with a catalogue: tool, domain, signature, its SchemaPin digest, and claims."""

    tools: list[
        tuple[str, str | None, str, BareHex | None]
        | tuple[str, str | None, str, BareHex | None, dict[SignatureClaim, str]]
    ]


class CheckedFactValue(Closed):
    """Signatures held against one key: tool and hashing mode of those that match."""

    modes: list[tuple[str, Mode]]


class FirstUseFactValue(Closed):
    """The key of the first matching signature of a tool: trust on first use."""

    time_us: Micros
    origin: tuple[str, Natural, Natural]
    fingerprint: KeyFingerprint


class HorizonFactValue(Closed):
    """Of what this observer saw before this time, the oldest was folded away."""

    time_us: Micros


class FormerToolFactValue(Closed):
    """The last definition of a name that no list which is kept names any more."""

    server_scoped: bool
    full: DigestText
    size: Natural
    time_us: Micros


class AllowanceFactValue(Closed):
    """What the analysis of a server's lists may still cost at a time of the log, and what was analysed last."""

    time_ms: Natural
    units: int
    analysed: list[tuple[str, Natural]]


class ProgressFactValue(Closed):
    """The registry has applied everything before this position of one input partition."""

    position: Natural


FactKeyModel = (
    tuple[Literal["tool"], Identifier, bool, DigestText]
    | tuple[Literal["catalogue"], Identifier, DigestText]
    | tuple[Literal["seen"], Identifier, Identifier, str, Natural, Natural]
    | tuple[Literal["item"], Identifier, Literal["prompt", "template"], DigestText]
    | tuple[Literal["item_list"], Identifier, Literal["prompt", "template"], DigestText]
    | tuple[Literal["rejection"], Identifier, str, Natural, Natural]
    | tuple[Literal["announcement"], Identifier, Identifier, str, Natural, Natural]
    | tuple[Literal["pin"], Identifier, Identifier, Scheme, str, Natural, Natural]
    | tuple[Literal["policy"], Identifier, str, Natural, Natural]
    | tuple[Literal["key_decision"], Identifier, str, Natural, Natural]
    | tuple[Literal["discovery"], Identifier, str, str, Natural, Natural]
    | tuple[Literal["signatures"], Identifier, DigestText]
    | tuple[Literal["checked"], Identifier, DigestText, KeyFingerprint]
    | tuple[Literal["first_use"], Identifier, str, Identifier]
    | tuple[Literal["horizon"], Identifier, Identifier]
    | tuple[Literal["former_tool"], Identifier, Identifier]
    | tuple[Literal["allowance"], Identifier, Literal["analysis"]]
    | tuple[Literal["progress"], str, Natural]
)
"""The key of a fact: a JSON array that starts with the fact's kind."""
