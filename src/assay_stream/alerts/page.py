"""What there is to say about one alert: composed once, and rendered for a terminal, a ticket, a page and a program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from assay_stream.alerts.life_cycle import FURTHER_OBSERVERS
from assay_stream.alerts.story import EXAMINED, AlertStory
from assay_stream.alerts.view import AlertView
from assay_stream.drift.definition import PlaceDiff
from assay_stream.model.alert_state import UNNAMED_OBSERVER
from assay_stream.model.kinds import Kind
from assay_stream.text.escaping import LineSpan, PageLine, Style, counted, markdown, shown, spans_of
from assay_stream.text.times import time_ms_text
from assay_stream.text.word_diff import Piece

_OBSERVERS_MAX = 20
_AGENTS_MAX = 5
_ACTS = {
    "acknowledge": "acknowledged it",
    "assign": "assigned it",
    "close": "closed it",
    "comment": "commented",
    "reopen": "reopened it",
}
_SHORT_CHARS = 60
CUT_SHORT_TEXT = "The definition is too costly to search again: texts of indicators may be missing."
_ENDS: dict[str, tuple[Style, str, str]] = {"gone": ("gone", "⟦-", "-⟧"), "come": ("come", "⟦+", "+⟧")}
_BACKTICKS = re.compile(r"`+")

LineKind = Literal["head", "said", "reason", "named", "text", "command"]
_OURS = frozenset({"head", "said"})
_GUTTERS: Mapping[LineKind, str] = {
    "head": "",
    "said": "  ",
    "reason": "    ",
    "named": "  ",
    "text": "    │ ",
    "command": "  $ ",
}


class SectionLine(NamedTuple):
    """One line of a section.

    Args:
        kind: ``head`` and ``said`` are our own words; the others hold or explain texts of others.
    """

    kind: LineKind
    spans: tuple[LineSpan, ...]

    @property
    def plain(self) -> str:
        return "".join(span.text for span in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of what there is to say about an alert."""

    title: str
    lines: tuple[SectionLine, ...]


_SHOWN = ("head", "signs", "changes", "why", "next", "severity", "definition", "observers", "history", "calls")
_EXPLAINED = (*(name for name in _SHOWN if name != "definition"), "unknown", "references")


def sections(story: AlertStory, *names: str) -> dict[str, Section]:
    """Return some parts of a story by name, in the order of a page; those that have nothing to say are left out."""
    row = story.view
    # The levels of indicators stand beside them.
    reasons = () if any(sign.level == row.severity_id for sign in story.signs) else story.severity_reasons
    is_old = any(sign.is_carried_over for sign in story.signs)
    definition_title = "Current definition" if story.has_after else "Previous definition"
    if story.has_before and story.has_after:
        definition_title = f"Definition: {'pinned' if story.against_pin else 'previous'} and current"
    since = "" if story.calls is None else f"Calls since {time_ms_text(story.calls.since_ms)}"
    parts: dict[str, tuple[str, Iterable[SectionLine]]] = {
        "head": ("What happened", _head(story)),
        "signs": (f"Indicators in the {'' if is_old else 'new '}text", _signs(story)),
        "changes": ("What changed", _changes(story)),
        "why": ("Why it matters", _why(story)),
        "next": ("What to do next", _next(story)),
        "severity": (f"Why {row.severity.lower()}", _said(*map(shown, reasons))),
        "definition": ("Definition" if story.diff is None else definition_title, _definition(story)),
        "observers": ("Observers", _observers(story)),
        "history": ("History", _history(story)),
        "calls": (since, _calls(story)),
        "unknown": ("What is not known", _said(*_unknown(story))),
        "references": ("References", _said(*_references(story))),
    }
    asked = ((name, title, tuple(lines)) for name, (title, lines) in parts.items() if name in names)
    return {name: Section(title=title, lines=lines) for name, title, lines in asked if lines}


def as_page(story: AlertStory, *names: str) -> Iterator[PageLine]:
    """Yield the lines of some sections for a terminal; by default of everything that is known."""
    for name, section in sections(story, *(names or _SHOWN)).items():
        if name != "head":
            yield PageLine("", (LineSpan(f"\n{section.title}", "title"),))
        for line in section.lines:
            yield PageLine(_GUTTERS[line.kind], line.spans, wraps=line.kind != "command")


def as_text(story: AlertStory) -> Iterator[str]:
    for number, section in enumerate(sections(story, *_EXPLAINED).values()):
        yield from ("", section.title) if number else (section.title,)
        for line in section.lines:
            yield f"{_GUTTERS[line.kind] or '  '}{line.plain}"


def as_markdown(story: AlertStory) -> Iterator[str]:
    """Yield the lines of an explanation for a ticket; foreign texts stand in code blocks of their own."""
    for section in sections(story, *_EXPLAINED).values():
        yield f"## {section.title}"
        yield ""
        said = dict.fromkeys(line.plain for line in section.lines if line.kind in _OURS)
        yield from (f"- {markdown(text)}" for text in said)
        if said:
            yield ""
        quoted = [f"{_GUTTERS[line.kind][2:]}{line.plain}" for line in section.lines if line.kind not in _OURS]
        if quoted:
            fence = "`" * max(3, 1 + max((len(run) for text in quoted for run in _BACKTICKS.findall(text)), default=0))
            yield from (f"{fence}text", *quoted, fence, "")


def severity_style(severity_id: int) -> Style:
    if severity_id in (1, 2):
        return ""
    return "warn" if severity_id == 3 else "grave"


def _line(kind: LineKind, text: str, style: Style = "") -> SectionLine:
    return SectionLine(kind, (LineSpan(text, style),))


def _said(*texts: str) -> Iterator[SectionLine]:
    return (_line("said", text) for text in texts)


def _labelled(kind: LineKind, label: str, text: str, width: int) -> SectionLine:
    return SectionLine(kind, (LineSpan(f"{label:{width}}", "dim"), *spans_of(text)))


def _head(story: AlertStory) -> Iterator[SectionLine]:
    row = story.view
    severity = LineSpan(shown(row.severity.upper()), severity_style(row.severity_id))
    yield SectionLine("head", (severity, LineSpan(f"  {shown(row.kind)}  {row.state}")))
    yield _line("head", shown(story.claim), "title")
    what, name = row.subject
    part = "most severe part" if row.kind == Kind.SERVER_CHANGED else what
    for label, text in (("server", row.server_id), (part, name), *story.details(), ("uid", row.uid)):
        if text:
            yield _labelled("named", label, text, 19)


def _changes(story: AlertStory) -> Iterator[SectionLine]:
    for change in story.changes:
        way = "" if change.direction == "neutral" else f", {change.direction}"
        where = (*spans_of(change.path), LineSpan(": ")) if change.path else ()
        yield SectionLine("named", (*where, LineSpan(f"{change.title} ({shown(change.code)}{way})")))


def _signs(story: AlertStory) -> Iterator[SectionLine]:
    for sign in story.signs:
        level = "" if sign.level is None else f" ({sign.level})"
        where = f" at {shown(sign.path)}" if sign.path else ""
        where += ", as before the change" if sign.is_carried_over else ""
        style = "" if sign.level is None else severity_style(int(sign.level))
        yield SectionLine("named", (LineSpan(f"{shown(sign.rule)}{level}", style), LineSpan(where)))
        yield _line("reason", sign.reason)
        if sign.excerpt:
            yield SectionLine("text", tuple(_spans(sign.pieces)))
    if story.is_cut_short:
        yield _line("said", CUT_SHORT_TEXT, "warn")


def _why(story: AlertStory) -> Iterator[SectionLine]:
    info = story.info
    if not story.signs:
        yield from _said(info.explanation if info else shown(story.view.explanation))
    row, calls = story.view, story.calls
    by = f" by {counted(row.observers, 'observer')}" if row.observers else ", by no named observer"
    last = "" if row.last_seen_ms == row.first_seen_ms else f", last at {time_ms_text(row.last_seen_ms)}"
    offered = f"Found {counted(row.count, 'time')}{by} since {time_ms_text(row.first_seen_ms)}{last}"
    if calls is None:
        yield from _said(f"{offered}; calls were not looked up.")
        return
    which = "the part shown" if row.kind == Kind.SERVER_CHANGED else "this definition"
    used = "of the tool, with any definition" if calls.full_digest is None else f"used {which}"
    other = f", {calls.other:,} used another" if calls.other else ""
    unbound = f", {calls.unbound:,} could not be bound to a definition" if calls.unbound else ""
    yield from _said(f"{offered}; {counted(calls.used, 'call')} {used}{other}{unbound}.")
    for agent_id, count, first_ms in calls.agents[:_AGENTS_MAX]:
        name = "(no named agent)" if agent_id is None else shown(agent_id)
        yield _line("named", f"by {name}: {counted(count, 'call')} since {time_ms_text(first_ms)}")
    if calls.agents_count > _AGENTS_MAX:
        yield from _said(f"by {counted(calls.agents_count - _AGENTS_MAX, 'more agent')}")


def _next(story: AlertStory) -> Iterator[SectionLine]:
    if story.info is not None:
        yield _line("said", story.info.next_step)
    yield from (_labelled("said", act, effect, 9) for act, effect in story.decisions())
    yield from (_line("command", shown(command)) for command in story.commands())


def _definition(story: AlertStory) -> Iterator[SectionLine]:
    has_older = bool(story.view.fact("mcp_digest_before"))
    if story.diff is None:
        if has_older or story.view.definition:
            yield _line("said", "neither version could be read")
        return
    if story.has_after and not story.has_before and has_older:
        yield _line("said", "the previous version could not be read: everything is shown as new")
    for place in story.diff.places:
        yield from _place(place, is_alone=story.has_after and not story.has_before and not has_older)
    if story.diff.left_out:
        differs = "differs" if story.diff.left_out == 1 else "differ"
        more = counted(story.diff.left_out, "more field")
        yield _line("said", f"{more} {differs}: use --full to see more", "warn")
    if story.diff.same:
        yield _line("said", f"{counted(story.diff.same, 'field')} unchanged", "dim")


def _place(place: PlaceDiff, *, is_alone: bool) -> Iterator[SectionLine]:
    """Yield the lines of a place; in a definition without a predecessor, nothing is marked as new."""
    head = (LineSpan(shown(place.path), "title"), LineSpan("" if is_alone else f"  {place.what}", "dim"))
    pieces = [piece._replace(op="same") if is_alone and piece.op == "come" else piece for piece in place.pieces]
    spans = tuple(_spans(pieces))
    if sum(len(span.text) for span in spans) <= _SHORT_CHARS and not any("\n" in span.text for span in spans):
        yield SectionLine("named", (*head, LineSpan("  "), *spans))
    else:
        yield SectionLine("named", head)
        yield SectionLine("text", spans)


def _spans(pieces: Iterable[Piece]) -> Iterator[LineSpan]:
    for op, group in groupby(pieces, key=attrgetter("op")):
        style, begin, end = _ENDS.get(op, ("", "", ""))
        yield from [LineSpan(begin, style)] * bool(begin)
        for piece in group:
            if op == "note":
                yield LineSpan(f" {piece.text} ", "dim")
            elif piece.is_marked:
                yield from (LineSpan("⟦!", "grave"), *spans_of(piece.text, "grave", keep_lines=True))
                yield LineSpan("!⟧", "grave")
            else:
                yield from spans_of(piece.text, style, keep_lines=True)
        yield from [LineSpan(end, style)] * bool(end)


def _observers(story: AlertStory) -> Iterator[SectionLine]:
    row = story.view
    active = story.view.flat.get("mcp_observers_active")
    if isinstance(active, int) and row.observers:
        yield from _said(f"still offered to {active:,} of {counted(row.observers, 'observer')}, as far as known")
    if story.sightings is None:
        if last := story.view.fact("mcp_observer_id"):
            yield _line("named", f"last: {shown(last)}")
        return
    seen = sorted(story.sightings.by_observer.items(), key=lambda item: (-item[1].last_us, item[0]))
    named = {UNNAMED_OBSERVER: "(no named observer)", FURTHER_OBSERVERS: "(further observers)"}
    for name, sighting in seen[:_OBSERVERS_MAX]:
        first, last = time_ms_text(sighting.first_us // 1_000), time_ms_text(sighting.last_us // 1_000)
        who = named.get(name) or shown(name)
        yield _line("named", f"{who}: {counted(sighting.count, 'time')}, {first} to {last}")
    if len(seen) > _OBSERVERS_MAX:
        yield from _said(f"and {counted(len(seen) - _OBSERVERS_MAX, 'more observer')}")


def _history(story: AlertStory) -> Iterator[SectionLine]:
    life = story.life
    first, latest = len(life.first), [*life.first, *life.latest]
    events = [_event(view, before) for view, before in zip(latest, [None, *latest], strict=False)]
    yield from events[:first]
    if left_out := life.count - len(life.first) - len(life.latest):
        yield _line("said", f"… {counted(left_out, 'record')} not shown …", "dim")
    yield from events[first:]
    if rule_id := story.view.fact("mcp_suppressed_by"):
        text = f"suppressed by the rule {shown(rule_id)}"
        rule = story.sightings.rule(rule_id) if story.sightings is not None else None
        if rule is not None:
            until = "until it is removed" if rule.until_us is None else f"until {time_ms_text(rule.until_us // 1_000)}"
            text += f" {until} (set by {shown(rule.author)}: {shown(rule.reason)})"
        elif story.sightings is not None:
            text += ", which is no longer in force"
        yield _line("named", text)


def _event(view: AlertView, before: AlertView | None) -> SectionLine:
    parts = [f"{shown(view.activity)}, {shown(view.status)}", shown(view.severity), f"count {view.count:,}"]
    if view.fact("mcp_act"):
        did = _ACTS.get(view.fact("mcp_act"), view.fact("mcp_act"))
        to = f" to {view.fact('mcp_assigned_to')}" if view.fact("mcp_act") == "assign" else ""
        parts.append(shown(f"{view.fact('mcp_act_by')} {did}{to}: {view.fact('mcp_comment')}"))
    elif before is not None and view.repeats(before):
        parts.append(f"repeat {shown(view.fact('mcp_repeats'))}")
    for name, label in (
        ("mcp_reasons", "also found:"),
        ("mcp_resolved_by", "ended by"),
        ("mcp_suppressed_by", "suppressed by"),
    ):
        if view.fact(name):
            parts.append(f"{label} {shown(view.fact(name))}")
    return _line("named", f"{time_ms_text(view.time_ms)}  {'; '.join(parts)}")


def _calls(story: AlertStory) -> Iterator[SectionLine]:
    if story.calls is None:
        return
    # What a decision raised was in use before: an alert begins with its first finding, not with the definition.
    if story.calls.since_ms >= min(story.view.first_seen_ms, story.life.first[0].first_seen_ms):
        yield from _said("use --since to include earlier calls")
    for call in story.calls.latest:
        yield _line(
            "named",
            f"{time_ms_text(call.time_ms)}  {shown(call.decision)}  {shown(call.tool_call_id)}  "
            f"by {shown(call.observer_id)}  evidence {shown(call.evidence_id)}",
        )


def _unknown(story: AlertStory) -> Iterator[str]:
    has_definition = bool(story.view.definition)
    if has_definition and not story.signs and story.view.kind not in EXAMINED:
        also = f"; see also {', '.join(story.see_also)}, about the same definition" if story.see_also else ""
        yield f"Whether the definition is harmful. Its text was not examined for this alert{also}."
    elif has_definition and not story.signs:
        yield (
            "Whether the definition is harmful. No rule found an indicator of an attack in its new text; "
            "rules only find what resembles known attacks."
        )
    elif story.signs:
        yield "What the author meant. Indicators say what a text resembles."
    if has_definition and not story.has_after:
        yield "What the definition says: it could not be read."
    elif story.view.fact("mcp_digest_before") and not story.has_before:
        yield "What the definition said before: it could not be read."
    if story.calls is None:
        if story.view.tool_name:
            yield "Which calls used the tool: this was not looked up."
    else:
        if story.calls.unbound and story.calls.full_digest is not None:
            yield f"Which definition was used by {counted(story.calls.unbound, 'call')} that could not be bound."
        if story.calls.used:
            yield "What those calls did: evidence holds digests, no arguments and no results."
    if story.sightings is None:
        yield "Who else observed it: the finding topic was not read."
    yield "What servers offer where no proxy observes them."


def _references(story: AlertStory) -> Iterator[str]:
    info = story.info
    atlas = ", ".join(info.atlas) if info is not None else shown(story.view.fact("mcp_atlas").replace(",", ", "))
    owasp = ", ".join(info.owasp) if info is not None else shown(story.view.fact("mcp_owasp").replace(",", ", "))
    yield f"MITRE ATLAS: {atlas or 'none'}."
    yield f"OWASP MCP Top 10 and Agentic list: {owasp or 'none'}."


def as_json(story: AlertStory) -> dict[str, Any]:
    """Return the same facts as a JSON object, texts verbatim."""
    info, calls, sightings = story.info, story.calls, story.sightings
    return {
        "alert": story.view.as_json(),
        "title": story.claim,
        "why_it_matters": info.explanation if info is not None else story.view.explanation,
        "next_step": "" if info is None else info.next_step,
        "decisions": dict(story.decisions()),
        "commands": story.commands(),
        "severity_reasons": list(story.severity_reasons),
        "details": {name.removeprefix("mcp_"): story.view.flat[name] for name in sorted(story.view.flat)},
        "folded": [
            {name: member.get(name) for name in ("uid", "type", "desc", "severity")} for member in story.view.related
        ],
        "changes": [asdict(each) | {"path": each.path or None} for each in story.changes],
        "indicators": [
            {
                "rule": sign.rule,
                "severity": None if sign.level is None else str(sign.level),
                "reason": sign.reason,
                "path": sign.path or None,
                "excerpt": sign.excerpt or None,
            }
            for sign in story.signs
        ],
        "observers": None
        if sightings is None
        else [
            {
                "observer_id": name if name.strip() else None,
                "count": seen.count,
                "first_seen": time_ms_text(seen.first_us // 1_000),
                "last_seen": time_ms_text(seen.last_us // 1_000),
            }
            for name, seen in sorted(sightings.by_observer.items())
        ],
        "records": story.life.count,
        "calls": None
        if calls is None
        else {
            "since": time_ms_text(calls.since_ms),
            "definition": calls.full_digest,
            "used": calls.used,
            "other_definition": calls.other,
            "unbound": calls.unbound,
            "agents": [
                {"agent_id": agent.agent_id, "count": agent.calls, "first": time_ms_text(agent.first_ms)}
                for agent in calls.agents
            ],
            "agents_count": calls.agents_count,
            "latest": [call._asdict() | {"time": time_ms_text(call.time_ms)} for call in calls.latest],
        },
        "not_known": list(_unknown(story)),
        "atlas": list(info.atlas) if info is not None else [],
        "owasp": list(info.owasp) if info is not None else [],
    }
