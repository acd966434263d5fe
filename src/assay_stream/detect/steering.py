"""What the sentences of a text do to a model: relations that hold in them, and how they score as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from assay_stream.detect.catalog import CATALOG, LEVELS
from assay_stream.detect.relations import RELATION_RULES, Related, relations_in
from assay_stream.detect.scorer import RULE, passages_in
from assay_stream.detect.surfaces import Text, TextRole
from assay_stream.detect.symbols import OfferedNames, Sentence, sentences_of, spans_of
from assay_stream.detect.tool_names import OtherTools
from assay_stream.work import Work

STEERING_RULES: Final = frozenset([RULE, *RELATION_RULES]) - {rule for rule, _ in CATALOG.phrases}
"""Ids of the rules on sentences alone."""
_CHARS_MIN = 12
"""A shorter text has no room for a directive."""
_CHARS_PER_UNIT = 4
_LEVEL_MEDIUM = 3


class Steering(NamedTuple):
    """One thing that a text does to a model.

    Args:
        level: OCSF severity id.
        start: start in the text of the part that shows it best.
        end: its end, exclusive.
        key: the words, which must not have occurred before.
    """

    rule: str
    level: int
    start: int
    end: int
    key: tuple[str, ...]


def offered_by(others: OtherTools, texts: Iterable[Text]) -> OfferedNames:
    """Return what a definition and its list offer.

    Args:
        others: the tools of the list.
        texts: of the definition.
    """
    return OfferedNames(
        own=others.keys,
        itself=others.own_key,
        parameters=frozenset(text.value for text in texts if text.role is TextRole.PARAMETER or text.is_listed),
        families=others.families,
    )


def steering_in(seen: str, offered: OfferedNames, work: Work) -> Iterator[Steering]:
    """Yield what a text, as its reader sees it, does to a model.

    Raises:
        WorkExhaustedError: if the budget does not suffice.
    """
    if len(seen) < _CHARS_MIN:
        return
    work.spend(len(seen) // _CHARS_PER_UNIT)
    sentences = list(sentences_of(seen, offered))
    spans: list[tuple[int, int]] = []
    found: set[tuple[str, int]] = set()
    for sentence, related, level in _relations(seen, sentences, offered, work):
        place = (related.rule, sentence.runs[related.first])
        if place not in found:
            found.add(place)
            spans = spans or spans_of(seen)
            key = sentence.symbols[related.first : related.end]
            yield _steering(related.rule, level, sentence, (related.first, related.end), key, spans)
    for passage in passages_in(sentences, work):
        spans = spans or spans_of(seen)
        key = tuple(symbol for sentence in passage.sentences for symbol in sentence.symbols)
        yield _steering(RULE, passage.level, passage.sentences[passage.at], passage.heaviest, key, spans)


def _relations(
    seen: str, sentences: list[Sentence], offered: OfferedNames, work: Work
) -> Iterator[tuple[Sentence, Related, int]]:
    """Yield the relations that hold, each with its level, and those of names that only look like the server's own.

    Parameters are not called, so a directive to call one keeps its level, but tools are called *with* one. Any other
    such name may be honest: medium.
    """
    for sentence, related in relations_in(sentences, work):
        yield sentence, related, LEVELS[related.rule]
    if any(sentence.is_doubtful for sentence in sentences):
        for reading, is_call in ((offered._replace(parameters=frozenset()), True), (offered.strictly(), False)):
            work.spend(len(seen) // _CHARS_PER_UNIT)
            for sentence, related in relations_in(list(sentences_of(seen, reading)), work):
                called = sentence.symbols[related.first : related.end]
                if not is_call or (related.is_call and "with" not in called):
                    level = LEVELS[related.rule]
                    yield sentence, related, level if is_call else min(level, _LEVEL_MEDIUM)


def _steering(
    rule: str, level: int, sentence: Sentence, part: tuple[int, int], key: tuple[str, ...], spans: list[tuple[int, int]]
) -> Steering:
    first, end = part
    return Steering(rule, level, spans[sentence.runs[first]][0], spans[sentence.runs[end - 1]][1], key)
