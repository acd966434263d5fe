"""What the rules find in the texts of a definition, by patterns, words and phrases."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from functools import cache
from typing import Final

import msgspec

from assay_stream.detect.catalog import CATALOG, LEVELS, RULES, DetectionRule
from assay_stream.detect.decoders import hidden_views, lowered
from assay_stream.detect.match import (
    LEVEL_LOW,
    OWN_BUSINESS,
    Key,
    Match,
    Places,
    has_address,
    is_excused,
    is_harmless_address,
    is_own_business,
    key_of,
    level_of,
    may_have_account,
    names_in,
)
from assay_stream.detect.page import RULE_NEEDLES, TELLTALES, Page, Visit, decoded_page, pages_of
from assay_stream.detect.phrases import AS_IT_STANDS, BACKWARDS, RESPELLINGS, PhraseBook, PhraseFilter
from assay_stream.detect.scorer import RULE as STEERING_SCORED
from assay_stream.detect.steering import STEERING_RULES
from assay_stream.detect.surfaces import Place, Text, TextRole, name_words
from assay_stream.detect.symbols import OfferedNames
from assay_stream.detect.tool_names import OtherTools, Span
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.text.words import Words, mixed_words, mixes_scripts
from assay_stream.work import Work

_PATTERNS = [(rule, re.compile(rule.regex, re.IGNORECASE | re.MULTILINE)) for rule in RULES if rule.pattern]
_UNLESS = {rule.id: re.compile(rule.unless_followed_by, re.IGNORECASE) for rule in RULES if rule.unless_followed_by}
_COMMON = frozenset(CATALOG.words.common.split())
_MATCHES_MAX = 200
_UNITS_PER_PATTERN = 10
_CHARS_PER_UNIT = 2
_UNITS_PER_MATCH = 20

_Counted = dict[str, set[Key]]
_MATCHES_KEPT_MAX = 16
"""Matches kept of one search of a page; a search with more is repeated."""
_CHARS_KEPT_PER_CHAR = 3
"""Characters of the matched texts that are kept for each of the page's own."""
_OUTCOMES_KEPT_MAX = 4
_LEVEL_HIGH, _LEVEL_MEDIUM = 4, 3
_UNITS_PER_READ_CHAR = 2
UNITS_PER_INDICATOR = 150
"""The path and the excerpt of a match that is reported."""


@cache
def phrase_filter() -> PhraseFilter:
    """Return the filter of all phrases: built for the first text searched."""
    return PhraseFilter(PhraseBook(CATALOG.phrases))


@cache
def _notes() -> PhraseBook:
    return PhraseBook(CATALOG.note_phrases)


class _Outcome(msgspec.Struct, frozen=True, gc=False):
    """What a search of a page found, for the same units again, and at most what is spent on the matches afterwards."""

    matches: Sequence[Match]
    units: int
    units_of_matches: int


class Reader:
    """Searches the texts of one definition, one after the other."""

    def __init__(self, others: OtherTools, offered: OfferedNames, work: Work) -> None:
        self._others = others
        self._offered = offered
        self._context = others.context(offered)
        self._work = work
        self._has_others = bool(others)
        self._is_note = False
        """Whether the current text describes a parameter that may hold anything."""

    def search(self, page: Page, place: Place, *, is_note: bool) -> Iterable[Match]:
        """Return the matches of a text, to be taken before the next one is searched.

        Args:
            is_note: whether it describes a parameter that may hold anything, and so also what the model knows.
        """
        self._is_note = is_note
        question = self._question(page)
        outcome = page.outcomes.get(question)
        # Where the budget may end within a text, what was found before counts: it is searched again.
        if outcome is None or outcome.units + outcome.units_of_matches > self._work.left:
            return self._leveled(self._recorded(page, question), place)
        self._work.spend(outcome.units)
        return self._leveled(outcome.matches, place) if outcome.matches else ()

    def _leveled(self, found: Iterable[Match], place: Place) -> Iterator[Match]:
        for match in found:
            is_own = (
                not match.how
                and match.level > _LEVEL_MEDIUM
                and is_own_business(match, place, self._others, self._work)
            )
            # Which of the server's tools to use may be an attack on another one of them.
            own_level = _LEVEL_MEDIUM if match.rule == "other_tool_steered" else LEVEL_LOW
            yield match._replace(level=own_level if is_own else match.level, place=place)

    def _question(self, page: Page) -> Hashable:
        """Return all that determines a page's matches: the names offered, as far as the page may mention some."""
        names = page.names_asked(self._others)
        if names is None:
            return self._context, self._is_note
        return self._has_others, self._is_note, tuple(map(self._offered.kind_of, names)) if names else ()

    def _recorded(self, page: Page, question: Hashable) -> Iterator[Match]:
        """Yield the matches of a text, and keep them."""
        units, matches, searching = 0, list[Match](), self._found(page)
        while True:
            before = self._work.spent
            match = next(searching, None)
            units += self._work.spent - before
            if match is None:
                break
            matches.append(match)
            yield match
        # What was decoded may be far longer than the text.
        chars = sum(map(len, {match.text for match in matches}))
        if len(matches) <= _MATCHES_KEPT_MAX and chars <= _CHARS_KEPT_PER_CHAR * len(page.raw):
            if len(page.outcomes) >= _OUTCOMES_KEPT_MAX:
                page.outcomes.clear()
            afterwards = sum(UNITS_PER_INDICATOR + len(match.text) for match in matches)
            page.outcomes[question] = _Outcome(tuple(matches), units, afterwards)

    def _found(self, page: Page) -> Iterator[Match]:
        visit = self._read(page)
        is_silent = not (
            self._is_note
            or any(page.hints)
            or not page.is_plain
            or page.asked
            or page.is_read_otherwise
            or visit.names_tool
            or visit.steering
        )
        if is_silent:  # Most texts are.
            return
        stated: set[tuple[str, Key]] = set()
        for match in self._as_it_stands(visit):
            # Sentences read a little otherwise once decoded; what they do is stated if the rule found it openly.
            stated.add((match.rule, () if match.rule in STEERING_RULES else match.key))
            yield match
        for match in self._hidden(visit):
            # What is grave in a reading that a person does not see, and is not said openly as well.
            if match.rule in {"encoded_text", "text_oversized"}:
                yield match
            elif match.level >= _LEVEL_HIGH:
                key = () if match.rule in STEERING_RULES else match.key
                if (match.rule, key) not in stated:
                    yield match._replace(rule="hidden_meaning", level=LEVELS["hidden_meaning"], needs_second=False)

    def _hidden(self, visit: Visit) -> Iterator[Match]:
        page, hints = visit.page, visit.page.hints
        if hints.views or hints.is_unseen or page.is_respelt:
            for view in hidden_views(page.raw, self._work, gates=hints.views, is_unseen=hints.is_unseen):
                if not view.text:
                    level = LEVELS["text_oversized"]
                    yield Match("text_oversized", level, "", 0, 0, (view.how,), None, view.how)
                    continue
                for match in self._decoded(decoded_page(view.text, self._work), is_blob=view.is_blob):
                    yield match._replace(how=f"{view.how} > {match.how}" if match.how else view.how)
        yield from self._respelt(page)

    def _decoded(self, page: Page, *, is_blob: bool) -> Iterator[Match]:
        """Yield the matches of a decoded text, as of any other, but mentioning terminal codes is not using them."""
        visit = self._read(page)
        if is_blob:
            seen = page.seen
            yield Match("encoded_text", LEVELS["encoded_text"], seen, 0, len(seen), (page.raw,), None)
        yield from self._as_it_stands(visit, is_raw=is_blob)
        yield from self._respelt(page)

    def _read(self, page: Page) -> Visit:
        page.read(phrase_filter(), self._work)
        return Visit(page, self._others, self._offered, self._work)

    def _respelt(self, page: Page) -> Iterator[Match]:
        """Yield the matches of a text as ROT13 and backwards."""
        for way, (how, respell) in RESPELLINGS.items():
            found: Iterator[Match] = iter(())
            # Letters of other scripts stand as they are in ROT13, so only what ASCII words say counts there.
            is_otherwise = not page.is_plain and (way == BACKWARDS or page.asked >> way & 1)
            if is_otherwise or not TELLTALES[way].isdisjoint(page.vocabulary.words):
                respelt = self._read(decoded_page(respell(page.seen), self._work))
                found = self._as_it_stands(respelt, is_raw=False)
            elif page.asked >> way & 1 or self._is_note or (self._others and page.has_address):
                found = self._read_otherwise(page, way, respell)
            for match in found:
                # The score of letters in a wrong order says nothing, and a comment keeps its marks in any order. What
                # the words say, phrases and relations find.
                if match.rule not in (STEERING_SCORED, "comment_with_text"):
                    yield match._replace(how=how)

    def _read_otherwise(self, page: Page, way: int, respell: Callable[[str], str]) -> Iterator[Match]:
        """Yield the matches of a text of ASCII words, backwards or as ROT13; its words decide whether to respell it."""
        forms = respell(" ".join(page.forms)).split()
        is_tool_named = self._others.have_beginning(forms) and self._others.is_named(forms, self._work)
        names = _names_on(page, None, is_tool_named=is_tool_named)
        possible = self._possible(page, way, names)
        if not possible and not self._is_note:
            return
        self._work.spend(_UNITS_PER_READ_CHAR * len(page.seen))
        words = Words(respell(page.seen))
        rules = RULE_NEEDLES.rules_of(lowered(words.text), self._work)
        names = names_in(
            words.text,
            rules,
            is_tool_named=is_tool_named,
            is_addressed=has_address(words.text),
            has_account=may_have_account(words.text),
        )
        yield from self._by_phrases(words, names, {}, possible)

    def _as_it_stands(self, visit: Visit, *, is_raw: bool = True) -> Iterator[Match]:
        """Yield the matches of a text without decoding it; ``is_raw``: of what its reader does not see, too."""
        page, hints = visit.page, visit.page.hints
        if hints.rules or hints.is_unseen or hints.is_wide:
            for rule, pattern in _PATTERNS:
                if rule.searched_in == "raw":
                    if is_raw and (hints.is_wide if rule.needs == "wide" else hints.is_unseen):
                        yield from self._by_pattern(rule, pattern, page.raw)
                elif rule.id in hints.rules and (not rule.hints or any(hint in page.lowered for hint in rule.hints)):
                    yield from self._by_pattern(rule, pattern, page.seen)
        yield from self._by_words(visit)

    def _by_pattern(self, rule: DetectionRule, pattern: re.Pattern[str], text: str) -> Iterator[Match]:
        self._work.spend(_UNITS_PER_PATTERN + len(text) // _CHARS_PER_UNIT)
        seen: set[Key] = set()
        for match in pattern.finditer(text):
            self._work.spend(_UNITS_PER_MATCH)
            key = key_of(rule, match[0])
            if key not in seen and not is_harmless_address(rule, key) and not is_excused(rule.id, text, match.start()):
                seen.add(key)
                level = level_of(rule, key, text, match.start())
                yield Match(rule.id, level, text, match.start(), match.end(), key, None)
            if len(seen) == _MATCHES_MAX:
                break

    def _by_words(self, visit: Visit) -> Iterator[Match]:
        """Yield the matches by words of a text as it stands."""
        page = visit.page
        yield from visit.steering
        counted: _Counted = {}
        is_tool_named = visit.names_tool
        names: Set[str] = frozenset()
        possible: Sequence[int] = ()
        if is_tool_named or self._is_note or page.asked >> AS_IT_STANDS & 1:
            names = _names_on(page, page.hints.rules, is_tool_named=is_tool_named)
            possible = self._possible(page, AS_IT_STANDS, names)
        if possible or self._is_note:
            yield from self._by_phrases(visit.words, names, counted, possible or None)
        if is_tool_named:
            for span in self._others.spans(visit.words, self._work):
                yield from self._once("other_tool_named", visit.words, span, counted)
        if not page.is_plain and any(mixes_scripts(word) for word in mixed_words(page.seen)):
            words = visit.words
            for index, (start, stop) in enumerate(words.spans):
                if not words.forms[index].isascii() and mixes_scripts(page.seen[start:stop]):
                    yield from self._once("mixed_script_word", words, (index, index + 1), counted)

    def _possible(self, page: Page, way: int, names: Set[str]) -> Sequence[int]:
        """Return the phrases that may occur in a text, read one way, given these names in braces."""
        if not (page.asked >> way & 1 or {"tool", "address"} <= names):
            return ()
        readings = page.readings or {}
        possible = phrase_filter().possible(readings.values(), way, names, self._work)
        if possible and len(page.forms) > 2 * phrase_filter().reach:
            windows = phrase_filter().windows(page.forms, readings, self._work)
            possible = phrase_filter().possible_near(possible, windows, way, self._work)
        return possible

    def _by_phrases(
        self, words: Words, names: Set[str], counted: _Counted, possible: Sequence[int] | None
    ) -> Iterator[Match]:
        """Yield the matches of possible phrases, and of notes where the text is for them."""
        notes = range(len(_notes().phrases)) if self._is_note else None
        for book, numbers in ((phrase_filter().book, possible), (_notes(), notes)):
            if numbers is not None:
                places = Places(words, self._others, names, self._work)
                for rule, span, number in book.search(words, places.spans, self._work, numbers):
                    said = words.forms[span[0] : span[1]]
                    # Languages share words: "include credentials" is English.
                    is_english = number < CATALOG.english_phrases or 2 * len(_COMMON.intersection(said)) >= len(said)
                    for match in self._once(rule, words, span, counted):
                        yield match._replace(needs_second=book is _notes() or is_english)

    def _once(self, rule: str, words: Words, span: Span, counted: _Counted) -> Iterator[Match]:
        first, end = span
        if rule in _UNLESS and _UNLESS[rule].match(words.text, words.spans[end - 1][1]):
            return
        if is_excused(rule, words.text, words.spans[first][0]):
            return
        key = tuple(words.forms[first:end])
        known = counted.setdefault(rule, set())
        if key not in known and len(known) < _MATCHES_MAX:
            known.add(key)
            start, stop = words.spans[first][0], words.spans[end - 1][1]
            yield Match(rule, LEVELS[rule], words.text, start, stop, key, None)


def _names_on(page: Page, rules: Set[str] | None, *, is_tool_named: bool) -> set[str]:
    """Return the names in braces that may stand for something in a text."""
    has_account = rules is not None and page.has_account
    return names_in(
        page.seen, rules, is_tool_named=is_tool_named, is_addressed=page.has_address, has_account=has_account
    )


_NAMED = [(rule, frozenset(tuple(name.split("_")) for name in rule.names.split())) for rule in RULES if rule.names]
_LAST_WORDS = frozenset(name[-1] for _, names in _NAMED for name in names)
_USUAL_AT_FIRST = frozenset(["url_introduced", *(rule.id for rule, _ in _NAMED)])
_NO_WORDS: Final = frozenset[str]()
_KNOWLEDGE_REQUESTED = "knowledge_requested"
_ASKING = frozenset([_KNOWLEDGE_REQUESTED, "secret_read_asked"])
_NAME_WORDS_MAX = 5
_SPOKEN_BARS_MIN = 4
_GENERATED = "Arguments"
"""What schema generators add to a tool's name."""
_NOTE_WORDS = frozenset((name,) for name in CATALOG.words.notes.split())
_UNITS_PER_TEXT = 20
_UNITS_PER_NAME = 20
_BATCH_CHARS = 16_384


def all_matches(
    texts: Iterable[Text], others: OtherTools, offered: OfferedNames, required: frozenset[str] | None, work: Work
) -> Iterator[Match]:
    """Yield the matches of every text, up to the bound on what is read of one definition.

    Args:
        offered: what the definition and its list offer.
        required: names of the required parameters, ``None`` for a definition seen for the first time.
    """
    listed = []
    left = DEFAULT_LIMITS.introduced_chars_max
    for text in texts:
        if len(text.value) > left:
            yield Match("text_oversized", LEVELS["text_oversized"], "", 0, 0, (), text.place)
            # Both ends are read: what is hidden stands at one of them.
            head, tail = text.value[: left // 2], text.value[len(text.value) - left // 2 :]
            listed += [msgspec.structs.replace(text, value=part) for part in (head, tail)]
            break
        left -= len(text.value)
        listed.append(text)
        if text.value.count("_") >= _SPOKEN_BARS_MIN and " " not in text.value:
            # A name that is a sentence is read as one: you_must_call_this_first.
            spoken = text.value.removesuffix(_GENERATED).replace("_", " ")
            listed.append(msgspec.structs.replace(text, role=TextRole.TEXT, value=spoken))
    parameters = [text for text in listed if text.role is TextRole.PARAMETER]
    closed = {text.value for text in parameters if not text.is_free}
    names = {text.value.lower() for text in parameters}

    def is_expected(rule: str, name: str) -> bool:
        # A mail has "bcc" beside "cc", and "run_command" takes what its name says.
        beside = name.lower().replace("bcc", "cc")
        is_copied = beside != name.lower() and beside in names
        return is_copied or not OWN_BUSINESS.get(rule, _NO_WORDS).isdisjoint(others.own_words)

    reader = Reader(others, offered, work)
    for batch in _batches(listed):
        pages = pages_of((text.value for text in batch), work)
        for text in batch:
            if text.role is TextRole.PARAMETER:
                work.spend(_UNITS_PER_TEXT + _UNITS_PER_NAME + len(text.value))
                if text.is_free:
                    yield from _weighed(_named(text, required, is_expected), is_first_sight=required is None)
            else:
                work.spend(_UNITS_PER_TEXT)
            is_note = name_words(text.described_parameter or "")[-1:] in _NOTE_WORDS
            found = reader.search(pages[text.value], text.place, is_note=is_note)
            if found:
                yield from _weighed(_askable(found, text, closed), is_first_sight=required is None)


def _askable(found: Iterable[Match], text: Text, closed: Set[str]) -> Iterator[Match]:
    """Yield matches without what the text cannot ask for: what a model knows goes into parameters that take any text.

    Args:
        closed: names of the other parameters, such as switches. Their descriptions begin with what the server does:
            "Include credentials".
    """
    for match in found:
        if match.rule in _ASKING:
            is_name = text.value in closed
            is_closed = is_name or text.parameter_told in closed
            if match.rule == _KNOWLEDGE_REQUESTED:
                is_answerable = text.is_of_parameter and not is_closed
            else:
                is_answerable = not is_closed or (match.start > 0 and not is_name)
            if not is_answerable:
                continue
        yield match


def _weighed(matches: Iterable[Match], *, is_first_sight: bool) -> Iterator[Match]:
    """Yield matches at their level. What most new tools have counts one less there: a shell takes a script."""
    for match in matches:
        is_lower = is_first_sight and match.rule in _USUAL_AT_FIRST and match.level > LEVEL_LOW
        yield match._replace(level=match.level - 1) if is_lower else match


def _batches(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """Yield texts that are read together: matches in the first ones are found before later ones are read."""
    batch: list[Text] = []
    chars = 0
    for text in texts:
        if text.value:
            batch.append(text)
            chars += len(text.value)
        if chars > _BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    yield batch


def _named(text: Text, required: frozenset[str] | None, is_expected: Callable[[str, str], bool]) -> Iterator[Match]:
    """Yield the matches of the name of a parameter; one that a tool seen for the first time leads to expect is low."""
    words = name_words(text.value)
    if not words or words[-1] not in _LAST_WORDS:
        return
    raised = {"required": required is not None and text.value in required, "address": text.has_address, None: False}
    for rule, names in _NAMED:
        lengths = [len(words)] if rule.names_are_whole else range(1, min(len(words), _NAME_WORDS_MAX) + 1)
        if any(words[-length:] in names for length in lengths):
            level = rule.raised_to if rule.raised_to is not None and raised[rule.raised_when] else rule.level
            if required is None and is_expected(rule.id, text.value):
                level = LEVEL_LOW
            yield Match(rule.id, level, text.value, 0, len(text.value), words, text.place)
