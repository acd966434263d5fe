"""The models of control records: what an operator sets, and outside facts as somebody observed them.

They are records in the log rather than settings on a host, and take effect from their own event time, so that a
replay agrees with the live run.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import StringConstraints, ValidationInfo, field_validator

from assay_stream.errors import InputError
from assay_stream.model.fields import Enforcement, Identifier, KeyFingerprint, Scheme, Text, Timestamp
from assay_stream.model.glob import compile_glob
from assay_stream.model.kinds import Kind
from assay_stream.model.observation import Envelope, Model
from assay_stream.schemes.pin_values import printed_value

PIN_SET_TYPE = "assay.control.pin.set"
PIN_REJECT_TYPE = "assay.control.pin.reject"
PIN_REMOVE_TYPE = "assay.control.pin.remove"
POLICY_SET_TYPE = "assay.control.policy.set"
KEY_ACCEPT_TYPE = "assay.control.key.accept"
KEY_REVOKE_TYPE = "assay.control.key.revoke"
DISCOVERY_TYPE = "assay.control.discovery.observed"
SUPPRESSION_SET_TYPE = "assay.control.suppression.set"
SUPPRESSION_REMOVE_TYPE = "assay.control.suppression.remove"

Unknown = Literal["allow_degraded", "allow_unverified", "warn", "block"]
DOMAIN_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?$"
"""A host in lower case, with a port where it is not that of HTTPS."""
Domain = Annotated[str, StringConstraints(pattern=DOMAIN_PATTERN)]
PinValue = Annotated[str, StringConstraints(max_length=128)]


class ControlData(Model):
    """Who decides what about which server, and why."""

    server_id: Identifier
    author: Text
    reason: Text


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

    upstream: Text | None = None


class PinSetEvent(Envelope):
    """``assay.control.pin.set``: from now on the tool must have this value."""

    type: Literal["assay.control.pin.set"]
    data: PinSetData


class PinRejectEvent(Envelope):
    """``assay.control.pin.reject``: from now on the tool must not have this value."""

    type: Literal["assay.control.pin.reject"]
    data: PinData


class PinRemoveEvent(Envelope):
    """``assay.control.pin.remove``: the operator takes a decision back."""

    type: Literal["assay.control.pin.remove"]
    data: PinRemoveData


class PolicySetData(ControlData):
    """What is to happen where a definition differs from its pins, or has none: for a tool, or the whole server."""

    tool_name: Identifier | None = None
    enforcement: Enforcement
    unknown: Unknown


class PolicySetEvent(Envelope):
    """``assay.control.policy.set``: the digest policy of a server or of one of its tools."""

    type: Literal["assay.control.policy.set"]
    data: PolicySetData


class KeyAcceptData(ControlData):
    """A SchemaPin key that an operator accepts for a domain, for one tool or for all of the server's."""

    domain: Domain
    tool_name: Identifier | None = None
    fingerprint: KeyFingerprint


class KeyAcceptEvent(Envelope):
    """``assay.control.key.accept``: the only way by which another key replaces the first one used."""

    type: Literal["assay.control.key.accept"]
    data: KeyAcceptData


class KeyRevokeData(ControlData):
    """A SchemaPin key that an operator no longer takes for this server, whatever its domain says."""

    fingerprint: KeyFingerprint


class KeyRevokeEvent(Envelope):
    """``assay.control.key.revoke``: signatures by this key count no more."""

    type: Literal["assay.control.key.revoke"]
    data: KeyRevokeData


class DiscoveryData(Model):
    """A domain's SchemaPin well-known document as somebody fetched it, for the server whose tools it signs."""

    server_id: Identifier
    domain: Domain
    status: Literal["observed", "fetch_failed"]
    document: dict[str, Any] | None = None
    revocations: dict[str, Any] | None = None
    error_code: Literal["discovery_fetch_failed", "discovery_invalid"] | None = None
    detail: Text | None = None
    fetched_from: Text | None = None


class DiscoveryEvent(Envelope):
    """``assay.control.discovery.observed``: what was found at a domain. The stream itself never fetches."""

    type: Literal["assay.control.discovery.observed"]
    data: DiscoveryData


class SuppressionRemoveData(ControlData):
    """A suppression rule taken back. ``server_id`` of ``*`` names a rule for every server."""

    id: Identifier


class SuppressionSetData(SuppressionRemoveData):
    """What an operator does not want to be alerted of. What is left out applies to all."""

    tool: Text | None = None
    kind: Kind | None = None
    field: Text | None = None
    until: Timestamp | None = None

    @field_validator("kind", mode="before")
    @classmethod
    def _as_a_kind(cls, value: object) -> object:
        # Strict models take no text for a member of an enumeration, and this one comes from JSON.
        return Kind(value) if isinstance(value, str) and value in set(Kind) else value

    @field_validator("tool")
    @classmethod
    def _is_a_pattern(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                compile_glob(value)
            except InputError as error:
                raise ValueError(error.message) from None
        return value


class SuppressionSetEvent(Envelope):
    """``assay.control.suppression.set``: alerts that the rule covers are written as suppressed."""

    type: Literal["assay.control.suppression.set"]
    data: SuppressionSetData


class SuppressionRemoveEvent(Envelope):
    """``assay.control.suppression.remove``: the rule is taken back."""

    type: Literal["assay.control.suppression.remove"]
    data: SuppressionRemoveData


PinEvent = PinSetEvent | PinRejectEvent | PinRemoveEvent
SuppressionEvent = SuppressionSetEvent | SuppressionRemoveEvent
ControlEvent = PinEvent | PolicySetEvent | KeyAcceptEvent | KeyRevokeEvent | DiscoveryEvent | SuppressionEvent

CONTROL_MODELS: dict[str, type[Envelope]] = {
    PIN_SET_TYPE: PinSetEvent,
    PIN_REJECT_TYPE: PinRejectEvent,
    PIN_REMOVE_TYPE: PinRemoveEvent,
    POLICY_SET_TYPE: PolicySetEvent,
    KEY_ACCEPT_TYPE: KeyAcceptEvent,
    KEY_REVOKE_TYPE: KeyRevokeEvent,
    DISCOVERY_TYPE: DiscoveryEvent,
    SUPPRESSION_SET_TYPE: SuppressionSetEvent,
    SUPPRESSION_REMOVE_TYPE: SuppressionRemoveEvent,
}
"""Every event type of the control topic."""
