"""Indicators of an attack in the new text of a definition, and in nothing that stood there before.

1. The texts of both definitions are listed (``surfaces``). One that is the same in both is not new.
2. Each rule is searched in every other text, as it stands, as it is seen, and as it reads once decoded.
3. A match counts only if it touches a new sentence, and if the old definition gave the same rule no match of the
   same words: moving or editing an old sentence is not new.
4. Instructions address the model, order the use of their server's own tools, and describe its setup: rules about
   these count less there. What they make the model do elsewhere counts as in any text.
5. A script that the old definition did not use counts by itself (``scripts``), and so does what the schemas do with
   values (``structure``).

Indicators raise a severity and lower none. They describe what a text resembles, never what its author meant.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import accumulate
from typing import Any, Final, NamedTuple

from assay_stream.canonical.redaction import redact
from assay_stream.detect.catalog import LEVELS, RULES
from assay_stream.detect.excuses import LEVEL_LOW
from assay_stream.detect.match import Match
from assay_stream.detect.page import shown
from assay_stream.detect.places import owner_of
from assay_stream.detect.scorer import RULE as STEERING_SCORED
from assay_stream.detect.scripts import new_scripts
from assay_stream.detect.search import all_matches
from assay_stream.detect.steering import offered_by
from assay_stream.detect.structure import structural_matches
from assay_stream.detect.surfaces import Place, Text, Texts, path_of, required_of
from assay_stream.detect.tool_names import NO_TOOLS, OtherTools, ToolNames
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.text.words import Words
from assay_stream.work import Work, WorkExhaustedError

_EXCERPT_CHARS = 80
_CONTEXT_CHARS = 24
_WORDS_ADDED_MAX = 2
_UNITS_PER_MATCH = 10
_UNITS_PER_CHAR = 3
_UNITS_PER_INDICATOR = 150
_LEVEL_MAX = 5


_INSTRUCTIONS_LEVELS = {rule.id: rule.instructions_level or _LEVEL_MAX for rule in RULES}


class Indicator(NamedTuple):
    """One suspicious feature of new text.

    Args:
        level: OCSF severity id that it raises to, 1 to 5.
        path: JSON path of the text, ``$.description``.
        excerpt: the match and a little context, after the disguises that were undone to read it: at most 80
            characters, escaped and redacted. It is the server's text and has no place in evidence.
    """

    rule: str
    level: int
    path: str
    excerpt: str


CUT_SHORT: Final = Indicator("text_oversized", LEVELS["text_oversized"], "$", "")
"""The indicator of a definition that was not searched in full."""


def detect_indicators(
    before: Mapping[str, Any] | None, after: Mapping[str, Any], *, tool_names: ToolNames = NO_TOOLS, work: Work
) -> list[Indicator]:
    """Return the indicators of a definition's new text, most severe first, one for each rule and path.

    A definition that would cost more than its share is searched until the share is used up, and ``CUT_SHORT`` is
    among its indicators.

    Args:
        before: the older definition, ``None`` where there was none: then every text is new.
        after: the newer definition: a tool, a prompt, a resource template, or ``{"instructions": text}``.
        tool_names: names of the other tools that the agent may call, with or without the definition's own.
        work: the budget of the record that brought the definition.

    Raises:
        WorkExhaustedError: where the budget of the record does not suffice.
    """
    share = work.part(DEFAULT_LIMITS.definition_work_units_max)
    matches: list[Match] = []
    structure: list[Match] = []
    is_cut_short = False
    try:
        structure = structural_matches(before, after, share)
        _search(before, after, OtherTools(tool_names, after.get("name")), share, matches)
    except WorkExhaustedError:
        if work.left < DEFAULT_LIMITS.definition_work_units_max:
            # The share was all that is left of the record's budget.
            work.spend(work.left + 1)
        is_cut_short = True
    work.spend(share.spent)
    if after.keys() == {"instructions"}:
        matches = [match._replace(level=min(match.level, _INSTRUCTIONS_LEVELS[match.rule])) for match in matches]
    return _indicators([*structure, *matches], is_cut_short)


def _indicators(matches: Iterable[Match], is_cut_short: bool) -> list[Indicator]:
    best: dict[tuple[str, Place], Match] = {}
    for match in matches:
        found = best.get((match.rule, match.place))
        if found is None or match.level > found.level:
            best[(match.rule, match.place)] = match
    reported = list(best.values())
    if len(reported) > DEFAULT_LIMITS.indicators_max:
        reported = nsmallest(DEFAULT_LIMITS.indicators_max, reported, key=lambda match: (-match.level, match.rule))
        is_cut_short = True
    indicators = [Indicator(match.rule, match.level, path_of(match.place), _excerpt(match)) for match in reported]
    if is_cut_short:
        indicators.append(CUT_SHORT)
    return sorted(indicators, key=lambda indicator: (-indicator.level, indicator.rule, indicator.path))


def _search(
    before: Mapping[str, Any] | None, after: Mapping[str, Any], others: OtherTools, work: Work, found: list[Match]
) -> None:
    """Add the matches in new text to ``found``. If the budget runs out, it may still hold matches in old text."""
    older = Texts(before, work) if before is not None else None
    old_texts = list(older or ())
    required = required_of(after) if before is not None else None
    texts = Texts(after, work, older)
    new_texts = texts.new({(text.role, text.value) for text in old_texts})
    for match in all_matches(new_texts, others, offered_by(others, texts), required, work):
        # Each of those that are reported takes a path and an excerpt.
        work.spend(_UNITS_PER_INDICATOR if len(found) < DEFAULT_LIMITS.indicators_max else _UNITS_PER_MATCH)
        found.append(match)
    if found and old_texts:
        found[:] = list(_new_ones(found, old_texts, others, work))
    if new_texts and old_texts:
        work.spend(texts.units)
        for script in new_scripts(old_texts, texts, new_texts, work):
            level = LEVELS["script_introduced"]
            found.append(Match("script_introduced", level, script.text, script.start, script.end, (), script.place))


def _new_ones(matches: Iterable[Match], old_texts: Sequence[Text], others: OtherTools, work: Work) -> Iterator[Match]:
    old: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    owners: set[str | None] = set()
    sentences: set[str] = set()
    old_words: set[str] = set()
    for text in old_texts:
        work.spend(_UNITS_PER_CHAR * len(text.value))
        words = Words(shown(text.value, work))
        sentences.update(words.sentence_keys())
        old_words.update(words.forms)
    for match in all_matches(old_texts, others, offered_by(others, old_texts), frozenset(), work):
        old.setdefault(_ends(match), set()).add(match.key)
        if match.rule == "url_introduced":
            owners.add(owner_of(match.key[0]))
    read: dict[str, _Sentences] = {}
    for match in matches:
        alike = old.get(_ends(match), set())
        work.spend(_UNITS_PER_MATCH + len(alike) * len(match.key))
        if match.rule == STEERING_SCORED:
            # A touched word can shift where the best passage begins, so its words may be those of any old sentence.
            work.spend(sum(map(len, alike)))
            if alike and len(set(match.key).difference(old_words, *alike)) <= _WORDS_ADDED_MAX:
                continue
        elif match.key in alike or any(_is_same(key, match.key) for key in alike):
            continue
        if match.text not in read:
            work.spend(_UNITS_PER_CHAR * len(match.text))
            read[match.text] = _Sentences(match.text, sentences)
        if read[match.text].is_touched(match):
            is_of_old_owner = match.rule == "url_introduced" and owner_of(match.key[0]) in owners - {None}
            yield match._replace(level=LEVEL_LOW) if is_of_old_owner else match


def _ends(match: Match) -> tuple[str, ...]:
    """Return what a match shares with one that has more words between its ends; a passage may have them anywhere."""
    if match.rule == STEERING_SCORED:
        return (match.rule,)
    return (match.rule, *match.key[:1], *match.key[-1:])


def _is_same(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Return True if the new words are the old ones with at most two inserted."""
    if not 0 <= len(new) - len(old) <= _WORDS_ADDED_MAX:
        return False
    rest = iter(new)
    return all(word in rest for word in old)


class _Sentences:
    """The sentences of a text, and which of them are new."""

    def __init__(self, text: str, old: set[str]) -> None:
        words = Words(text)
        self._starts = [words.spans[first][0] for first, _ in words.sentences]
        self._ends = [words.spans[end - 1][1] for _, end in words.sentences]
        is_new = [sentence not in old for sentence in words.sentence_keys()]
        self._new_before = [0, *accumulate(is_new)]

    def is_touched(self, match: Match) -> bool:
        """Return True if a match touches a new sentence, or none at all."""
        first = bisect_right(self._ends, match.start)
        end = bisect_left(self._starts, match.end)
        return first >= end or self._new_before[end] > self._new_before[first]


def _excerpt(match: Match) -> str:
    start = max(0, match.start - _CONTEXT_CHARS)
    if start:
        # Half a word could be half a secret, which redaction does not know.
        blank = match.text.find(" ", start, match.start)
        start = blank + 1 if blank >= 0 else match.start
    around = match.text[start : match.start + _EXCERPT_CHARS * 3]
    redacted = redact(around)
    escaped = "".join(char if char.isprintable() else f"\\u{{{ord(char):x}}}" for char in redacted)
    return _first_words(f"{match.how}: {escaped}" if match.how else escaped)


def _first_words(text: str) -> str:
    if len(text) <= _EXCERPT_CHARS:
        return text
    blank = text.rfind(" ", 0, _EXCERPT_CHARS)
    # A word that takes up the second half is shown in part: it may be the match itself.
    return f"{text[: blank if blank > _EXCERPT_CHARS // 2 else _EXCERPT_CHARS - 1]}…"
