"""One alert in plain sentences, for a ticket or a program: what is known, what is not, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assay_stream.alerts.formats.view import time_text
from assay_stream.alerts.index import ReviewState
from assay_stream.alerts.page import calls_text, event_text, observer_text, seen_text, suppression_text
from assay_stream.alerts.story import AlertStory
from assay_stream.text.counting import counted
from assay_stream.text.escaping import markdown
from assay_stream.text.visible import shown

_BACKTICKS = re.compile(r"`+")
_CHANGES_MAX = 20
_OBSERVERS_MAX = 10


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
            title="Why it matters", sentences=(info.explanation if info is not None else shown(story.view.explanation),)
        ),
        Section(title=f"Why it is {story.row.severity.lower()}", sentences=story.severity_reasons),
        Section(title="What is known", sentences=tuple(_known(story)), quotes=tuple(_quotes(story))),
        Section(title="What is not known", sentences=tuple(_unknown(story))),
        Section(
            title="What to do next",
            sentences=() if info is None else (info.next_step,),
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
        "title": info.title if info is not None else story.view.title,
        "why_it_matters": info.explanation if info is not None else story.view.explanation,
        "next_step": "" if info is None else info.next_step,
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
                "first_seen": time_text(seen.first_us // 1_000),
                "last_seen": time_text(seen.last_us // 1_000),
            }
            for name, seen in sorted(sightings.by_observer.items())
        ],
        "records": story.life.count,
        "calls": None
        if calls is None
        else {
            "since": time_text(calls.since_ms),
            "definition": calls.full_digest,
            "used": calls.used,
            "other_definition": calls.other,
            "unbound": calls.unbound,
            "latest": [call._asdict() | {"time": time_text(call.time_ms)} for call in calls.latest],
        },
        "not_known": list(_unknown(story)),
        "atlas": list(info.atlas) if info is not None else [],
        "owasp": list(info.owasp) if info is not None else [],
    }


def _happened(story: AlertStory) -> Iterator[str]:
    row = story.row
    title = story.info.title if story.info is not None else shown(story.view.title)
    yield f"{title}. The alert is {row.state}, its severity is {row.severity.lower()}."
    yield f"It was observed {seen_text(row)}, from {time_text(row.first_seen_ms)} to {time_text(row.last_seen_ms)}."
    if row.state is ReviewState.CLOSED:
        yield f"Its last record: {event_text(story.view)}."


def _known(story: AlertStory) -> Iterator[str]:
    if story.changes:
        count = len(story.changes)
        yield f"{counted(count, 'change')} of meaning."
    for rule, reason, is_old in dict.fromkeys((sign.rule, sign.reason, sign.is_carried_over) for sign in story.signs):
        yield f"Indicator in {'text from before the change' if is_old else 'the new text'}: {shown(rule)}. {reason}"
    if story.calls is not None:
        yield f"Since {time_text(story.calls.since_ms)}: {calls_text(story)}."


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
        excerpt = f": {shown(sign.excerpt)}" if sign.excerpt else ""
        yield "indicator", f"{shown(sign.rule)}{level}{where}{excerpt}"
    if story.sightings is not None:
        seen = sorted(story.sightings.by_observer)
        for name in seen[:_OBSERVERS_MAX]:
            yield "observer", f"{observer_text(name)}, {counted(story.sightings.by_observer[name].count, 'time')}"
        if len(seen) > _OBSERVERS_MAX:
            yield "observer", f"{len(seen) - _OBSERVERS_MAX:,} further ones"
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
