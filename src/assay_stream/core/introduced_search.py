"""What the rules of ``introduced_rules`` find in one definition's texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from assay_stream.core.introduced_patterns import Over, Rule
from assay_stream.core.introduced_phrases import ENGLISH
from assay_stream.core.introduced_phrases_asia import ASIAN
from assay_stream.core.introduced_phrases_concepts import CONCEPTS
from assay_stream.core.introduced_phrases_east import EASTERN
from assay_stream.core.introduced_phrases_europe import EUROPEAN
from assay_stream.core.introduced_phrases_taking import TAKING
from assay_stream.core.introduced_phrases_west import WESTERN
from assay_stream.core.introduced_places import (
    ADDRESS,
    DOCUMENTATION_HOSTS,
    EMAIL,
    HARMLESS_HOSTS,
    MONEY_ACCOUNT,
    REVEALING_COMMAND,
    SECRET_FILE,
    host_of,
    is_harmless,
)
from assay_stream.core.introduced_rules import (
    LEVELS,
    NOTE_NAMES,
    RAISED_LEVEL,
    RULES,
    WHAT_MODELS_KNOW,
)
from assay_stream.core.introduced_texts import Role, Text, name_words
from assay_stream.core.introduced_tools import ToolNames, own_words
from assay_stream.core.introduced_views import hidden_views, whole_views
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.phrases import PhraseBook, Span
from assay_stream.core.words import Words, mixes_scripts, visible
from assay_stream.core.work import Work

_MATCHES_MAX = 200
_LEVEL_HIGH = 4
_UNITS_PER_TEXT = 50
_UNITS_PER_CHAR = 5
_WIDE = " " * 80

_PATTERNS = [(rule, re.compile(rule.regex, re.IGNORECASE | re.MULTILINE)) for rule in RULES if rule.regex]
_NAMED = [(rule, frozenset(tuple(name.split("_")) for name in rule.names)) for rule in RULES if rule.names]
_LANGUAGES = (WESTERN, EUROPEAN, EASTERN, ASIAN)
_PHRASES = PhraseBook(
    (rule, phrase)
    for phrases in (ENGLISH, CONCEPTS, TAKING, *(book for books in _LANGUAGES for book in books.values()))
    for rule, listed in phrases.items()
    for phrase in listed
)
_GIVEN = {
    "secret_file": re.compile(SECRET_FILE, re.IGNORECASE),
    "secret_command": re.compile(REVEALING_COMMAND, re.IGNORECASE),
    "money_account": re.compile(MONEY_ACCOUNT),
    "mailbox": re.compile(EMAIL, re.IGNORECASE),
    "address": re.compile(ADDRESS, re.IGNORECASE),
}
_KNOWN = PhraseBook(("known", phrase) for phrase in WHAT_MODELS_KNOW)
_PARAMETER_DESCRIPTION = re.compile(r"\.properties\.([A-Za-z_][\w-]{0,63})\.description$")
_CONTACT = re.compile(
    r"\b(?:contact|questions?|support|feedback|maintaine[rd]\w?|authors?|help|bugs?)\b[^.!?\n]{0,40}$",
    re.IGNORECASE,
)
_CONTACT_CHARS = 60
_LEVEL_LOW = 2


class Match(NamedTuple):
    rule: str
    level: int
    text: str
    start: int
    end: int
    key: tuple[str, ...]
    """What must not have matched before: words, or the host of an address, or the match itself."""
    path: str


class OtherTools:
    """The names of the tools that a definition may speak of, without its own.

    Args:
        names: the names of a whole list.
        own: the name of the tool at hand, which is no other one.
    """

    def __init__(self, names: ToolNames, own: Any) -> None:
        self._names = names
        self._own = own_words(own) if isinstance(own, str) else ()

    def spans(self, words: Words, work: Work) -> list[Span]:
        """Return where a text names one of them. A name of one word must be marked as one.

        Args:
            words: the text.
            work: the budget.

        Raises:
            WorkExhaustedError: where the budget does not suffice.
        """
        found = set()
        for named in self._names.find(words.forms, work):
            if any(owner != self._own for owner in named.owners) or (
                any(owner != self._own for owner in named.owners_of_one_word) and _is_marked(words, named.first)
            ):
                found.add((named.first, named.end))
        return sorted(found)


def _is_marked(words: Words, index: int) -> bool:
    start, end = words.spans[index]
    if words.text[max(0, start - 1) : start] in {"`", "'", '"', "“", "<", "「"}:
        return words.text[end : end + 1] in {"`", "'", '"', "”", ">", "(", "」"}
    neighbours = words.forms[max(0, index - 1) : index] + words.forms[index + 1 : index + 2]
    return words.text[end : end + 1] == "(" or "tool" in neighbours


def all_matches(
    texts: Iterable[Text], others: OtherTools, required: frozenset[str], work: Work
) -> Iterator[Match]:
    """Yield what every text gives, up to the bound on what is read of one definition."""
    left = DEFAULT_LIMITS.introduced_chars_max
    for text in texts:
        if len(text.value) > left:
            yield Match("text_oversized", LEVELS["text_oversized"], "", 0, 0, (), text.path)
            # Both ends are read: what is hidden stands at one of them.
            head, tail = text.value[: left // 2], text.value[len(text.value) - left // 2 :]
            for part in (head, tail):
                yield from _matches(text._replace(value=part), others, required, work)
            return
        left -= len(text.value)
        yield from _matches(text, others, required, work)


def _matches(text: Text, others: OtherTools, required: frozenset[str], work: Work) -> Iterator[Match]:
    work.spend(_UNITS_PER_TEXT + _UNITS_PER_CHAR * len(text.value))
    if text.role is Role.PARAMETER:
        yield from _named(text, required)
    seen = visible(text.value)
    found = [*_in_text(text.value, seen, text.path, others, work)]
    yield from found
    stated = {(match.rule, match.key) for match in found}
    yield from _hidden(text, seen, stated, others, work)


def _named(text: Text, required: frozenset[str]) -> Iterator[Match]:
    words = name_words(text.value)
    if not text.is_free or not words:
        return
    for rule, names in _NAMED:
        lengths = [len(words)] if rule.names_are_whole else range(1, min(len(words), 5) + 1)
        if any(words[-length:] in names for length in lengths):
            is_raised = (rule.id == "secret_parameter" and text.value in required) or (
                rule.id == "callback_parameter" and text.has_address
            )
            level = RAISED_LEVEL if is_raised else rule.level
            yield Match(rule.id, level, text.value, 0, len(text.value), words, text.path)


def _in_text(raw: str, seen: str, path: str, others: OtherTools, work: Work) -> Iterator[Match]:
    lowered = seen.lower()
    is_plain = raw.isascii() and raw.isprintable() and _WIDE not in raw
    for rule, pattern in _PATTERNS:
        if rule.over is Over.RAW:
            if not is_plain:
                yield from _by_pattern(rule, pattern, raw, path)
        elif not rule.hints or any(hint in lowered for hint in rule.hints):
            yield from _by_pattern(rule, pattern, seen, path)
    yield from _by_words(seen, path, others, work)


def _by_pattern(rule: Rule, pattern: re.Pattern[str], text: str, path: str) -> Iterator[Match]:
    seen: set[tuple[str, ...]] = set()
    for match in pattern.finditer(text):
        key = _pattern_key(rule, match[0])
        if key not in seen and not _is_harmless(rule, key):
            seen.add(key)
            level = _level(rule, key, text[max(0, match.start() - _CONTACT_CHARS) : match.start()])
            yield Match(rule.id, level, text, match.start(), match.end(), key, path)
        if len(seen) == _MATCHES_MAX:
            break


def _pattern_key(rule: Rule, matched: str) -> tuple[str, ...]:
    if rule.id == "url_introduced":
        return (host_of(matched),)
    return (" ".join(matched.split()).lower() if rule.over is Over.SEEN else matched,)


def _is_harmless(rule: Rule, key: tuple[str, ...]) -> bool:
    return rule.id in {"url_introduced", "address_introduced"} and is_harmless(host_of(key[0]))


def _level(rule: Rule, key: tuple[str, ...], before: str) -> int:
    """Return the level of a match: what documentation points at is of little note."""
    if rule.id == "url_introduced" and key[0] in DOCUMENTATION_HOSTS:
        return _LEVEL_LOW
    if rule.id == "address_introduced" and _CONTACT.search(before):
        return _LEVEL_LOW
    return rule.level


def _by_words(seen: str, path: str, others: OtherTools, work: Work) -> Iterator[Match]:
    words = Words(seen)
    tools = others.spans(words, work)
    given = {"tool": tools, **{name: _spans(words, pattern) for name, pattern in _GIVEN.items()}}
    counted: dict[str, set[tuple[str, ...]]] = {}
    for rule, (first, end) in _PHRASES.search(words, given):
        yield from _once(rule, words, (first, end), path, counted)
    parameter = _PARAMETER_DESCRIPTION.search(path)
    if parameter and name_words(parameter[1])[-1:] and name_words(parameter[1])[-1] in NOTE_NAMES:
        for _, span in _KNOWN.search(words, given):
            yield from _once("collecting_parameter", words, span, path, counted)
    for span in tools:
        yield from _once("other_tool_named", words, span, path, counted)
    if not seen.isascii():
        for index, (start, stop) in enumerate(words.spans):
            if not words.forms[index].isascii() and mixes_scripts(seen[start:stop]):
                yield from _once("mixed_script_word", words, (index, index + 1), path, counted)


def _once(
    rule: str, words: Words, span: Span, path: str, counted: dict[str, set[tuple[str, ...]]]
) -> Iterator[Match]:
    first, end = span
    key = tuple(words.forms[first:end])
    known = counted.setdefault(rule, set())
    if key not in known and len(known) < _MATCHES_MAX:
        known.add(key)
        yield Match(rule, LEVELS[rule], words.text, words.spans[first][0], words.spans[end - 1][1], key, path)


def _spans(words: Words, pattern: re.Pattern[str]) -> list[Span]:
    """Return the words that each match of a pattern covers."""
    spans = []
    index = 0
    for match in pattern.finditer(words.text):
        while index < len(words.spans) and words.spans[index][1] <= match.start():
            index += 1
        first = index
        while index < len(words.spans) and words.spans[index][0] < match.end():
            index += 1
        if index > first and host_of(match[0]) not in HARMLESS_HOSTS:
            spans.append((first, index))
    return spans


def _hidden(
    text: Text, seen: str, stated: set[tuple[str, tuple[str, ...]]], others: OtherTools, work: Work
) -> Iterator[Match]:
    for view in (*hidden_views(text.value), *whole_views(seen)):
        shown = visible(view.text)
        if view.is_blob:
            yield Match("encoded_text", LEVELS["encoded_text"], shown, 0, len(shown), (view.text,), text.path)
        found = (
            _in_text(view.text, shown, text.path, others, work)
            if view.is_blob
            else _by_words(shown, text.path, others, work)
        )
        for match in found:
            if match.level >= _LEVEL_HIGH and (match.rule, match.key) not in stated:
                yield match._replace(rule="hidden_meaning", level=LEVELS["hidden_meaning"])
