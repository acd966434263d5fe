"""MCP Hangar (mcp-hangar/mcp-hangar): both tool digests, and the digest policy."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any

from assay_stream.canonical.digest import jcs_digest, plain_form
from assay_stream.errors import InputError
from assay_stream.schemes.assay_tool import Tool

_COVERED = ("description", "inputSchema", "outputSchema")
"""What a digest covers beside the name. Only these spellings count."""
_ABSENT: tuple[Any, ...] = (None, "", {}, [])


def digest_v1_2(tool: Tool) -> str:
    """Return the tool digest as Hangar computed it up to 1.2.0 (scheme ``hangar.v1_2``), bare hexadecimal.

    Sorted JSON, everything but printable ASCII escaped; only ``null`` counts as absent. Numbers are formatted as Python
    prints them, so ``1`` and ``1.0`` differ.

    Raises:
        InputError: ``tool_name_missing``, ``not_canonicalizable`` or ``too_deep``.
    """
    if not tool.get("name"):
        raise _nameless()
    covered = {"name": tool["name"]} | {name: tool[name] for name in _COVERED if tool.get(name) is not None}
    return sha256(_ascii_form(covered)).hexdigest()


def digest_v2(tool: Tool) -> str:
    """Return the tool digest as Hangar computes it since 1.2.1 (scheme ``hangar.v2``), bare hexadecimal.

    Canonical JSON (RFC 8785); ``null``, ``""``, ``{}`` and ``[]`` all count as absent.

    Raises:
        InputError: ``tool_name_missing``, or as ``canonicalize``.
    """
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise _nameless()
    covered = {"name": name} | {name: tool[name] for name in _COVERED if tool.get(name) not in _ABSENT}
    return jcs_digest(covered).hex


def _ascii_form(covered: dict[str, Any]) -> bytes:
    try:
        form = plain_form(covered)
    except InputError:
        form = None
    # Printable ASCII is written alike; it is most often all there is, and its form is known already.
    if form is not None and form.isascii() and b"\x7f" not in form:
        return form
    try:
        text = json.dumps(covered, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise InputError("too_deep", "the value is nested too deeply") from None
    except (TypeError, ValueError):
        raise InputError("not_canonicalizable", "the value is not JSON, or a number is not finite") from None
    return text.encode("ascii")


def _nameless() -> InputError:
    return InputError("tool_name_missing", "a tool without a name has no digest", path="$.name")


class Action(StrEnum):
    """What to do with a call of the tool."""

    ALLOW = "allow"
    WARN = "warn"
    BLOCK = "block"


_ACTIONS = {
    **dict.fromkeys(("audit", "allow_degraded", "allow_unverified"), Action.ALLOW),
    "warn": Action.WARN,
    "block": Action.BLOCK,
}
"""The action of each setting. ``allow_unverified`` is Hangar's later name for ``allow_degraded``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestPolicy:
    """How strictly observed digests are enforced against approved ones (our pins).

    The defaults are those of Hangar's own gate: a mismatch blocks, a tool without a pin passes.

    Args:
        enforcement: what to do on a mismatch: ``audit``, ``warn`` or ``block``.
        unknown: what to do with a tool that has no pin, or is pinned but was not observed: ``allow_degraded``, ``warn``
            or ``block``.

    Raises:
        KeyError: for another setting.
    """

    enforcement: str = "block"
    unknown: str = "allow_degraded"
    on_mismatch: Action = field(init=False, compare=False)
    on_unknown: Action = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "on_mismatch", _ACTIONS[self.enforcement])
        object.__setattr__(self, "on_unknown", _ACTIONS[self.unknown])
