"""Facts that follow from the control topic, and from signatures checked against the keys in it.

They stand in the binding topic beside the others (``model.facts``), under the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from assay_stream.model.fields import (
    BareHex,
    DigestText,
    Enforcement,
    Identifier,
    KeyFingerprint,
    Micros,
    Natural,
    Scheme,
    SchemeValue,
    ShortText,
    Unknown,
)
from assay_stream.model.record import Origin
from assay_stream.model.wire import ALWAYS, BaseFact, PlacedFact, Wire, fact, origin_of_key, pairs
from assay_stream.schemes.schemapin.canonical import Mode

PinAct = Literal["set", "reject", "remove"]
KeyAct = Literal["accept", "revoke"]
DiscoveryStatus = Literal["observed", "invalid", "no_key", "other_domain", "fetch_failed"]
"""A sound document with its key; no document; one whose key is unusable; one for another domain; nothing."""
SignatureClaim = Literal["expires_at", "schema_version", "previous_hash"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlFact(PlacedFact):
    """What every fact of a control record holds: where it stands and from when on it counts."""

    server_id: Identifier
    origin: Origin
    time_us: Micros


@fact("pin", "server_id", "tool_name", "scheme", "origin")
@dataclass(frozen=True, slots=True, kw_only=True)
class Pin(ControlFact):
    """An operator decided on a value of a tool; ``value`` is null only where a pin is removed.

    Args:
        act: ``set``: this value is approved, in place of the one before; ``reject``: this value must not be;
            ``remove``: the decision on this value is taken back, without a value the pin of the scheme.
        upstream: what MCP Hangar binds an approved value to, if it was imported with that.
    """

    tool_name: Identifier
    scheme: Annotated[str, Wire(Scheme)]
    act: PinAct
    value: SchemeValue | None
    author: ShortText
    reason: ShortText
    upstream: ShortText | None = None


@fact("policy", "server_id", "origin")
@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(ControlFact):
    """An operator set a digest policy, or took it back; ``tool_name`` is null where it is for the whole server.

    Args:
        enforcement: ``None``, as ``unknown``, where it was taken back.
    """

    tool_name: Identifier | None
    enforcement: Annotated[str | None, Wire(Enforcement)] = None
    unknown: Annotated[str | None, Wire(Unknown)] = None
    author: ShortText
    reason: ShortText


@fact("key_decision", "server_id", "origin")
@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDecision(ControlFact):
    """An operator accepted or revoked a SchemaPin key."""

    act: KeyAct
    fingerprint: KeyFingerprint
    domain: str | None
    tool_name: Identifier | None
    author: ShortText
    reason: ShortText

    def covers(self, domain: str, tool_name: str) -> bool:
        """Return True if an acceptance applies to a tool of a domain."""
        return self.domain == domain and self.tool_name in (None, tool_name)


@fact("discovery", "server_id", "domain", "origin")
@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery(ControlFact):
    """What was found at a domain, with its key where there is a usable one."""

    domain: str
    status: DiscoveryStatus
    fingerprint: Annotated[KeyFingerprint | None, ALWAYS] = None
    public_key_pem: Annotated[str | None, ALWAYS] = None
    revoked: Annotated[tuple[str, ...], ALWAYS] = ()

    def says_the_same(self, other: Discovery) -> bool:
        return (self.status, self.public_key_pem, self.revoked) == (other.status, other.public_key_pem, other.revoked)


class Signed(NamedTuple):
    """One tool's signature as it came.

    Args:
        domain: whose key made it, ``None`` where that was not said.
        signature: base64, empty for one that cannot be read.
        digest: the SchemaPin digest of the tool in bare hexadecimal, ``None`` where it has none.
        claims: what came with it that no signature covers: ``expires_at``, ``schema_version``, ``previous_hash``.
    """

    domain: str | None
    signature: str
    digest: str | None
    claims: Mapping[str, str] = MappingProxyType({})


def signature_rows(tools: Mapping[str, Signed]) -> list[list[Any]]:
    """Return signatures by tool in the form of their fact, which the digest of a set covers as well."""
    return sorted([name, *entry[:3], *([dict(entry.claims)] if entry.claims else [])] for name, entry in tools.items())


def _read_signatures(rows: list[list[Any]]) -> dict[str, Signed]:
    return {name: Signed(*entry) for name, *entry in rows}


_SignatureRow = tuple[str, str | None, str, BareHex | None]


@fact("signatures", "server_id", "digest")
@dataclass(frozen=True, slots=True, kw_only=True)
class Signatures(BaseFact):
    """Signatures that came with a catalogue: tool, domain, signature, its SchemaPin digest, and claims.

    Args:
        digest: digest of the set, which covers what was signed.
    """

    server_id: Identifier
    digest: DigestText
    tools: Annotated[
        Mapping[str, Signed],
        Wire(
            list[_SignatureRow | tuple[str, str | None, str, BareHex | None, dict[SignatureClaim, str]]],
            signature_rows,
            _read_signatures,
        ),
    ]


@fact("checked", "server_id", "signatures", "fingerprint")
@dataclass(frozen=True, slots=True, kw_only=True)
class Checked(BaseFact):
    """Signatures checked against one key: tool and hashing mode of those that match."""

    server_id: Identifier
    signatures: DigestText
    fingerprint: KeyFingerprint
    modes: Annotated[Mapping[str, str], pairs(Mode)]


@fact("first_use", "server_id", "domain", "tool_name")
@dataclass(frozen=True, slots=True, kw_only=True)
class FirstUse(ControlFact):
    """The key of the first matching signature of a tool: trust on first use."""

    domain: str
    tool_name: Identifier
    fingerprint: KeyFingerprint
    origin: Annotated[Origin, Wire(tuple[str, Natural, Natural], list, origin_of_key)]


ControlDecision = Pin | Policy | KeyDecision | Discovery
"""What one control record becomes, but for those that are for the alert stage alone (``model.finding_topic``)."""
AnyControlFact = Pin | Policy | KeyDecision | Discovery | Signatures | Checked | FirstUse
