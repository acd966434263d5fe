"""The models of control records: operators' decisions, and key documents as they were observed.

They are records in the log rather than settings on a host, and take effect from their own event time, so that a
replay agrees with the live run.
"""

from typing import Annotated, Any, Literal

from pydantic import StringConstraints, ValidationInfo, create_model, field_validator

from assay_stream.errors import InputError
from assay_stream.model.fields import (
    AgentName,
    BareHex,
    Count,
    Enforcement,
    Identifier,
    KeyFingerprint,
    Scheme,
    ScopeField,
    ShortText,
    Timestamp,
    compile_glob,
)
from assay_stream.model.kinds import Kind
from assay_stream.model.observation import Envelope, Model
from assay_stream.schemes.pin_values import printed_value

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

UnknownAccepted = Literal["allow_degraded", "allow_unverified", "warn", "block"]
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
    unknown: UnknownAccepted


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


class SuppressionSetData(SuppressionRemoveData):
    """What an operator does not want to be alerted of. What is left out applies to all."""

    tool: ShortText | None = None
    kind: Kind | None = None
    field: ShortText | None = None
    detection: AgentName | None = None
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


class ErasureSetData(HoldSetData):
    """Calls that are erased, and their evidence, by event time.

    ``records``: how many records of evidence stood in the scope when it was decided: no more can go on its account.
    """

    records: Count

    @field_validator("scope")
    @classmethod
    def _is_bounded(cls, value: ScopeField) -> ScopeField:
        if not (value.get("server_id") or value.get("agent_id")) or not value.get("to_time"):
            raise ValueError("an erasure names a server or an agent, and the time up to which it goes")
        return value


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
