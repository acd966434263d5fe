"""Who judges an arrival: our system and the two baselines, each as one function that gives a level.

``ours`` is what ``score`` measures as our system. Swap it in the first line of ``JUDGES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay_stream.core.digest import jcs_digest
from assay_stream.core.introduced import signs_between
from assay_stream.core.words import other_forms, plain_form, visible
from assay_stream.schemes import mcptrust_drift

Tool = Mapping[str, Any]

INFORMATIONAL, LOW, MEDIUM, HIGH, CRITICAL = range(1, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What else is known when a list arrives.

    Args:
        known: digests of every definition that any observer has seen on this server.
        others: the tools of other servers.
        is_complete: whether the list that arrived is complete.
    """

    known: frozenset[str] = frozenset()
    others: Sequence[Tool] = field(default_factory=tuple)
    is_complete: bool = True


Judge = Callable[[Sequence[Tool], Sequence[Tool], Fleet], int]
"""The level of the gravest thing that an arrival shows; 0 where it shows nothing."""


def any_change(before: Sequence[Tool], after: Sequence[Tool], fleet: Fleet) -> int:  # noqa: ARG001 -- a Judge
    """Judge as a plain comparison does: whatever differs is an alert.

    Args:
        before: what the observer had seen.
        after: what it sees.
        fleet: not looked at.
    """
    return HIGH if [jcs_digest(tool) for tool in before] != [jcs_digest(tool) for tool in after] else 0


_MCPTRUST_LEVELS = {
    mcptrust_drift.Severity.INFO: INFORMATIONAL,
    mcptrust_drift.Severity.MODERATE: MEDIUM,
    mcptrust_drift.Severity.CRITICAL: CRITICAL,
}


def mcptrust(before: Sequence[Tool], after: Sequence[Tool], fleet: Fleet) -> int:  # noqa: ARG001 -- a Judge
    """Judge by the severity table that MCPTrust publishes.

    Args:
        before: what the observer had seen.
        after: what it sees.
        fleet: not looked at.
    """
    items = mcptrust_drift.drift_between({"tools": list(before)}, {"tools": list(after)})
    return max((_MCPTRUST_LEVELS[mcptrust_drift.PUBLISHED[item.change]] for item in items), default=0)


def signs_and_shape(before: Sequence[Tool], after: Sequence[Tool], fleet: Fleet) -> int:
    """Judge by the signs in new text, with a plain stand-in for what changed besides.

    Args:
        before: what the observer had seen.
        after: what it sees.
        fleet: what the fleet knows.
    """
    older = {tool["name"]: tool for tool in before}
    level = LOW if fleet.is_complete and older.keys() - {tool["name"] for tool in after} else 0
    gone = [tool for name, tool in older.items() if name not in {each["name"] for each in after}]
    for tool in after:
        if older.get(tool["name"]) == tool:
            continue
        if str(jcs_digest(tool)) in fleet.known:
            level = max(level, INFORMATIONAL)
            continue
        old = older.get(tool["name"])
        compared = old if old is not None else _renamed(tool, gone)
        names = {each["name"] for each in (*after, *fleet.others)}
        signs = signs_between(compared, tool, tool_names=names)
        level = max(level, _shape(old, tool, fleet), *(sign.level for sign in signs), LOW)
    return level


def _renamed(tool: Tool, gone: Sequence[Tool]) -> Tool | None:
    """The tool that went away with the same input schema: then only what it brought besides is new."""
    return next((each for each in gone if each.get("inputSchema") == tool.get("inputSchema")), None)


def _shape(old: Tool | None, new: Tool, fleet: Fleet) -> int:
    if old is None:
        return HIGH if _skeleton(new["name"]) in {_skeleton(tool["name"]) for tool in fleet.others} else LOW
    return max(_hints(old, new), _schema(old, new))


def _skeleton(name: str) -> str:
    plain = plain_form(visible(name))
    return "".join(char for char in next(iter(other_forms(plain)), plain) if char.isalnum())


def _hints(old: Tool, new: Tool) -> int:
    was, now = old.get("annotations") or {}, new.get("annotations") or {}
    flipped = [hint for hint in ("readOnlyHint", "destructiveHint") if hint in was and was[hint] != now.get(hint)]
    return HIGH if flipped else 0


def _schema(old: Tool, new: Tool) -> int:
    was, now = old.get("inputSchema") or {}, new.get("inputSchema") or {}
    known = was.get("properties", {})
    if set(now.get("required", ())) - set(was.get("required", ())):
        return MEDIUM
    for name, schema in now.get("properties", {}).items():
        if name in known and any(bound in known[name] and bound not in schema for bound in ("enum", "pattern")):
            return HIGH
    return 0


JUDGES: dict[str, Judge] = {
    "assay-stream": signs_and_shape,
    "any change": any_change,
    "mcptrust": mcptrust,
}
"""Who is scored, by the name in the table."""
