"""Handshake (Nuntissura/Handshake): what a tool declares under ``_meta.handshake``, and how it may change.

The contract is part of a definition written by the server: it is a claim, no more. Rules of change: side effect and
required capabilities stay the same within a MAJOR version, and versions do not go back.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from semver import Version

from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.schemes.handshake.event import IDEMPOTENCIES, SIDE_EFFECTS, TOOL_ID
from assay_stream.schemes.semver import parse_version

Tool = Mapping[str, Any]

DETERMINISMS = ("DETERMINISTIC", "BEST_EFFORT", "NON_DETERMINISTIC")
AVAILABILITIES = ("OFFLINE_OK", "REQUIRES_NETWORK", "BEST_EFFORT_OFFLINE")
PATH = "$._meta.handshake"

VERSION_MISSING = "tool_version_missing"
VERSION_REGRESSED = "tool_version_regressed"
SIDE_EFFECT_CHANGED = "side_effect_changed_without_major"
CAPABILITIES_CHANGED = "required_capabilities_changed_without_major"
CONTRACT_REMOVED = "contract_removed"
DRIFT_CODES = (VERSION_MISSING, VERSION_REGRESSED, SIDE_EFFECT_CHANGED, CAPABILITIES_CHANGED, CONTRACT_REMOVED)
"""Every code of a contract's drift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractProblem:
    """A problem with one field of a contract.

    Args:
        message: what is wrong, without the server's own text.
    """

    code: str
    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """Declarations of a tool. A missing or malformed field is ``None`` and listed in ``problems``.

    Args:
        side_effect: one of ``SIDE_EFFECTS``.
        idempotency: one of ``IDEMPOTENCIES``.
        determinism: one of ``DETERMINISMS``.
        availability: one of ``AVAILABILITIES``.
        required_capabilities: sorted, without duplicates; empty if the tool declares that it needs none.
        sunset_on: removal date, ``YYYY-MM-DD``.
        replaced_by: the id of the tool to use instead.
    """

    tool_version: Version | None = None
    side_effect: str | None = None
    idempotency: str | None = None
    determinism: str | None = None
    availability: str | None = None
    required_capabilities: tuple[str, ...] | None = None
    deprecated_since: Version | None = None
    sunset_on: str | None = None
    replaced_by: str | None = None
    problems: tuple[ContractProblem, ...] = ()


def contract(tool: Tool) -> Contract | None:
    """Parse the contract of a tool, ``None`` if it declares none. Never raises, whatever the server sent."""
    meta = tool.get("_meta")
    if not isinstance(meta, Mapping) or "handshake" not in meta:
        return None
    declared = meta["handshake"]
    if not isinstance(declared, Mapping):
        problem = ContractProblem(code="wrong_type", path=PATH, message="the contract must be an object")
        return Contract(problems=(problem,))
    values: dict[str, Any] = {}
    problems: list[ContractProblem] = []
    for name, read in _FIELDS.items():
        value = declared.get(name)
        try:
            if value is not None:
                values[name] = read(value)
            elif name in _REQUIRED:
                raise InputError("missing_field", "the field is required")
        except InputError as error:
            problems.append(ContractProblem(code=error.code, path=f"{PATH}.{name}", message=error.message))
    if declared.get("deprecated_since") is not None and declared.get("sunset_on") is None:
        message = "a deprecated tool must say when it goes"
        problems.append(ContractProblem(code="missing_field", path=f"{PATH}.sunset_on", message=message))
    return Contract(problems=tuple(problems), **values)


def contract_drift(before: Contract | None, after: Contract | None) -> list[str]:
    """Return codes for the changes that break the rules.

    A change of MAJOR, in either direction, is a new contract. If the versions do not show one, the old contract holds.
    What was not declared before was not promised, so declaring it breaks nothing.
    """
    if before is None:
        return []
    if after is None:
        return [CONTRACT_REMOVED]
    codes = []
    old, new = before.tool_version, after.tool_version
    if new is None:
        codes.append(VERSION_MISSING)
    elif old is not None and new < old:
        codes.append(VERSION_REGRESSED)
    if old is not None and new is not None and old.major != new.major:
        return codes
    if before.side_effect not in (None, after.side_effect):
        codes.append(SIDE_EFFECT_CHANGED)
    if before.required_capabilities not in (None, after.required_capabilities):
        codes.append(CAPABILITIES_CHANGED)
    return codes


def is_denied_by_default(declared: Contract | None) -> bool:
    """Return True if a tool must be denied by default: its contract does not declare effects and capabilities."""
    return declared is None or declared.side_effect is None or declared.required_capabilities is None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InputError("wrong_type", "must be a string")
    if not value.strip():
        raise InputError("empty_value", "the text must not be empty")
    if len(value) > DEFAULT_LIMITS.contract_text_chars_max:
        raise InputError("too_long", f"the text has {DEFAULT_LIMITS.contract_text_chars_max} characters at most")
    return value


def _version(value: Any) -> Version:
    return parse_version(_text(value))


def _one_of(allowed: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = _text(value)
        if text not in allowed:
            raise InputError("unknown_value", f"must be one of {', '.join(allowed)}")
        return text

    return read


def _capabilities(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError("wrong_type", "must be a list of strings")
    if len(value) > DEFAULT_LIMITS.capabilities_max:
        raise InputError("too_many", f"a tool may require {DEFAULT_LIMITS.capabilities_max} capabilities at most")
    return tuple(sorted({_text(item) for item in value}))


def _day(value: Any) -> str:
    text = _text(value)
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            return date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise InputError("bad_format", "must be a day that exists, as YYYY-MM-DD")


def _tool_id(value: Any) -> str:
    text = _text(value)
    if not re.fullmatch(TOOL_ID, text):
        raise InputError("bad_format", "must be a tool id: lowercase words joined by dots, two at least")
    return text


_FIELDS: dict[str, Callable[[Any], Any]] = {
    "tool_version": _version,
    "side_effect": _one_of(SIDE_EFFECTS),
    "idempotency": _one_of(IDEMPOTENCIES),
    "determinism": _one_of(DETERMINISMS),
    "availability": _one_of(AVAILABILITIES),
    "required_capabilities": _capabilities,
    "deprecated_since": _version,
    "sunset_on": _day,
    "replaced_by": _tool_id,
}
_REQUIRED = ("tool_version", "side_effect", "idempotency", "determinism", "availability", "required_capabilities")
