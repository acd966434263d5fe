"""One alert in words: line by line for a person, and as plain sentences for a ticket or a program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from assay_stream.alerts.formats.view import AlertView, time_ms_text
from assay_stream.alerts.index import AlertRow, Life, ReviewState
from assay_stream.alerts.life_cycle import FURTHER_OBSERVERS
from assay_stream.alerts.story import AlertStory
from assay_stream.drift.definition_diff import PlaceDiff
from assay_stream.model.alert_state import UNNAMED_OBSERVER
from assay_stream.text.escaping import LineSpan, PageLine, Style, counted, markdown, shown, spans_of
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


def severity_style(severity_id: int) -> Style:
    if severity_id in (1, 2):
        return ""
    return "warn" if severity_id == 3 else "grave"


def page_of(story: AlertStory) -> Iterator[PageLine]:
    yield from _head(story)
    yield from _what_changed(story)
    yield from _signs(story)
    info = story.info
    yield _title("Why it matters")
    yield _line(info.explanation if info is not None else shown(story.view.explanation))
    yield _line(here_text(story))
    yield from (_line(f"by {agent}") for agent in agent_texts(story))
    yield _title("What to do next")
    if info is not None:
        yield _line(info.next_step)
    for act, effect in story.decisions():
        yield PageLine("  ", (LineSpan(f"{act:9}", "dim"), LineSpan(effect)))
    for command in story.commands():
        yield PageLine("  $ ", (LineSpan(shown(command)),), wraps=False)
    yield _title(f"Why {story.row.severity.lower()}")
    for reason in story.severity_reasons:
        yield _line(shown(reason))
    yield from _definitions(story)
    yield from _who(story)
    yield from _life(story)
    yield from _calls(story)


def change_of(story: AlertStory) -> Iterator[PageLine]:
    """Yield the lines of a page about the change itself: indicators, and old and new text."""
    yield from _signs(story)
    yield from _definitions(story)


def _head(story: AlertStory) -> Iterator[PageLine]:
    row = story.row
    severity = LineSpan(shown(row.severity.upper()), severity_style(row.severity_id))
    yield PageLine("", (severity, LineSpan(f"  {shown(row.kind)}  {row.state}")))
    yield PageLine("", (LineSpan(shown(story.claim), "title"),))
    listed = [("server", row.server_id), ("tool", row.tool_name), *story.details, ("uid", row.uid)]
    for label, text in listed:
        if text:
            yield PageLine("  ", (LineSpan(f"{label:19}", "dim"), *spans_of(text)))


def _what_changed(story: AlertStory) -> Iterator[PageLine]:
    if not story.changes:
        return
    yield _title("What changed")
    for change in story.changes:
        way = "" if change.direction == "neutral" else f", {change.direction}"
        where = f"{shown(change.path)}: " if change.path else ""
        yield _line(f"{where}{change.title} ({shown(change.code)}{way})")


def _signs(story: AlertStory) -> Iterator[PageLine]:
    if not story.signs:
        return
    yield _title(f"Indicators in the {'' if any(sign.is_carried_over for sign in story.signs) else 'new '}text")
    for sign in story.signs:
        level = "" if sign.level is None else f" ({sign.level})"
        where = f" at {shown(sign.path)}" if sign.path else ""
        where += ", as before the change" if sign.is_carried_over else ""
        style = "" if sign.level is None else severity_style(int(sign.level))
        yield PageLine("  ", (LineSpan(f"{shown(sign.rule)}{level}", style), LineSpan(where)))
        yield PageLine("    ", (LineSpan(sign.reason),))
        if sign.excerpt:
            yield PageLine("    │ ", tuple(_spans(sign.pieces)))


def _definitions(story: AlertStory) -> Iterator[PageLine]:
    if story.is_cut_short:
        yield _line(CUT_SHORT_TEXT, "warn")
    if story.diff is None:
        if story.view.fact("mcp_digest_after") or story.view.fact("mcp_digest_before"):
            yield _title("Definition")
            yield _line("neither version could be read")
        return
    if story.has_before and story.has_after:
        older = "pinned" if story.against_pin else "previous"
        yield _title(f"Definition: {older} and current")
    else:
        yield _title("Current definition" if story.has_after else "Previous definition")
        if story.has_after and story.view.fact("mcp_digest_before"):
            yield _line("the previous version could not be read: everything is shown as new")
    is_alone = story.has_after and not story.has_before and not story.view.fact("mcp_digest_before")
    for place in story.diff.places:
        yield from _place(place, is_alone=is_alone)
    if story.diff.left_out:
        differs = "differs" if story.diff.left_out == 1 else "differ"
        yield _line(f"{counted(story.diff.left_out, 'more field')} {differs}: use --full to see more", "warn")
    if story.diff.same:
        yield _line(f"{counted(story.diff.same, 'field')} unchanged", "dim")


def _place(place: PlaceDiff, *, is_alone: bool) -> Iterator[PageLine]:
    """Yield the lines of a place; in a definition without a predecessor, nothing is marked as new."""
    head = (LineSpan(shown(place.path), "title"), LineSpan("" if is_alone else f"  {place.what}", "dim"))
    pieces = [piece._replace(op="same") if is_alone and piece.op == "come" else piece for piece in place.pieces]
    spans = tuple(_spans(pieces))
    if sum(len(span.text) for span in spans) <= _SHORT_CHARS and not any("\n" in span.text for span in spans):
        yield PageLine("  ", (*head, LineSpan("  "), *spans))
    else:
        yield PageLine("  ", head)
        yield PageLine("    │ ", spans)


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


def _who(story: AlertStory) -> Iterator[PageLine]:
    row = story.row
    yield _title("Observers")
    yield _line(f"{seen_text(row)}, {time_ms_text(row.first_seen_ms)} to {time_ms_text(row.last_seen_ms)}")
    active = story.view.flat.get("mcp_observers_active")
    if isinstance(active, int) and row.observers:
        yield _line(f"still offered to {active:,} of them, as far as is known")
    if story.sightings is None:
        last = story.view.fact("mcp_observer_id")
        if last:
            yield _line(f"last: {shown(last)}")
        return
    seen = sorted(story.sightings.by_observer.items(), key=lambda item: (-item[1].last_us, item[0]))
    for name, sighting in seen[:_OBSERVERS_MAX]:
        first, last = time_ms_text(sighting.first_us // 1_000), time_ms_text(sighting.last_us // 1_000)
        yield _line(f"{observer_text(name)}: {counted(sighting.count, 'time')}, {first} to {last}")
    if len(seen) > _OBSERVERS_MAX:
        yield _line(f"and {counted(len(seen) - _OBSERVERS_MAX, 'more observer')}")


def seen_text(row: AlertRow) -> str:
    by = f" by {counted(row.observers, 'observer')}" if row.observers else ", by no named observer"
    return f"{counted(row.count, 'time')}{by}"


def here_text(story: AlertStory) -> str:
    """Return what is at stake here: how many observers were offered it since when, and how often it was called."""
    offered = f"Found {seen_text(story.row)} since {time_ms_text(story.row.first_seen_ms)}"
    calls = calls_text(story)
    return f"{offered}; {calls}." if calls else f"{offered}; calls were not looked up."


def agent_texts(story: AlertStory) -> list[str]:
    """Return which agents called it, how often and since when, those with most calls first."""
    agents = () if story.calls is None else story.calls.agents
    named = [
        f"{'(no named agent)' if agent_id is None else shown(agent_id)}: {counted(calls, 'call')} since "
        f"{time_ms_text(first_ms)}"
        for agent_id, calls, first_ms in agents[:_AGENTS_MAX]
    ]
    more = len(agents) - _AGENTS_MAX
    return [*named, counted(more, "more agent")] if more > 0 else named


def observer_text(name: str) -> str:
    named = {UNNAMED_OBSERVER: "(no named observer)", FURTHER_OBSERVERS: "(further observers)"}
    return named.get(name) or shown(name)


def _life(story: AlertStory) -> Iterator[PageLine]:
    yield _title("History")
    for view in life_events(story.life):
        if view is None:
            yield _line(
                f"… {counted(story.life.count - len(story.life.first) - len(story.life.latest), 'record')} …", "dim"
            )
        else:
            yield _line(f"{time_ms_text(view.time_ms)}  {event_text(view)}")
    rule_text = suppression_text(story)
    if rule_text:
        yield _line(rule_text)


def life_events(life: Life) -> Iterable[AlertView | None]:
    """Return the records to show, ``None`` where some are left out."""
    gap = [None] if life.count > len(life.first) + len(life.latest) else []
    return [*life.first, *gap, *life.latest]


def event_text(view: AlertView) -> str:
    parts = [f"{shown(view.activity)}, {shown(view.status)}", shown(view.severity), f"count {view.count:,}"]
    if view.fact("mcp_act"):
        did = _ACTS.get(view.fact("mcp_act"), view.fact("mcp_act"))
        to = f" to {view.fact('mcp_assigned_to')}" if view.fact("mcp_act") == "assign" else ""
        parts.append(shown(f"{view.fact('mcp_act_by')} {did}{to}: {view.fact('mcp_comment')}"))
    elif view.fact("mcp_repeats"):
        parts.append(f"written again, number {shown(view.fact('mcp_repeats'))}")
    for name, label in (
        ("mcp_reasons", "also found:"),
        ("mcp_resolved_by", "ended by"),
        ("mcp_suppressed_by", "suppressed by"),
    ):
        if view.fact(name):
            parts.append(f"{label} {shown(view.fact(name))}")
    return "; ".join(parts)


def suppression_text(story: AlertStory) -> str:
    """Return which rule suppresses an alert and until when, ``""`` where none does."""
    rule_id = story.view.fact("mcp_suppressed_by")
    if not rule_id:
        return ""
    rule = story.sightings.rule(rule_id) if story.sightings is not None else None
    if rule is None:
        gone = ", which is no longer in force" if story.sightings is not None else ""
        return f"suppressed by the rule {shown(rule_id)}{gone}"
    until = "until it is removed" if rule.until_us is None else f"until {time_ms_text(rule.until_us // 1_000)}"
    return f"suppressed by the rule {shown(rule_id)} {until} (set by {shown(rule.author)}: {shown(rule.reason)})"


def _calls(story: AlertStory) -> Iterator[PageLine]:
    if story.calls is None:
        return
    yield _title(f"Calls since {time_ms_text(story.calls.since_ms)}")
    yield _line(calls_text(story))
    for call in story.calls.latest:
        yield _line(
            f"{time_ms_text(call.time_ms)}  {shown(call.decision)}  {shown(call.tool_call_id)}  "
            f"by {shown(call.observer_id)}  evidence {shown(call.evidence_id)}"
        )


def calls_text(story: AlertStory) -> str:
    """Return how many calls used the tool, ``""`` where calls were not searched."""
    calls = story.calls
    if calls is None:
        return ""
    if calls.full_digest is None:
        told = f"{counted(calls.used, 'call')} of the tool, with any definition"
    else:
        told = f"{counted(calls.used, 'call')} used this definition"
    if calls.other:
        told += f", {calls.other:,} used another"
    if calls.unbound:
        told += f", {calls.unbound:,} could not be bound to a definition"
    # What a decision raised was in use before: an alert begins with its first finding, not with the definition.
    begins_ms = min(story.row.first_seen_ms, story.life.first[0].first_seen_ms)
    return f"{told}; to count earlier calls, use --since" if calls.since_ms >= begins_ms else told


def _title(text: str) -> PageLine:
    return PageLine("", (LineSpan(f"\n{text}", "title"),))


def _line(text: str, style: Style = "") -> PageLine:
    return PageLine("  ", (LineSpan(text, style),))


_BACKTICKS = re.compile(r"`+")
_CHANGES_MAX = 20
_OBSERVERS_NAMED_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of an explanation.

    Args:
        sentences: written by us.
        quotes: texts that a server or an operator wrote, each with its label.
    """

    title: str
    sentences: tuple[str, ...]
    quotes: tuple[tuple[str, str], ...] = ()


def explanation_of(story: AlertStory) -> list[Section]:
    info = story.info
    identity = [("server", story.row.server_id), ("tool", story.row.tool_name), *story.details]
    named = [*identity, ("uid", story.row.uid)]
    return [
        Section(
            title="What happened",
            sentences=tuple(_happened(story)),
            quotes=tuple((label, shown(text)) for label, text in named if text),
        ),
        Section(
            title="Why it matters",
            sentences=(info.explanation if info is not None else shown(story.view.explanation), here_text(story)),
            quotes=tuple(("called by", text) for text in agent_texts(story)),
        ),
        Section(title=f"Why it is {story.row.severity.lower()}", sentences=story.severity_reasons),
        Section(title="What is known", sentences=tuple(_known(story)), quotes=tuple(_quotes(story))),
        Section(title="What is not known", sentences=tuple(_unknown(story))),
        Section(
            title="What to do next",
            sentences=(
                *(() if info is None else (info.next_step,)),
                *(f"{act}: {effect}" for act, effect in story.decisions()),
            ),
            quotes=tuple(("command", shown(command)) for command in story.commands()),
        ),
        Section(title="References", sentences=tuple(_references(story))),
    ]


def as_text(sections: Sequence[Section]) -> Iterator[str]:
    for number, section in enumerate(sections):
        if number:
            yield ""
        yield section.title
        for sentence in section.sentences:
            yield f"  {sentence}"
        for label, text in section.quotes:
            yield f"  {label}: {text}"


def as_markdown(sections: Sequence[Section]) -> Iterator[str]:
    """Yield the lines of an explanation for a ticket; foreign texts stand in code blocks of their own."""
    for section in sections:
        yield f"## {section.title}"
        yield ""
        for sentence in section.sentences:
            yield f"- {markdown(sentence)}"
        if section.sentences:
            yield ""
        if section.quotes:
            lines = [f"{label}: {text}" for label, text in section.quotes]
            fence = "`" * max(3, 1 + max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0))
            yield f"{fence}text"
            yield from lines
            yield fence
            yield ""


def as_json(story: AlertStory) -> dict[str, Any]:
    """Return the same facts as a JSON object, texts verbatim."""
    info, calls, sightings = story.info, story.calls, story.sightings
    return {
        "alert": story.row.as_json(),
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
        "changes": [
            {"code": each.code, "title": each.title, "path": each.path or None, "direction": each.direction}
            for each in story.changes
        ],
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
            "latest": [call._asdict() | {"time": time_ms_text(call.time_ms)} for call in calls.latest],
        },
        "not_known": list(_unknown(story)),
        "atlas": list(info.atlas) if info is not None else [],
        "owasp": list(info.owasp) if info is not None else [],
    }


def _happened(story: AlertStory) -> Iterator[str]:
    row = story.row
    yield f"{shown(story.claim).removesuffix('.')}. The alert is {row.state}, its severity is {row.severity.lower()}."
    first, last = time_ms_text(row.first_seen_ms), time_ms_text(row.last_seen_ms)
    yield f"It was observed {seen_text(row)}, from {first} to {last}."
    if row.state is ReviewState.CLOSED:
        yield f"Its last record: {event_text(story.view)}."


def _known(story: AlertStory) -> Iterator[str]:
    if story.changes:
        count = len(story.changes)
        yield f"{counted(count, 'change')} of meaning."
    for rule, reason, is_old in dict.fromkeys((sign.rule, sign.reason, sign.is_carried_over) for sign in story.signs):
        yield f"Indicator in {'text from before the change' if is_old else 'the new text'}: {shown(rule)}. {reason}"
    if story.calls is not None:
        yield f"Since {time_ms_text(story.calls.since_ms)}: {calls_text(story)}."


def _quotes(story: AlertStory) -> Iterator[tuple[str, str]]:
    """Yield paths, names and texts chosen by others: they are kept apart from our own sentences."""
    for change in story.changes[:_CHANGES_MAX]:
        where = f"{shown(change.path)}: " if change.path else ""
        yield "change", f"{where}{change.title} ({shown(change.code)}, {change.direction})"
    if len(story.changes) > _CHANGES_MAX:
        yield "change", f"{len(story.changes) - _CHANGES_MAX:,} further ones"
    for sign in story.signs:
        level = "" if sign.level is None else f" ({sign.level})"
        where = f" at {shown(sign.path)}" if sign.path else ""
        excerpt = f": {''.join(span.text for span in _spans(sign.pieces))}" if sign.excerpt else ""
        yield "indicator", f"{shown(sign.rule)}{level}{where}{excerpt}"
    if story.sightings is not None:
        seen = sorted(story.sightings.by_observer)
        for name in seen[:_OBSERVERS_NAMED_MAX]:
            yield "observer", f"{observer_text(name)}, {counted(story.sightings.by_observer[name].count, 'time')}"
        if len(seen) > _OBSERVERS_NAMED_MAX:
            yield "observer", f"{len(seen) - _OBSERVERS_NAMED_MAX:,} further ones"
    rule = suppression_text(story)
    if rule:
        yield "suppression", rule


def _unknown(story: AlertStory) -> Iterator[str]:
    has_definition = bool(story.view.fact("mcp_digest_after"))
    if has_definition and not story.signs and not story.text_was_examined:
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
        if story.row.tool_name:
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
