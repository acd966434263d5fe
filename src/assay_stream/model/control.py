"""Operators' decisions and observed key documents: the control records, and the facts that follow from them.

Decisions are records in the log rather than settings on a host, and take effect from their own event time, so that a
replay agrees with the live run.

The facts stand in the binding topic beside the others (``model.facts``), under the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, StringConstraints, ValidationInfo, create_model, field_validator

from assay_stream.errors import InputError
from assay_stream.model.fields import (
    ActionText,
    AgentName,
    BareHex,
    Count,
    DigestText,
    Enforcement,
    Identifier,
    KeyFingerprint,
    Micros,
    Natural,
    Scheme,
    SchemeValue,
    ScopeField,
    ShortText,
    Timestamp,
    Unknown,
    compile_glob,
)
from assay_stream.model.kinds import Kind
from assay_stream.model.observation import Envelope, Model
from assay_stream.model.record import Origin
from assay_stream.model.wire import ALWAYS, BaseFact, PlacedFact, Wire, fact, origin_of_key, pairs, write_record
from assay_stream.schemes.assay_tool import TOOL_DRIFT, TOOL_UNOBSERVED
from assay_stream.schemes.fingerprint import printed_value
from assay_stream.schemes.hangar import Action
from assay_stream.schemes.schemapin_canonical import Mode

PIN_SET_TYPE = "assay.control.pin.set"
PIN_REJECT_TYPE = "assay.control.pin.reject"
PIN_REMOVE_TYPE = "assay.control.pin.remove"
POLICY_SET_TYPE = "assay.control.policy.set"
POLICY_REMOVE_TYPE = "assay.control.policy.remove"
KEY_ACCEPT_TYPE = "assay.control.key.accept"
KEY_REVOKE_TYPE = "assay.control.key.revoke"
DISCOVERY_TYPE = "assay.control.discovery.observed"
SUPPRESSION_SET_TYPE = "assay.control.suppression.set"
SUPPRESSION_REMOVE_TYPE = "assay.control.suppression.remove"
HOLD_SET_TYPE = "assay.control.hold.set"
HOLD_REMOVE_TYPE = "assay.control.hold.remove"
ERASURE_SET_TYPE = "assay.control.erasure.set"
ALERT_TYPE = "assay.control.alert."
"""Type of what a person does with an alert, up to the act."""

_UnknownAccepted = Annotated[
    Literal["allow_degraded", "allow_unverified", "warn", "block"],
    AfterValidator(lambda text: "allow_degraded" if text == "allow_unverified" else text),
]
DOMAIN_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?$"
"""A host in lower case, with a port where it is not that of HTTPS."""
Domain = Annotated[str, StringConstraints(pattern=DOMAIN_PATTERN)]
PinValue = Annotated[str, StringConstraints(max_length=128)]


class ControlData(Model):
    """Who decides what about which server, and why."""

    server_id: Identifier
    author: ShortText
    reason: ShortText


class PinRemoveData(ControlData):
    """A decision taken back: on one value, or, without one, the pin of the scheme."""

    tool_name: Identifier
    scheme: Scheme
    value: PinValue | None = None

    @field_validator("value")
    @classmethod
    def _as_the_scheme_prints_it(cls, value: str | None, info: ValidationInfo) -> str | None:
        scheme = info.data.get("scheme")
        try:
            return value if value is None or scheme is None else printed_value(scheme, value)
        except InputError as error:
            # pydantic takes a ValueError for a finding of its own, with the path of the field.
            raise ValueError(error.message) from None


class PinData(PinRemoveData):
    """A decision on one value of a tool under one scheme."""

    value: PinValue


class PinSetData(PinData):
    """An approved value. ``upstream`` is what MCP Hangar binds it to: kept for Hangar, not evaluated here."""

    upstream: ShortText | None = None


class PolicyRemoveData(ControlData):
    """A policy taken back: that of a tool, or of the whole server. Policies of other tools stand."""

    tool_name: Identifier | None = None


class PolicySetData(PolicyRemoveData):
    """What is to happen where a definition differs from its pins, or has none: for a tool, or the whole server."""

    enforcement: Enforcement
    unknown: _UnknownAccepted


class KeyAcceptData(ControlData):
    """A SchemaPin key that an operator accepts for a domain, for one tool or for all of the server's."""

    domain: Domain
    tool_name: Identifier | None = None
    fingerprint: KeyFingerprint


class KeyRevokeData(ControlData):
    """A SchemaPin key that an operator no longer takes for this server, whatever its domain says."""

    fingerprint: KeyFingerprint


class DiscoveryData(Model):
    """A domain's SchemaPin well-known document as somebody fetched it, for the server whose tools it signs."""

    server_id: Identifier
    domain: Domain
    status: Literal["observed", "fetch_failed"]
    document: dict[str, Any] | None = None
    revocations: dict[str, Any] | None = None
    error_code: Literal["discovery_fetch_failed", "discovery_invalid"] | None = None
    detail: ShortText | None = None
    fetched_from: ShortText | None = None


class SuppressionRemoveData(ControlData):
    """A suppression rule taken back. ``server_id`` of ``*`` names a rule for every server."""

    id: Identifier


def _pattern(text: str) -> str:
    try:
        compile_glob(text)
    except InputError as error:
        raise ValueError(error.message) from None
    return text


def _as_a_kind(value: object) -> object:
    # Strict models take no text for a member of an enumeration, and this one comes from JSON.
    return Kind(value) if isinstance(value, str) and value in set(Kind) else value


class SuppressionSetData(SuppressionRemoveData):
    """What an operator does not want to be alerted of. What is left out applies to all."""

    tool: Annotated[ShortText, AfterValidator(_pattern)] | None = None
    kind: Annotated[Kind, BeforeValidator(_as_a_kind)] | None = None
    field: ShortText | None = None
    detection: AgentName | None = None
    until: Timestamp | None = None


class AlertData(ControlData):
    """What a person does with one alert; ``reason`` says why, or is the comment itself."""

    alert: BareHex


class AlertAssignData(AlertData):
    """An alert is given to somebody."""

    assignee: ShortText


class HoldRemoveData(ControlData):
    """A legal hold taken back. Holds and erasures are for ``*``, so that one log has all of them in their order."""

    server_id: Literal["*"]
    id: Identifier


class HoldSetData(HoldRemoveData):
    """What must not be deleted while the hold stands."""

    scope: ScopeField


def _bounded(scope: ScopeField) -> ScopeField:
    if not (scope.get("server_id") or scope.get("agent_id")) or not scope.get("to_time"):
        raise ValueError("an erasure names a server or an agent, and the time up to which it goes")
    return scope


class ErasureSetData(HoldSetData):
    """Calls that are erased, and their evidence, by event time.

    ``records``: how many records of evidence stood in the scope when it was decided: no more can go on its account.
    """

    scope: Annotated[ScopeField, AfterValidator(_bounded)]
    records: Count


class ControlEvent(Envelope):
    """A control record; ``CONTROL_MODELS`` has the class of each type."""

    type: str
    data: Any


_EVENTS: tuple[tuple[str, type[Model], str], ...] = (
    (PIN_SET_TYPE, PinSetData, "from now on the tool must have this value."),
    (PIN_REJECT_TYPE, PinData, "from now on the tool must not have this value."),
    (PIN_REMOVE_TYPE, PinRemoveData, "the operator takes a decision back."),
    (POLICY_SET_TYPE, PolicySetData, "the digest policy of a server or of one of its tools."),
    (POLICY_REMOVE_TYPE, PolicyRemoveData, "the policy is taken back; a tool is then under its server's."),
    (KEY_ACCEPT_TYPE, KeyAcceptData, "the only way by which another key replaces the first one used."),
    (KEY_REVOKE_TYPE, KeyRevokeData, "signatures by this key count no more."),
    (DISCOVERY_TYPE, DiscoveryData, "what was found at a domain. The stream itself never fetches."),
    (SUPPRESSION_SET_TYPE, SuppressionSetData, "alerts that the rule covers are written as suppressed."),
    (SUPPRESSION_REMOVE_TYPE, SuppressionRemoveData, "the rule is taken back."),
    (HOLD_SET_TYPE, HoldSetData, "nothing in the scope may be deleted from now on."),
    (HOLD_REMOVE_TYPE, HoldRemoveData, "the hold is taken back."),
    (ERASURE_SET_TYPE, ErasureSetData, "what the scope covers is erased, on record."),
    (f"{ALERT_TYPE}acknowledge", AlertData, "somebody looks after the alert."),
    (f"{ALERT_TYPE}assign", AlertAssignData, "the alert is given to somebody."),
    (f"{ALERT_TYPE}comment", AlertData, "somebody says something about the alert."),
    (f"{ALERT_TYPE}close", AlertData, "the alert is closed until it is news again."),
    (f"{ALERT_TYPE}reopen", AlertData, "the alert is open again."),
)
CONTROL_MODELS: dict[str, type[ControlEvent]] = {
    kind: create_model(
        kind,
        __base__=ControlEvent,
        __doc__=f"``{kind}``: {purpose}",
        type=(Literal[kind], ...),  # type: ignore[arg-type] # one of the texts above
        data=(data, ...),
    )
    for kind, data, purpose in _EVENTS
}
"""Every event type of the control topic."""


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


class PinStatus(StrEnum):
    """How a definition compares with its pins."""

    UNPINNED = "unpinned"
    MATCH = "match"
    UNOBSERVED = "unobserved"
    MISMATCH = "mismatch"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinResult:
    """How the definition in force compares with its pins. A match says that two values are equal, no more.

    Args:
        status: the result of the pin that says most, of several.
        expected: the approved value under that scheme, if there is one.
        action: what the policy would have done; the stream itself blocks nothing.
    """

    status: PinStatus
    scheme: Annotated[str | None, Wire(Scheme)] = None
    expected: SchemeValue | None = None
    observed: SchemeValue | None = None
    enforcement: Annotated[str | None, Wire(Enforcement)] = None
    action: Annotated[Action | None, Wire(ActionText, lambda action: action.value)] = None

    def as_json(self) -> dict[str, str]:
        reason_code = self.reason_code()
        return write_record(self) | ({} if reason_code is None else {"reason_code": reason_code})

    def reason_code(self) -> str | None:
        """Return Assay's reason code if one of its own pins does not match, or had nothing to match."""
        if not (self.scheme and self.scheme.startswith("assay.")):
            return None
        if self.status is PinStatus.UNOBSERVED:
            return TOOL_UNOBSERVED
        return TOOL_DRIFT if self.status in (PinStatus.MISMATCH, PinStatus.REJECTED) else None


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
"""What one control record becomes, but for those that are for the alert stage alone (``model.finding``)."""
AnyControlFact = Pin | Policy | KeyDecision | Discovery | Signatures | Checked | FirstUse
