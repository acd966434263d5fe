"""MCPTrust's drift: what differs between a lock and a server's lists, and how severe each difference is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

from assay_stream.schemes.mcptrust.hashes import normalized_hash
from assay_stream.schemes.mcptrust.lockfile import Entry, Lock, Manifest
from assay_stream.schemes.mcptrust.lockfile import lock as lock_of


class McpTrustSeverity(IntEnum):
    """Severity of a difference. ``info`` is also what MCPTrust prints for *safe*."""

    INFO = 0
    MODERATE = 1
    CRITICAL = 2

    def __str__(self) -> str:
        return self.name.lower()


class DifferenceKind(StrEnum):
    TOOL_ADDED = "tool_added"
    TOOL_REMOVED = "tool_removed"
    TOOL_DESCRIPTION = "tool_description_changed"
    TOOL_SCHEMA = "tool_schema_changed"
    TOOL_RISK = "tool_risk_level_changed"
    PROMPT_ADDED = "prompt_added"
    PROMPT_REMOVED = "prompt_removed"
    PROMPT_ARGUMENTS = "prompt_arguments_changed"
    PROMPT_DESCRIPTION = "prompt_description_changed"
    TEMPLATE_ADDED = "template_added"
    TEMPLATE_REMOVED = "template_removed"
    TEMPLATE_CHANGED = "template_changed"


_INFO, _MODERATE, _CRITICAL = McpTrustSeverity
_TABLE: tuple[tuple[DifferenceKind, str, McpTrustSeverity | None, McpTrustSeverity], ...] = (
    (DifferenceKind.TOOL_ADDED, "TOOL_ADDED", _CRITICAL, _CRITICAL),
    (DifferenceKind.TOOL_REMOVED, "TOOL_REMOVED", _CRITICAL, _INFO),
    (DifferenceKind.TOOL_DESCRIPTION, "TOOL_CHANGED", _MODERATE, _INFO),
    (DifferenceKind.TOOL_SCHEMA, "TOOL_CHANGED", _CRITICAL, _CRITICAL),
    (DifferenceKind.TOOL_RISK, "TOOL_RISK_LEVEL_CHANGED", None, _CRITICAL),
    (DifferenceKind.PROMPT_ADDED, "PROMPT_ADDED", _CRITICAL, _CRITICAL),
    (DifferenceKind.PROMPT_REMOVED, "PROMPT_REMOVED", _CRITICAL, _CRITICAL),
    (DifferenceKind.PROMPT_ARGUMENTS, "PROMPT_ARGS_CHANGED", _CRITICAL, _INFO),
    (DifferenceKind.PROMPT_DESCRIPTION, "PROMPT_DESC_CHANGED", _MODERATE, _INFO),
    (DifferenceKind.TEMPLATE_ADDED, "TEMPLATE_ADDED", _CRITICAL, _CRITICAL),
    (DifferenceKind.TEMPLATE_REMOVED, "TEMPLATE_REMOVED", _CRITICAL, _CRITICAL),
    (DifferenceKind.TEMPLATE_CHANGED, "TEMPLATE_CHANGED", _CRITICAL, _INFO),
)
"""Each change with its drift type in a v3 check, the severity that MCPTrust's code assigns, and the one that it
publishes.

A v3 check has no type for the risk level; that name is ours, and the code reports no change of it there. What is
published is silent on prompts and templates that come or go: there the code's severities stand.
"""

_TYPES = {change: name for change, name, *_ in _TABLE}
CODE: Mapping[DifferenceKind, McpTrustSeverity] = {
    change: found for change, *_, found, _ in _TABLE if found is not None
}
PUBLISHED: Mapping[DifferenceKind, McpTrustSeverity] = {change: found for change, *_, found in _TABLE}
PROFILES: Mapping[str, Mapping[DifferenceKind, McpTrustSeverity]] = {"mcptrust": PUBLISHED, "mcptrust-code": CODE}
"""The severity tables by profile name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftItem:
    """One difference.

    Args:
        identifier: name of the tool or prompt, or the URI template.
        old: the locked value, empty if there was none.
        new: the observed value, empty if there is none.
    """

    change: DifferenceKind
    identifier: str
    old: str = ""
    new: str = ""

    @property
    def type(self) -> str:
        """The drift type as printed by a v3 check."""
        return _TYPES[self.change]


def drift(before: Lock, after: Manifest) -> tuple[DriftItem, ...]:
    """Return the differences between a lock and a server's lists, sorted by type and identifier.

    Only what the lock covers is compared; a prompt's description only if it was locked.

    Args:
        after: ``{"tools": [...], "prompts": [...], "resourceTemplates": [...]}``.

    Raises:
        InputError: as ``mcptrust_lock.lock``.
    """
    observed = lock_of(after)
    items: list[DriftItem] = []
    for part, (added, removed, compared) in _PARTS.items():
        old, new = getattr(before, part), getattr(observed, part)
        if old is None:
            continue
        items += (DriftItem(change=added, identifier=name) for name in new.keys() - old.keys())
        items += (DriftItem(change=removed, identifier=name) for name in old.keys() - new.keys())
        for name in old.keys() & new.keys():
            items += _changes(name, old[name], new[name], compared)
    return tuple(sorted(items, key=lambda item: (item.type, item.identifier)))


def check_result(
    items: Sequence[DriftItem], *, server: str, lockfile: str, fail_on: McpTrustSeverity = McpTrustSeverity.CRITICAL
) -> dict[str, Any]:
    """Return drift in the format of a v3 check, with the severities of its code; the messages are ours."""
    reported = [(item, CODE[item.change]) for item in items if item.change in CODE]
    counts = {
        str(severity): sum(found is severity for _, found in reported)
        for severity in sorted(McpTrustSeverity, reverse=True)
    }
    return {
        "lockfileVersion": "3.0",
        "server": server,
        "lockfile": lockfile,
        "summary": counts | {"total": len(reported)},
        "drift": [_as_json(item, severity) for item, severity in reported],
        "failOn": str(fail_on),
        "outcome": "FAIL" if any(severity >= fail_on for _, severity in reported) else "PASS",
    }


def _as_json(item: DriftItem, severity: McpTrustSeverity) -> dict[str, str]:
    hashes = {"oldHash": item.old, "newHash": item.new}
    return {
        "type": item.type,
        "severity": str(severity),
        "identifier": item.identifier,
        **{name: value for name, value in hashes.items() if value},
        "message": f"{item.change.value.replace('_', ' ')}: {item.identifier}",
    }


_Compared = Mapping[DifferenceKind, str]
_PARTS: Mapping[str, tuple[DifferenceKind, DifferenceKind, _Compared]] = {
    "tools": (
        DifferenceKind.TOOL_ADDED,
        DifferenceKind.TOOL_REMOVED,
        {
            DifferenceKind.TOOL_DESCRIPTION: "description_hash",
            DifferenceKind.TOOL_SCHEMA: "input_schema_hash",
            DifferenceKind.TOOL_RISK: "risk_level",
        },
    ),
    "prompts": (
        DifferenceKind.PROMPT_ADDED,
        DifferenceKind.PROMPT_REMOVED,
        {DifferenceKind.PROMPT_ARGUMENTS: "argumentsHash", DifferenceKind.PROMPT_DESCRIPTION: "descriptionHash"},
    ),
    "templates": (
        DifferenceKind.TEMPLATE_ADDED,
        DifferenceKind.TEMPLATE_REMOVED,
        {DifferenceKind.TEMPLATE_CHANGED: "templateHash"},
    ),
}
"""What comes and goes in each part of a lock, and the members of an entry that are compared."""


def _changes(name: str, before: Entry, after: Entry, compared: _Compared) -> Iterable[DriftItem]:
    for change, member in compared.items():
        old, new = before.get(member, ""), after.get(member, "")
        if change is DifferenceKind.PROMPT_DESCRIPTION:
            if not old:
                continue
            # One that went away hashes as the empty text.
            new = new or normalized_hash("")
        if old != new:
            yield DriftItem(change=change, identifier=name, old=old, new=new)
