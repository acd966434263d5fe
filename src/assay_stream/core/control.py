"""The models of control records: what an operator sets, as records in the log rather than settings on a host.

A pin takes effect from the control record's own event time, so that a replay agrees with the live run.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints, field_validator

from assay_stream.core.observation import Envelope, Identifier, Model, Text

PIN_SET_TYPE = "assay.control.pin.set"
PIN_REMOVE_TYPE = "assay.control.pin.remove"

Scheme = Literal["assay.v1", "assay.schema_hash", "assay.meta_hash", "assay.p60"]

_BARE_HEX_SCHEMES = frozenset({"assay.schema_hash", "assay.meta_hash"})


class PinData(Model):
    """Who pins which tool, and why."""

    server_id: Identifier
    tool_name: Identifier
    scheme: Scheme
    author: Text
    reason: Text


class PinSetData(PinData):
    """The value a tool must have under one scheme from now on."""

    value: Annotated[str, StringConstraints(pattern=r"^(sha256:)?[0-9a-f]{64}$")]

    @field_validator("value")
    @classmethod
    def _as_the_scheme_prints_it(cls, value: str) -> str:
        return value.removeprefix("sha256:")


class PinSetEvent(Envelope):
    """``assay.control.pin.set``: the operator pins a tool."""

    type: Literal["assay.control.pin.set"]
    data: PinSetData


class PinRemoveEvent(Envelope):
    """``assay.control.pin.remove``: the operator takes a pin back."""

    type: Literal["assay.control.pin.remove"]
    data: PinData


def pinned_value(scheme: str, bare_hex: str) -> str:
    """Return a pin's value as its scheme prints digests.

    Args:
        scheme: a named scheme.
        bare_hex: 64 lowercase hexadecimal digits.
    """
    return bare_hex if scheme in _BARE_HEX_SCHEMES else f"sha256:{bare_hex}"
