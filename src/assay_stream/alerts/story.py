"""All that is known about one alert: from its records, and from what else the logs hold."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

from assay_stream.alerts.life_cycle import FURTHER_OBSERVERS
from assay_stream.alerts.rules import default_level
from assay_stream.alerts.view import AlertView, Life
from assay_stream.detect import CUT_SHORT, LEVELS, RULES, Indicator, detect_indicators
from assay_stream.drift import CODES, Change, compare_definitions
from assay_stream.drift.change import Path
from assay_stream.drift.definition import DefinitionDiff, Words, definition_diff
from assay_stream.drift.severity import DEFAULT_PROFILE, Level, assess
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.alert_state import UNNAMED_OBSERVER
from assay_stream.model.fields import ChangeDirection
from assay_stream.model.finding import ANY_SERVER, Entry, Finding, NameClaim, Suppression, SuppressionRule
from assay_stream.model.kinds import KINDS, SAME_NAME, TAKEN_NAME, Kind, KindInfo, info_of
from assay_stream.registry.name_claims import shadow_of
from assay_stream.text.escaping import counted
from assay_stream.text.word_diff import Piece, marked
from assay_stream.work import Work, WorkExhaustedError

_TITLED_MAX = 2
_ENDED_LINE = re.compile(r"(?:\\u\{[ad]\}\s*)+")
"""The escaped ends of lines in an excerpt, which is shown on one."""


@dataclass(slots=True)
class Sighting:
    """What one observer saw.

    Args:
        count: findings.
        first_us: event time of the earliest, microseconds since the epoch.
        last_us: event time of the latest.
    """

    count: int
    first_us: int
    last_us: int


@dataclass(slots=True, eq=False)
class Sightings:
    """Entries of the finding topic about one alert.

    Args:
        tool_name: its tool, ``None`` where it is about none.
    """

    uid: str
    server_id: str
    tool_name: str | None
    by_observer: dict[str, Sighting] = field(default_factory=dict)
    last: Finding | None = None
    rules: dict[tuple[str, str], SuppressionRule] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Add an entry of the alert's partition. Entries come in the order of the log."""
        match entry:
            case Finding():
                mine = (self.server_id, self.tool_name) == (entry.server_id, entry.tool_name)
                if mine and entry.uid() == self.uid:
                    self.last = entry
                    self._count(entry.observer_id or UNNAMED_OBSERVER, entry.time_us)
            case NameClaim():
                # The topic has no finding of a shadowed tool, so claims show when it came.
                is_shown = entry.is_offered and not entry.approved and entry.server_id == self.server_id
                if is_shown and shadow_of(entry, self.uid) is not None:
                    self._count(UNNAMED_OBSERVER, entry.time_us)
            case Suppression():
                key = (entry.rule.server_id, entry.rule.id)
                if not entry.is_set:
                    self.rules.pop(key, None)
                elif entry.rule.server_id in (self.server_id, ANY_SERVER):
                    self.rules[key] = entry.rule

    def rule(self, rule_id: str) -> SuppressionRule | None:
        """Return the rule of this name in force for the server, its own before one for every server."""
        return self.rules.get((self.server_id, rule_id)) or self.rules.get((ANY_SERVER, rule_id))

    def _count(self, name: str, time_us: int) -> None:
        if name not in self.by_observer and len(self.by_observer) >= DEFAULT_LIMITS.alert_observers_max:
            name = FURTHER_OBSERVERS
        known = self.by_observer.setdefault(name, Sighting(0, time_us, time_us))
        known.count += 1
        known.first_us = min(known.first_us, time_us)
        known.last_us = max(known.last_us, time_us)


CALLS_NAMED_MAX = 20
"""Calls listed individually; all are counted."""
AGENTS_NAMED_MAX = 1_000
"""Agents listed individually; all are counted."""


class AgentCalls(NamedTuple):
    """The calls of one agent.

    Args:
        agent_id: ``None`` where no agent is named.
        first_ms: event time of the first one, milliseconds since the epoch.
    """

    agent_id: str | None
    calls: int
    first_ms: int


class CallSummary(NamedTuple):
    """One call.

    Args:
        time_ms: event time, milliseconds since the epoch.
        tool_call_id: the id given by the proxy.
        observer_id: the proxy.
        decision: what the proxy did.
    """

    time_ms: int
    evidence_id: str
    tool_call_id: str
    observer_id: str
    decision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsSince:
    """The calls of one tool since a time, grouped by the definition that they were bound to.

    Args:
        full_digest: the definition asked about, ``None`` where every call counts.
        since_ms: event time, milliseconds since the epoch.
        used: calls bound to it.
        unbound: calls bound to no definition.
        other: calls bound to another one.
        latest: those that used it, latest first.
        agents: whose calls used it, most calls first; at most ``AGENTS_NAMED_MAX`` of ``agents_count``.
    """

    full_digest: str | None
    since_ms: int
    used: int = 0
    unbound: int = 0
    other: int = 0
    latest: tuple[CallSummary, ...] = ()
    agents: tuple[AgentCalls, ...] = ()
    agents_count: int = 0


EXAMINED = frozenset(
    (
        *(Kind.TOOL_ADDED, Kind.TOOL_CHANGED, Kind.TOOL_RENAMED, Kind.PROMPT_ADDED, Kind.PROMPT_CHANGED),
        *(Kind.TEMPLATE_ADDED, Kind.TEMPLATE_CHANGED, Kind.INSTRUCTIONS_ADDED, Kind.INSTRUCTIONS_CHANGED),
        Kind.SERVER_CHANGED,
    )
)
"""Kinds whose findings list changes and indicators; for the others no text is searched."""

REASONS = {rule.id: rule.reason for rule in RULES}
"""Why what a rule finds matters."""
_CLAIMS = {rule.id: rule.claim for rule in RULES}
_DETAILS = {
    "mcp_renamed_to": "new name",
    "mcp_reason": "reason",
    "mcp_reasons": "also found",
    "mcp_inventory": "inventory",
    "mcp_privileged": "privileged tools",
    "mcp_acknowledged_by": "acknowledged by",
    "mcp_assigned_to": "assigned to",
    "mcp_changed_fields": "changed fields",
    "mcp_pin_scheme": "pin scheme",
    "mcp_pin_expected": "approved value",
    "mcp_pin_observed": "observed value",
    "mcp_pin_enforcement": "policy",
    "mcp_pin_action": "policy action",
    "mcp_detection": "agent",
    "mcp_detection_key": "key",
    "mcp_detection_references": "references",
    "mcp_detection_digest": "agent's code",
    "mcp_digest_before": "full digest before",
    "mcp_digest_after": "full digest now",
    "mcp_snapshot_id": "last snapshot",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldChange:
    """One change as displayed; its path is empty if unknown."""

    code: str
    title: str
    path: str
    direction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownIndicator:
    """One indicator as displayed.

    Args:
        level: the level that it raises to, ``None`` if this version does not know the rule.
        reason: why an attacker does it.
        path: ``""`` if unknown.
        excerpt: the server's text, escaped and redacted, ``""`` if unknown.
        pieces: the same, with the words marked that the rule found.
        is_carried_over: whether the older definition may have shown it as well.
    """

    rule: str
    level: Level | None
    reason: str
    path: str
    excerpt: str
    pieces: tuple[Piece, ...] = ()
    is_carried_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertStory:
    """Everything known about one alert.

    Args:
        diff: old and new definition, ``None`` where neither could be read.
        against_pin: whether the older definition is what an operator pinned.
        sightings: from the finding topic, ``None`` where it was not read.
        calls: which calls used the tool, ``None`` where calls were not searched.
        is_cut_short: whether the budget ended the search for the texts of indicators.
        see_also: uids of other alerts about the same definition, as a list shows them.
    """

    life: Life
    changes: tuple[ToldChange, ...]
    signs: tuple[ShownIndicator, ...]
    diff: DefinitionDiff | None
    has_before: bool
    has_after: bool
    against_pin: bool
    sightings: Sightings | None
    calls: CallsSince | None
    is_cut_short: bool = False
    see_also: tuple[str, ...] = ()

    @property
    def view(self) -> AlertView:
        return self.life.last

    @property
    def info(self) -> KindInfo | None:
        """What its kind means, ``None`` for a kind that this version does not know."""
        if self.view.kind == Kind.DETECTION:
            return replace(KINDS[Kind.DETECTION], title=self.view.title)
        return info_of(Kind(self.view.kind), self.view.tool_name) if self.view.kind in list(Kind) else None

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield further content of the record: a label, and text that may be a server's."""
        view, is_release = self.view, self.view.kind == Kind.SERVER_CHANGED
        for name, label in _DETAILS.items():
            if name == "mcp_reasons" and view.fact(name):
                yield label, "; ".join(_joined(reason) for reason in view.fact(name).split(","))
            elif view.fact(name):
                is_holder = name == "mcp_pin_observed" and view.kind == Kind.TOOL_SHADOWED
                yield "held before by" if is_holder else label, view.fact(name)
        if view.fact("mcp_folded"):
            label = "parts" if is_release else "folded alerts"
            yield label, f"{view.fact('mcp_folded')}: {view.fact('mcp_folded_by_severity')}"
        if is_release:
            for what, parts in groupby(view.related, key=lambda part: f"{part.get('severity')} {part.get('type')}"):
                yield "named", f"{what}: {', '.join(str(part.get('desc')) for part in parts)}"
            return
        for member in view.related:
            said = (member.get(name) for name in ("severity", "type", "desc", "uid"))
            yield "folded", " ".join(text for text in said if isinstance(text, str))

    @property
    def severity_reasons(self) -> tuple[str, ...]:
        """Every reason that reaches the severity under the default profile, a sentence each."""
        view, causes = self.view, list[tuple[int, str]]()
        if view.fact("mcp_folded"):
            what = "part of the release" if view.kind == Kind.SERVER_CHANGED else "alert folded into it"
            causes.append((view.severity_id, f"the most severe {what}"))
        elif view.kind == Kind.DETECTION:
            causes.append((view.severity_id, "set by the agent that found it"))
        elif view.kind in list(Kind) and (not self.changes or view.kind in DEFAULT_PROFILE.kinds):
            default = default_level(Kind(view.kind), view.fact("mcp_reason"))
            causes.append((assess(DEFAULT_PROFILE, view.kind, default=default), f"an alert of kind {view.kind}"))
        for change in self.changes:
            if change.code in CODES:
                found = Change(change.code, change.path, None, None, ChangeDirection(change.direction))
                level = assess(DEFAULT_PROFILE, Kind.TOOL_CHANGED.value, [found])
                causes.append((level, f"{change.code}: {change.title}"))
        for sign in self.signs:
            if sign.level is not None:
                where = "text from before the change" if sign.is_carried_over else "the new text"
                causes.append((sign.level, f"{sign.rule} in {where}"))
        reached = tuple(dict.fromkeys(text for level, text in causes if level == view.severity_id))
        return reached or ("an earlier finding: an alert keeps the highest severity it had",)

    @property
    def claim(self) -> str:
        """What happened in this case, in our own words: no name or text of a server."""
        title = self.view.title if self.info is None else self.info.title
        if self.view.kind == Kind.SERVER_CHANGED and self.view.fact("mcp_folded"):
            title = f"A server changed {self.view.fact('mcp_folded')} definitions in one release"
        elif self.view.fact("mcp_reason") in (SAME_NAME, TAKEN_NAME):
            title = "A tool has the name of another server's tool"
        if self.signs:
            return f"{title}: {claim_of([(sign.rule, sign.level or 0) for sign in self.signs])}"
        widening_first = sorted(self.changes, key=lambda change: change.direction != "widens")
        codes = list(dict.fromkeys(change.title for change in widening_first))
        more = f", and {counted(len(codes) - _TITLED_MAX, 'more change')}" if len(codes) > _TITLED_MAX else ""
        which = "; in the most severe" if self.view.kind == Kind.SERVER_CHANGED else ""
        return f"{title}{which}: {'; '.join(codes[:_TITLED_MAX])}{more}" if codes else title

    def decisions(self) -> list[tuple[str, str]]:
        """Return what an analyst can decide, and what each decision changes."""
        listed: list[tuple[str, str]] = []
        if subject_of(self.view) is not None:
            only = " Other parts of the release stay open." if self.view.kind == Kind.SERVER_CHANGED else ""
            listed = [
                ("Approve", f"The definition is pinned and its alert closes. Any other one raises an alert.{only}"),
                ("Reject", "The alert stays open while it is offered. Calls go on unless your policy blocks them."),
            ]
        return [*listed, ("Close", "Nothing is decided. The alert opens again if it gets worse or comes back.")]

    def commands(self) -> list[str]:
        uid, server = self.view.uid, shlex.quote(self.view.server_id)
        listed: list[str] = []
        subject, which = subject_of(self.view), f"--alert {uid}"
        if subject is not None and self.view.kind == Kind.SERVER_CHANGED:
            # Another part may be the most severe by the time somebody decides.
            which = shlex.join([f"--server-id={self.view.server_id}", f"--tool={subject[0]}", f"--digest={subject[1]}"])
        if subject is not None:
            listed += [f"assay-stream pins {act} {which} --reason ..." for act in ("approve", "reject")]
        if self.view.fact("mcp_pin_expected"):
            listed.append(f"assay-stream pins diff --server-id {server}")
        return listed


def story_of(
    life: Life,
    *,
    sightings: Sightings | None = None,
    definitions: Mapping[str, dict[str, Any]] | None = None,
    pinned: str | None = None,
    calls: CallsSince | None = None,
    see_also: Iterable[str] = (),
    full: bool = False,
    work: Work | None = None,
) -> AlertStory:
    """Return everything known about an alert.

    Args:
        life: its records.
        sightings: from the finding topic, if that was read.
        definitions: full digest to definition, as far as they are known.
        pinned: full digest of the definition that an operator pinned, where the alert is about a pin.
        calls: which calls used the tool, if calls were searched.
        see_also: uids of other alerts about the same definition.
        full: keep every difference, however many.
        work: a budget shared with other alerts; by default two searches and a comparison, as in the registry.
    """
    work = Work(3 * DEFAULT_LIMITS.definition_work_units_max) if work is None else work
    view, known = life.last, definitions or {}
    named_before = view.fact("mcp_digest_before")
    before = known.get(named_before or pinned or "")
    after = known.get(view.fact("mcp_digest_after"))
    changes = tuple(_changes(view, sightings, before, after))
    new, old = _searched(view, before, after, work)
    signs = tuple(sorted(_signs(view, sightings, new, old), key=lambda sign: -(sign.level or 0)))
    diff = None
    if before is not None or after is not None:
        words = _words((*new, *old), signs)
        diff = definition_diff(before, after, words=words, full=full, work=work)
    return AlertStory(
        life=life,
        changes=changes,
        signs=signs,
        diff=diff,
        has_before=before is not None,
        has_after=after is not None,
        against_pin=before is not None and not named_before,
        sightings=sightings,
        calls=calls,
        is_cut_short=CUT_SHORT in (*new, *old),
        see_also=tuple(see_also),
    )


def subject_of(view: AlertView) -> tuple[str, str] | None:
    tool_name = view.fact("mcp_renamed_to") or view.fact("mcp_tool_name")
    return (tool_name, view.definition) if tool_name and view.definition else None


def tool_names_of(view: AlertView) -> frozenset[str]:
    """Return the names under which the tool of an alert is called, none where it is about no tool."""
    return frozenset(name for name in (view.fact("mcp_tool_name"), view.fact("mcp_renamed_to")) if name)


def _changes(
    view: AlertView, sightings: Sightings | None, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Iterator[ToldChange]:
    if before is not None and after is not None:
        for change in compare_definitions(before, after):
            yield _told_change(change.code, change.path, change.direction.value)
    elif sightings is not None and sightings.last is not None:
        for code, path, way in sightings.last.changes:
            yield _told_change(code, path, way)
    else:
        for code in filter(None, view.fact("mcp_change_codes").split(",")):
            yield _told_change(code, "", CODES[code].direction.value if code in CODES else "neutral")


def _joined(reason: str) -> str:
    kind, _, detail = reason.partition(":")
    title = KINDS[Kind(kind)].title if kind in list(Kind) else kind
    return f"{title} ({detail})" if detail else title


def _told_change(code: str, path: str, direction: str) -> ToldChange:
    title = CODES[code].title if code in CODES else "a change that this version does not know"
    return ToldChange(code=code, title=title, path=path, direction=direction)


def _searched(
    view: AlertView, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, work: Work
) -> tuple[list[Indicator], list[Indicator]]:
    """Return the indicators of the new text, and of all text where some of it may be older."""
    # Without the older definition all of its text would count as new.
    is_lacking = before is None and view.fact("mcp_digest_before")
    if after is None or is_lacking or not view.fact("mcp_indicators"):
        return [], []
    try:
        new = detect_indicators(before, after, work=work)
        return new, [] if before is None else detect_indicators(None, after, work=work)
    except WorkExhaustedError:
        return [CUT_SHORT], []


def _signs(
    view: AlertView, sightings: Sightings | None, found: list[Indicator], whole: list[Indicator]
) -> Iterator[ShownIndicator]:
    rules = list(filter(None, view.fact("mcp_indicators").split(",")))
    last = sightings.last if sightings is not None else None
    if last is not None:
        carried = [row for row in last.carried_over if row[0] in rules]
        waiting = [*found, *whole]
        for rule, level, path in (*last.indicators, *carried):
            sign = next((sign for sign in waiting if (sign.rule, sign.path) == (rule, path)), None)
            if sign is not None:
                waiting.remove(sign)  # Another path may be the same where long names are cut.
            yield _shown_indicator(rule, level, path, sign, is_carried_over=(rule, level, path) in carried)
        return
    for rule in rules:
        here: list[Indicator] = [sign for sign in found if sign.rule == rule]
        before_too = [] if here else [sign for sign in whole if sign.rule == rule and sign.level >= Level.HIGH]
        for sign in here or before_too:
            # The server's earlier list, which is not at hand here, can have lowered it.
            yield _shown_indicator(rule, min(sign.level, view.severity_id), sign.path, sign, is_carried_over=not here)
        if not here and not before_too:
            yield _shown_indicator(rule, LEVELS.get(rule), "", None)


def _shown_indicator(
    rule: str, level: int | None, path: str, found: Indicator | None, *, is_carried_over: bool = False
) -> ShownIndicator:
    pieces = () if found is None else marked([Piece("same", found.excerpt)], [found.mark])
    return ShownIndicator(
        rule=rule,
        level=None if level is None else Level(level),
        reason=REASONS.get(rule, "A rule that this version does not know."),
        path=path,
        excerpt="" if found is None else found.excerpt,
        pieces=tuple(piece._replace(text=_ENDED_LINE.sub(" ", piece.text)) for piece in pieces),
        is_carried_over=is_carried_over,
    )


def _words(found: Iterable[Indicator], signs: Iterable[ShownIndicator]) -> dict[str, list[Words]]:
    """Return the words that carry an alert, by path in the comparison: of indicators that make it worth a look."""
    shown = {(sign.rule, sign.path) for sign in signs if (sign.level or 0) >= Level.MEDIUM}
    words: dict[str, list[Words]] = {}
    for sign in found:
        if (sign.rule, sign.path) in shown and sign.words[1]:
            words.setdefault(_path_of(sign), []).append(sign.words)
    return words


def _path_of(sign: Indicator) -> str:
    """Return the path of an indicator's text as a comparison of definitions has it."""
    path, steps, place = Path("$"), list[str | int](), sign.place
    while place is not None:
        place, step = place
        steps.append(step)
    for step in reversed(steps):
        path = path.item(step) if isinstance(step, int) else path.member(step)
    return str(path)


def claim_of(found: Sequence[tuple[str, int]]) -> str:
    """Return what the most severe indicator says of a text, and how many more deserve a look.

    Args:
        found: rules, each with the level that it raises to, the most severe first.
    """
    worst = found[0][0]
    others = {rule for rule, level in found if level >= Level.MEDIUM} - {worst}
    claim = _CLAIMS.get(worst, f"it matches {worst}")
    return f"{claim}, and {counted(len(others), 'more indicator')}" if others else claim
