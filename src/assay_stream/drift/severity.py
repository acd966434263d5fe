"""How severe a finding is: levels, profiles as data, and the rule that combines them.

1. A kind that a profile lists has at least the level listed, but for a tool whose name is only spelled otherwise.
2. A finding with changes has the highest level of them: by code, or by the field they are in. What a
   peer's table does not cover has no level under it (``covers``).
3. A profile's floor holds for everything.
4. Indicators in new text raise the level and never lower it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from assay_stream.drift.change import CODES, Change
from assay_stream.errors import InputError
from assay_stream.schemes import mcptrust_lockfile as lockfile
from assay_stream.schemes.assay_manifest import SEVERITIES as P60
from assay_stream.schemes.mcptrust_hashes import normalized_hash


class Level(IntEnum):
    """How severe a finding is, with the ids of OCSF's ``severity_id``."""

    INFORMATIONAL = 1
    LOW = 2
    MEDIUM = 3
    HIGH = 4
    CRITICAL = 5

    def __str__(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Level:
        """Return the level of this name, in lowercase.

        Raises:
            InputError: ``unknown_value``.
        """
        for level in cls:
            if str(level) == text:
                return level
        raise InputError("unknown_value", "must be informational, low, medium, high or critical")


_RESPELT = "name_respelt"
_BY_CODE = {code: Level.parse(info.level) for code, info in CODES.items()}
_OUTPUT_MAX = Level.LOW
"""Maximum level of a change of an output schema, texts apart: it describes results, not actions."""


Levels = tuple[Level | None, Level | None]
"""Levels for an unclassified and for a privileged tool; ``None`` where the profile does not cover it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeverityProfile:
    """A set of rules for the severity of findings.

    Args:
        kinds: level of each kind listed; ``None`` where the profile does not cover such findings.
        fields: kind to field to level, of findings about changes.
        by_code: whether changes count by their code; only then do fields that are not listed count.
        floor: minimum level of any finding.
    """

    name: str
    kinds: Mapping[str, Levels] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, Levels]] = field(default_factory=dict)
    by_code: bool = False
    floor: Level = Level.INFORMATIONAL


def assess(
    profile: SeverityProfile,
    kind: str,
    changes: Sequence[Change] = (),
    indicator_levels: Sequence[int] = (),
    *,
    privileged: bool = False,
    default: Level = Level.HIGH,
) -> Level:
    """Return how severe a finding is.

    Args:
        kind: of the finding: ``tool_changed``.
        changes: the changes of a finding about one.
        indicator_levels: of the indicators in new text.
        privileged: whether Assay's classifier calls the tool privileged.
        default: level of a kind that the profile does not list.
    """
    level = _level(profile, kind, changes, privileged, default) or Level.INFORMATIONAL
    return max(level, profile.floor, *map(Level, indicator_levels))


def covers(profile: SeverityProfile, kind: str, changes: Sequence[Change] = ()) -> bool:
    """Return True if a profile covers such a finding: a peer's table omits what the peer does not see."""
    return _level(profile, kind, changes, False, Level.HIGH) is not None


def _level(
    profile: SeverityProfile, kind: str, changes: Sequence[Change], privileged: bool, default: Level
) -> Level | None:
    if kind not in profile.kinds and kind not in profile.fields and not (profile.by_code and changes):
        return default
    found = [profile.kinds[kind][privileged]] if kind in profile.kinds else []
    if profile.by_code and any(change.code == _RESPELT for change in changes):
        found = []
    if profile.by_code:
        found += [_level_of_code(change) for change in changes]
    elif kind in profile.fields:
        found += _levels_of_fields(profile.fields[kind], kind, changes, privileged)
    return max((level for level in found if level is not None), default=None)


def _level_of_code(change: Change) -> Level:
    level = _BY_CODE[change.code]
    if change.code == "comparison_cut_short":
        return level  # What was not compared may be a text.
    is_output = change.path.startswith(("$.outputSchema", "$.output_schema"))
    return min(level, _OUTPUT_MAX) if is_output and "description" not in change.code else level


def _levels_of_fields(
    fields: Mapping[str, Levels], kind: str, changes: Sequence[Change], privileged: bool
) -> Iterator[Level | None]:
    for change in changes:
        for name, levels in fields.items():
            path = f"$.{name}"
            if change.code == "comparison_cut_short" and change.path == "$":
                yield levels[privileged]  # It may be in any field.
            elif change.path == path or change.path.startswith((f"{path}.", f"{path}[")):
                yield levels[privileged] if kind != "prompt_changed" or _mcptrust_sees(change) else None


def _mcptrust_sees(change: Change) -> bool:
    """Return True if MCPTrust's lock of a prompt covers a change: not blanks at line ends, nor order, nor titles."""
    if change.before is None and change.after is None:
        # A finding tells no texts. Blanks at line ends and others are one code: the alert is rather one too many.
        return change.code not in ("arguments_reordered", "field_changed", "description_added") and (
            "title" not in change.code
        )
    if change.path != "$.description":
        return change.code not in ("arguments_reordered", "field_changed") and "title" not in change.code
    before, after = (side if isinstance(side, str) else "" for side in (change.before, change.after))
    return bool(before) and normalized_hash(before) != normalized_hash(after)


MCPTRUST_LEVELS = {
    lockfile.McpTrustSeverity.INFO: Level.INFORMATIONAL,
    lockfile.McpTrustSeverity.MODERATE: Level.MEDIUM,
    lockfile.McpTrustSeverity.CRITICAL: Level.CRITICAL,
}


def _both(level: Level | None) -> Levels:
    return level, level


_INSTRUCTIONS = ("instructions_added", "instructions_removed", "instructions_changed")


def _mcptrust(name: str) -> SeverityProfile:
    what, found = lockfile.DifferenceKind, lockfile.PROFILES[name]
    both = {change: _both(MCPTRUST_LEVELS[found[change]] if change in found else None) for change in what}
    come_and_gone = (
        what.TOOL_ADDED, what.TOOL_REMOVED, what.PROMPT_ADDED, what.PROMPT_REMOVED, what.TEMPLATE_ADDED,
        what.TEMPLATE_REMOVED,
    )  # fmt: skip
    return SeverityProfile(
        name=name,
        kinds={
            **{change.value: both[change] for change in come_and_gone},
            "tool_renamed": both[what.TOOL_ADDED],
            "risk_level_changed": both[what.TOOL_RISK],
            "list_cached_long": _both(None),
            **{kind: _both(None) for kind in _INSTRUCTIONS},
        },
        fields={
            "tool_changed": {"description": both[what.TOOL_DESCRIPTION], "inputSchema": both[what.TOOL_SCHEMA]},
            "prompt_changed": {"description": both[what.PROMPT_DESCRIPTION], "arguments": both[what.PROMPT_ARGUMENTS]},
            "template_changed": {"mimeType": both[what.TEMPLATE_CHANGED]},
        },
    )


def _p60(change: str) -> Levels:
    unclassified, privileged = P60[change]
    return Level.parse(unclassified), Level.parse(privileged)


_NOT_TOOLS = (
    "prompt_added", "prompt_removed", "prompt_changed", "template_added", "template_removed", "template_changed",
    *_INSTRUCTIONS,
)  # fmt: skip

_PROFILES = (
    SeverityProfile(
        name="soc",
        kinds={
            "tool_added": (Level.LOW, Level.MEDIUM),
            "tool_removed": _both(Level.LOW),
            "tool_renamed": (Level.LOW, Level.MEDIUM),  # Like the removal and the addition it amounts to.
            "list_cached_long": _both(Level.MEDIUM),
            # A rule of words with known false positives; what the words are for, signs tell.
            "risk_level_changed": _both(Level.LOW),
            "prompt_added": _both(Level.LOW),
            "prompt_removed": _both(Level.INFORMATIONAL),
            "template_added": _both(Level.LOW),
            "template_removed": _both(Level.INFORMATIONAL),
            "instructions_added": _both(Level.LOW),
            "instructions_removed": _both(Level.INFORMATIONAL),
        },
        by_code=True,
    ),
    _mcptrust("mcptrust"),
    _mcptrust("mcptrust-code"),
    SeverityProfile(
        name="assay-p60",
        kinds={
            "tool_added": _p60("tool_added"),
            "tool_removed": _p60("tool_removed"),
            "tool_renamed": _p60("tool_added"),
            "risk_level_changed": _both(None),
            "list_cached_long": _both(None),
            **{kind: _both(None) for kind in _NOT_TOOLS},
        },
        fields={
            "tool_changed": {
                # A finding about a tool is never below those about its fields.
                name: _p60("tool_changed")
                for name in (
                    "description", "inputSchema", "input_schema", "outputSchema", "output_schema", "annotations",
                )
            },
        },
    ),
    SeverityProfile(name="strict", by_code=True, floor=Level.HIGH),
)  # fmt: skip

PROFILES: Mapping[str, SeverityProfile] = {profile.name: profile for profile in _PROFILES}

DEFAULT_PROFILE = PROFILES["soc"]
