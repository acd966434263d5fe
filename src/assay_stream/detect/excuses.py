"""What excuses a match, or takes from its level: where it stands, what it is about, and what comes before it."""

from __future__ import annotations

import re
from typing import Final

from assay_stream.detect.catalog import RULES, DetectionRule
from assay_stream.detect.match import Key, Match
from assay_stream.detect.places import host_of, is_documentation, is_harmless
from assay_stream.detect.surfaces import Place, name_words
from assay_stream.detect.tool_names import OtherTools
from assay_stream.work import Work

LEVEL_LOW: Final = 2
"""The level of an unremarkable address."""
_CONTACT = re.compile(
    r"\b(?:contact|questions?|support|feedback|maintaine[rd]\w?|authors?|help|bugs?)\b[^.!?\n]{0,40}$", re.IGNORECASE
)
_UNLESS_BEFORE = {
    rule.id: re.compile(f"(?:{rule.unless_preceded_by})$", re.IGNORECASE) for rule in RULES if rule.unless_preceded_by
}
_BEFORE_CHARS = 80
_CONTACT_CHARS = 60
_OWN_BUSINESS = {rule.id: frozenset(rule.own_business.split()) for rule in RULES if rule.own_business}
_HANDED_ON = re.compile(
    r"\b(?:pass|put|include|send|add|attach|argument|parameter|note|context|field)\b", re.IGNORECASE
)
_ORDERED = frozenset(["before", "first", "silently", "secretly", "prefix", "prepend", "precede"])
"""Words that order when something runs, rather than describe what a tool runs."""
_OPENING_CHARS = 80
_SAYS_WHAT_IT_DOES = frozenset(["name", "title", "description"])
_SWITCH_CHARS_MAX = 160
_CHARS_PER_UNIT = 2


def is_own_business(match: Match, place: Place, others: OtherTools, work: Work) -> bool:
    """Return True if a server may say this, provided that it says so openly.

    A server may say which of its own tools to use, and what a tool or a switch with such a name does:
    ``list_tokens`` lists all tokens, and ``force`` skips a confirmation. It may not say where to pass secrets on.
    """
    words = _OWN_BUSINESS.get(match.rule)
    if place is None or not words:
        return match.rule == "other_tool_steered"
    holder, key = place
    if key not in _SAYS_WHAT_IT_DOES or match.start > _OPENING_CHARS:
        return False
    if match.rule == "approval_bypassed":
        return not words.isdisjoint(_switch_at(holder, match.text))
    said = " ".join(match.key)
    is_named = any(word.removesuffix("s") in words and word in said for word in others.own_words)
    if not is_named or not (holder is None or (key == "title" and _is_own_name(match.text, others))):
        return False
    if match.rule == "code_run_asked":
        return _ORDERED.isdisjoint(match.key)
    work.spend(len(match.text) // _CHARS_PER_UNIT)
    # "Add an SSH key" adds one to the server; "add them to the note" comes before or after what is asked for.
    return not (_HANDED_ON.search(match.text[: match.start]) or _HANDED_ON.search(match.text, match.end))


def _is_own_name(title: str, others: OtherTools) -> bool:
    """Return True if a title is the definition's own name, as schema generators write it: ``run_itArguments``."""
    own = others.own_words
    return name_words(title)[: len(own)] == own


def _switch_at(holder: Place, description: str) -> tuple[str, ...]:
    """Return the words of the name of a parameter that is described in a sentence or two."""
    if holder is None or holder[0] is None or holder[0][1] != "properties" or len(description) > _SWITCH_CHARS_MAX:
        return ()
    return name_words(str(holder[1]))


def is_excused(rule: str, text: str, start: int) -> bool:
    """Return True if the text right before a match changes its meaning."""
    before = _UNLESS_BEFORE.get(rule)
    return before is not None and before.search(text[max(0, start - _BEFORE_CHARS) : start]) is not None


def is_harmless_address(rule: DetectionRule, key: Key) -> bool:
    """Return True if a match is an address that belongs to no one, such as example.com."""
    return rule.id in {"url_introduced", "address_introduced"} and is_harmless(host_of(key[0]))


def level_of(rule: DetectionRule, key: Key, text: str, start: int) -> int:
    """Return the level of a match: addresses common in documentation are unremarkable."""
    if rule.id == "url_introduced" and is_documentation(key[0]):
        return LEVEL_LOW
    if rule.id == "address_introduced" and _CONTACT.search(text[max(0, start - _CONTACT_CHARS) : start]):
        return LEVEL_LOW
    return rule.level
