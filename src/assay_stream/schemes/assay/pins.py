"""Assay tool pins: the identity of a tool as an operator pinned it, held against what was observed.

Source: Rul1an/assay, ``ToolIdentity`` and ``tool_pins``. Two gaps of it are closed here: a pin names its server,
and a pinned tool that was never observed is an outcome of its own.
"""

import re
from dataclasses import dataclass, fields
from enum import StrEnum

from assay_stream.errors import InputError
from assay_stream.schemes.assay.tool import Tool, meta_hash, name_of, schema_hash

TOOL_DRIFT = "P_TOOL_DRIFT"
"""Assay's reason code for a call to a tool whose identity is not the pinned one."""

TOOL_UNOBSERVED = "P_TOOL_UNOBSERVED"
"""Assay's reason code for a call to a pinned tool of which no observation is in force."""

_IDENTITY_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedIdentity:
    """Assay's identity of a tool, as it is pinned and as it is observed.

    Args:
        schema_hash: ``schema_hash`` of its definition, 64 lowercase hexadecimal digits.

    Raises:
        InputError: ``bad_format``: a hash is written otherwise.
    """

    server_id: str
    tool_name: str
    schema_hash: str
    meta_hash: str

    def __post_init__(self) -> None:
        for name in ("schema_hash", "meta_hash"):
            if not _IDENTITY_HASH.fullmatch(getattr(self, name)):
                raise InputError("bad_format", "a pinned hash is 64 lowercase hexadecimal digits", path=f"$.{name}")


def tool_identity(tool: Tool, *, server_id: str) -> PinnedIdentity:
    """Return the identity of an observed tool.

    Raises:
        InputError: ``tool_name_missing`` or ``lone_surrogate``, or as ``canonicalize``.
    """
    return PinnedIdentity(
        server_id=server_id, tool_name=name_of(tool), schema_hash=schema_hash(tool), meta_hash=meta_hash(tool)
    )


class PinOutcome(StrEnum):
    """How a pinned identity stands to what was observed. A match says that they are equal, and nothing more."""

    MATCH = "match"
    DRIFT = "drift"
    UNOBSERVED = "unobserved"


_REASON_CODES = {PinOutcome.DRIFT: TOOL_DRIFT, PinOutcome.UNOBSERVED: TOOL_UNOBSERVED}


@dataclass(frozen=True, slots=True, kw_only=True)
class PinVerdict:
    """What came of holding a pin against an observation."""

    outcome: PinOutcome
    differing: tuple[str, ...] = ()

    @property
    def reason_code(self) -> str | None:
        """Assay's reason code, where it has one for the outcome."""
        return _REASON_CODES.get(self.outcome)


def tool_pin_verdict(identity_expected: PinnedIdentity, identity_observed: PinnedIdentity | None) -> PinVerdict:
    """Hold an observed identity against a pinned one.

    Assay lets a call through unchecked where the pinned tool was never listed; here that is an outcome of its own.
    """
    if identity_observed is None:
        return PinVerdict(outcome=PinOutcome.UNOBSERVED)
    differing = tuple(
        field.name
        for field in fields(PinnedIdentity)
        if getattr(identity_expected, field.name) != getattr(identity_observed, field.name)
    )
    return PinVerdict(outcome=PinOutcome.DRIFT if differing else PinOutcome.MATCH, differing=differing)
