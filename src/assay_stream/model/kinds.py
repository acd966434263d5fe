"""Every kind of finding: what it means, how severe it is by itself, and what to do next (``kinds.toml``)."""

import tomllib
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files


class Kind(StrEnum):
    """What was found. ``KINDS`` says what each means."""

    TOOL_ADDED = "tool_added"
    TOOL_REMOVED = "tool_removed"
    TOOL_CHANGED = "tool_changed"
    TOOL_RENAMED = "tool_renamed"
    TOOL_SHADOWED = "tool_shadowed"
    PROMPT_ADDED = "prompt_added"
    PROMPT_REMOVED = "prompt_removed"
    PROMPT_CHANGED = "prompt_changed"
    TEMPLATE_ADDED = "template_added"
    TEMPLATE_REMOVED = "template_removed"
    TEMPLATE_CHANGED = "template_changed"
    INSTRUCTIONS_ADDED = "instructions_added"
    INSTRUCTIONS_REMOVED = "instructions_removed"
    INSTRUCTIONS_CHANGED = "instructions_changed"
    RISK_LEVEL_CHANGED = "risk_level_changed"
    DEFINITION_AMBIGUOUS = "definition_ambiguous"
    CONTRACT_VIOLATION = "contract_violation"
    SIGNATURE_INVALID = "signature_invalid"
    SIGNATURE_MISSING = "signature_missing"
    KEY_CHANGED = "key_changed"
    KEY_REVOKED = "key_revoked"
    PIN_MISMATCH = "pin_mismatch"
    UNPINNED_TOOL = "unpinned_tool"
    CALL_TO_UNLISTED_TOOL = "call_to_unlisted_tool"
    BLOCKED_TOOL_CALLED = "blocked_tool_called"
    SNAPSHOT_REJECTED = "snapshot_rejected"
    SNAPSHOT_LATE = "snapshot_late"
    LIST_CHANGE_UNANSWERED = "list_change_unanswered"
    SERVER_MISROUTED = "server_misrouted"
    ALERTS_FOLDED = "alerts_folded"
    SERVER_CHANGED = "server_changed"
    LISTS_NEVER_COMPLETE = "lists_never_complete"
    LIST_CACHED_LONG = "list_cached_long"
    RECORD_SET_ASIDE = "record_set_aside"
    ANALYSIS_CUT_SHORT = "analysis_cut_short"
    DETECTION = "detection"
    AGENT_LIMITED = "agent_limited"
    FIRST_LOOK = "first_look"
    OBSERVER_ADDED = "observer_added"
    OBSERVATIONS_LOST = "observations_lost"


CONFUSABLE_NAME = "confusable_name"
TAKEN_NAME = "taken_name"
SAME_NAME = "same_name"
SHADOWING_REASONS = (CONFUSABLE_NAME, TAKEN_NAME, SAME_NAME)
"""Why a name is called shadowed."""

RELEASE_KINDS = (
    *(Kind.TOOL_ADDED, Kind.TOOL_REMOVED, Kind.TOOL_CHANGED, Kind.TOOL_RENAMED),
    *(Kind.PROMPT_ADDED, Kind.PROMPT_REMOVED, Kind.PROMPT_CHANGED),
    *(Kind.TEMPLATE_ADDED, Kind.TEMPLATE_REMOVED, Kind.TEMPLATE_CHANGED),
    *(Kind.INSTRUCTIONS_ADDED, Kind.INSTRUCTIONS_REMOVED, Kind.INSTRUCTIONS_CHANGED),
    *(Kind.RISK_LEVEL_CHANGED, Kind.CONTRACT_VIOLATION, Kind.DEFINITION_AMBIGUOUS),
)
"""Kinds that one alert about a release covers, where its list shows more than one of them."""

PIN_KINDS = (Kind.PIN_MISMATCH, Kind.UNPINNED_TOOL)
SIGNATURE_KINDS = (Kind.SIGNATURE_INVALID, Kind.SIGNATURE_MISSING, Kind.KEY_CHANGED, Kind.KEY_REVOKED)
DEFINITION_KINDS = (
    *(Kind.TOOL_ADDED, Kind.TOOL_CHANGED, Kind.TOOL_RENAMED, Kind.RISK_LEVEL_CHANGED, Kind.CONTRACT_VIOLATION),
    *(*PIN_KINDS, *SIGNATURE_KINDS),
)
"""Kinds about one definition of a tool: of several about the same one, the first leads and the others join it."""

INVENTORY = frozenset({Kind.FIRST_LOOK, Kind.OBSERVER_ADDED})
"""Kinds that say who is new, and nothing about a change or a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindInfo:
    """How a kind of finding reads to an analyst.

    Args:
        title: one line, without names.
        severity_id: OCSF severity where nothing more is known of the change, 1 informational to 5 critical.
        atlas: MITRE ATLAS techniques that show themselves so.
        owasp: entries of the OWASP MCP Top 10 and of the OWASP Agentic list.
        lasts: whether it is open until something resolves it; what does not last is over when it is not found again
            for a while.
    """

    title: str
    severity_id: int
    explanation: str
    next_step: str
    atlas: tuple[str, ...] = ()
    owasp: tuple[str, ...] = ()
    lasts: bool = True


_TABLE = tomllib.loads((files(__package__) / "kinds.toml").read_text(encoding="utf-8"))
KINDS: dict[Kind, KindInfo] = {
    Kind(kind): KindInfo(**row | {name: tuple(row.get(name, ())) for name in ("atlas", "owasp")})
    for kind, row in _TABLE.items()
}
"""How every kind reads."""

_NAMELESS = replace(
    KINDS[Kind.TOOL_ADDED],
    title="A server offers a tool without a name, whose text stands out",
    explanation="No call is bound to it, but clients may show its text to the model, or give it a name.",
    next_step="Read its definition, and ask who runs the server. It cannot be pinned.",
)


def info_of(kind: Kind, tool_name: str | None) -> KindInfo:
    """Return how a finding reads; a tool without a name cannot be approved or rejected."""
    return _NAMELESS if kind is Kind.TOOL_ADDED and not tool_name else KINDS[kind]
