"""Facts that follow from the control topic, and from signatures held against the keys that it brought.

They stand in the binding topic beside the others (``model.facts``), under the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from assay_stream.model.record import Origin, Position

PinAct = Literal["set", "reject", "remove"]
KeyAct = Literal["accept", "revoke"]
DiscoveryStatus = Literal["observed", "invalid", "no_key", "other_domain", "fetch_failed"]
"""A sound document with its key; no document; one whose key is unusable; one for another domain; nothing."""

FactKey = tuple[str | int | bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlFact:
    """What every fact of a control record holds: where it stands and from when on it counts."""

    server_id: str
    origin: Origin
    time_us: int

    @property
    def position(self) -> Position:
        return (self.time_us, self.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin(ControlFact):
    """An operator decided on a value of a tool under one scheme.

    Args:
        act: ``set``: this value is approved, in place of the one before; ``reject``: this value must not be;
            ``remove``: the decision on this value is taken back, without a value the pin of the scheme.
        value: the value, as its scheme prints it; ``None`` only where a pin is removed.
        upstream: what MCP Hangar binds an approved value to, if it was imported with that.
    """

    tool_name: str
    scheme: str
    act: PinAct
    value: str | None
    author: str
    reason: str
    upstream: str | None = None

    def key(self) -> FactKey:
        return ("pin", self.server_id, self.tool_name, self.scheme, *self.origin)

    def value_json(self) -> dict[str, Any]:
        return {
            "time_us": self.time_us,
            "act": self.act,
            "value": self.value,
            "author": self.author,
            "reason": self.reason,
        } | ({} if self.upstream is None else {"upstream": self.upstream})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(ControlFact):
    """An operator set the digest policy of a server, or of one of its tools."""

    tool_name: str | None
    enforcement: str
    unknown: str
    author: str
    reason: str

    def key(self) -> FactKey:
        return ("policy", self.server_id, *self.origin)

    def value_json(self) -> dict[str, Any]:
        return {
            "time_us": self.time_us,
            "tool_name": self.tool_name,
            "enforcement": self.enforcement,
            "unknown": self.unknown,
            "author": self.author,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDecision(ControlFact):
    """An operator accepted a key for a domain, or revoked it for the server."""

    act: KeyAct
    fingerprint: str
    domain: str | None
    tool_name: str | None
    author: str
    reason: str

    def covers(self, domain: str, tool_name: str) -> bool:
        """Tell whether an acceptance speaks of a tool of a domain."""
        return self.domain == domain and self.tool_name in (None, tool_name)

    def key(self) -> FactKey:
        return ("key_decision", self.server_id, *self.origin)

    def value_json(self) -> dict[str, Any]:
        return {
            "time_us": self.time_us,
            "act": self.act,
            "fingerprint": self.fingerprint,
            "domain": self.domain,
            "tool_name": self.tool_name,
            "author": self.author,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery(ControlFact):
    """What was found at a domain: a key document, one that is none, or nothing."""

    domain: str
    status: DiscoveryStatus
    fingerprint: str | None = None
    public_key_pem: str | None = None
    revoked: tuple[str, ...] = ()

    def says_the_same(self, other: Discovery) -> bool:
        """Tell whether another discovery found the same."""
        return (self.status, self.public_key_pem, self.revoked) == (
            other.status,
            other.public_key_pem,
            other.revoked,
        )

    def key(self) -> FactKey:
        return ("discovery", self.server_id, self.domain, *self.origin)

    def value_json(self) -> dict[str, Any]:
        return {
            "time_us": self.time_us,
            "status": self.status,
            "fingerprint": self.fingerprint,
            "public_key_pem": self.public_key_pem,
            "revoked": list(self.revoked),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressionDecision(ControlFact):
    """An operator set a suppression rule, or took it back. It is for the alert stage: no fact is made of it."""

    is_set: bool
    id: str
    tool: str | None
    kind: str | None
    field: str | None
    until_us: int | None
    author: str
    reason: str


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

    def as_json(self, tool_name: str) -> list[Any]:
        """Return the entry of a tool."""
        return [tool_name, *self[:3], *([dict(self.claims)] if self.claims else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatures:
    """The signatures that came with one catalogue.

    Args:
        server_id: the server.
        digest: digest of the set, which covers what was signed.
        tools: the signatures by tool name.
    """

    server_id: str
    digest: str
    tools: Mapping[str, Signed]

    def key(self) -> FactKey:
        return ("signatures", self.server_id, self.digest)

    def value_json(self) -> dict[str, Any]:
        return {"tools": sorted(entry.as_json(name) for name, entry in self.tools.items())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A set of signatures held against one key: tool name to the hashing mode found, for those that match."""

    server_id: str
    signatures: str
    fingerprint: str
    modes: Mapping[str, str]

    def key(self) -> FactKey:
        return ("checked", self.server_id, self.signatures, self.fingerprint)

    def value_json(self) -> dict[str, Any]:
        return {"modes": sorted(self.modes.items())}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstUse(ControlFact):
    """The key of a domain that the first matching signature of a tool was made with: trust on first use."""

    domain: str
    tool_name: str
    fingerprint: str

    def key(self) -> FactKey:
        return ("first_use", self.server_id, self.domain, self.tool_name)

    def value_json(self) -> dict[str, Any]:
        return {"time_us": self.time_us, "origin": list(self.origin), "fingerprint": self.fingerprint}


AnyControlFact = Pin | Policy | KeyDecision | Discovery | Signatures | Checked | FirstUse


def origin_of_key(place: Sequence[str | int | bool]) -> Origin:
    """Return the origin that the last three parts of a fact's key name.

    Args:
        place: topic, partition and offset.
    """
    topic, partition, offset = place
    return Origin(topic=str(topic), partition=int(partition), offset=int(offset))


def read_pin(key: FactKey, value: dict[str, Any]) -> Pin:
    """Return the pin decision that a key and a value hold."""
    _, server_id, tool_name, scheme, *place = key
    return Pin(
        server_id=str(server_id),
        tool_name=str(tool_name),
        scheme=str(scheme),
        origin=origin_of_key(place),
        **value,
    )


def read_policy(key: FactKey, value: dict[str, Any]) -> Policy:
    """Return the policy that a key and a value hold."""
    _, server_id, *place = key
    return Policy(server_id=str(server_id), origin=origin_of_key(place), **value)


def read_key_decision(key: FactKey, value: dict[str, Any]) -> KeyDecision:
    """Return the key decision that a key and a value hold."""
    _, server_id, *place = key
    return KeyDecision(server_id=str(server_id), origin=origin_of_key(place), **value)


def read_discovery(key: FactKey, value: dict[str, Any]) -> Discovery:
    """Return the discovery that a key and a value hold."""
    _, server_id, domain, *place = key
    value["revoked"] = tuple(value["revoked"])
    return Discovery(server_id=str(server_id), domain=str(domain), origin=origin_of_key(place), **value)


def read_signatures(key: FactKey, value: dict[str, Any]) -> Signatures:
    """Return the set of signatures that a key and a value hold."""
    _, server_id, digest = key
    tools = {name: Signed(*entry) for name, *entry in value["tools"]}
    return Signatures(server_id=str(server_id), digest=str(digest), tools=tools)


def read_checked(key: FactKey, value: dict[str, Any]) -> Checked:
    """Return the result of a check that a key and a value hold."""
    _, server_id, signatures, fingerprint = key
    return Checked(
        server_id=str(server_id),
        signatures=str(signatures),
        fingerprint=str(fingerprint),
        modes=dict(value["modes"]),
    )


def read_first_use(key: FactKey, value: dict[str, Any]) -> FirstUse:
    """Return the first use that a key and a value hold."""
    _, server_id, domain, tool_name = key
    return FirstUse(
        server_id=str(server_id),
        domain=str(domain),
        tool_name=str(tool_name),
        origin=origin_of_key(value["origin"]),
        time_us=value["time_us"],
        fingerprint=value["fingerprint"],
    )
