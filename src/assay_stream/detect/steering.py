"""What the sentences of a text do to a model: relations (``data/relations.toml``) in them, and their scores.

A relation holds whatever the words around it are, so it finds attacks that no phrase foresees: "call <other>" in a
sentence that says "first" is a directive to a tool that the server does not offer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from assay_stream.detect.catalog import CATALOG, DATA, LEVELS, reading
from assay_stream.detect.scorer import RULE, passages_in
from assay_stream.detect.surfaces import Text, TextRole
from assay_stream.detect.symbols import OfferedNames, Sentence, sentences_of, spans_of
from assay_stream.detect.tool_names import OtherTools
from assay_stream.work import Work

_CLASS = re.compile(r"\$(\w+)(\{\d+,\d+\})?")
_GAP = re.compile(r"~(\d+)(?:!(\w+))?")
_CALL = "$call"
_UNITS_PER_SENTENCE = 10
_UNITS_PER_SEARCH = 20


class _Relation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rule: str
    patterns: tuple[str, ...]
    together: tuple[str, ...] = msgspec.field(name="with", default=())
    near: tuple[str, ...] = ()
    unless: str | None = None


class _Relations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    words: Mapping[str, str]
    relation: tuple[_Relation, ...]


class Related(NamedTuple):
    """A relation that holds in a sentence.

    Args:
        first: index of the first symbol that takes part.
        end: index after the last one.
        is_call: whether it begins with a word for calling something.
    """

    rule: str
    first: int
    end: int
    is_call: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """One pattern of a relation, with the sets of symbols of which each must have one in the sentence."""

    rule: str
    is_call: bool
    pattern: re.Pattern[str]
    needs: tuple[frozenset[str], ...]
    near: frozenset[str]
    unless: re.Pattern[str] | None


def _compiled() -> Iterator[_Compiled]:
    data = msgspec.toml.decode((DATA / "relations.toml").read_bytes(), type=_Relations)
    classes = {name: frozenset(words.split()) for name, words in data.words.items()}
    for relation in data.relation:
        together = frozenset().union(*(classes[name] for name in relation.together))
        for pattern in relation.patterns:
            terms = pattern.split()
            needs = [_words_of(term, classes) for term in terms if not _GAP.fullmatch(term) and "{" not in term]
            yield _Compiled(
                rule=relation.rule,
                is_call=terms[0] == _CALL,
                pattern=_regex(terms, classes),
                needs=(*sorted(needs, key=len), *([together] if together else ())),
                near=frozenset().union(*(classes[name] for name in relation.near)),
                unless=None if relation.unless is None else _regex(relation.unless.split(), classes),
            )


def _words_of(term: str, classes: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the symbols that a term stands for: ``$name`` a class, anything else itself, and ``|`` between them."""
    found: set[str] = set()
    for each in term.split("|"):
        named = _CLASS.fullmatch(each)
        found |= {each} if named is None else classes[named[1]]
    return frozenset(found)


def _regex(terms: Sequence[str], classes: Mapping[str, frozenset[str]]) -> re.Pattern[str]:
    """Return an expression over symbols that are joined, preceded and followed by blanks."""
    parts = []
    for term in terms:
        gap, named = _GAP.fullmatch(term), _CLASS.fullmatch(term)
        if gap is not None:
            barred = f"(?!(?:{'|'.join(sorted(classes[gap[2]]))}) )" if gap[2] else ""
            parts.append(rf"(?:{barred}\S+ ){{0,{gap[1]}}}?")
            continue
        words = "|".join(map(re.escape, sorted(_words_of(term, classes))))
        parts.append(f"(?:(?:{words}) ){named[2]}" if named is not None and named[2] else f"(?:{words}) ")
    return re.compile("(?<= )" + "".join(parts))


with reading("relations.toml"):
    _RELATIONS: Final = tuple(_compiled())
_ALWAYS: Final = frozenset(number for number, relation in enumerate(_RELATIONS) if not relation.needs)
_BY_SYMBOL: Final = {
    symbol: frozenset(number for number, each in enumerate(_RELATIONS) if each.needs and symbol in each.needs[0])
    for symbol in frozenset().union(*(relation.needs[0] for relation in _RELATIONS if relation.needs))
}
"""Relations by a symbol of the smallest set that they need one of: most sentences have none."""
_ASKED: Final = frozenset(_BY_SYMBOL)
RELATION_RULES: Final = frozenset(relation.rule for relation in _RELATIONS)
"""Ids of the rules that relations are reported under."""


def relations_in(sentences: Sequence[Sentence], work: Work) -> Iterator[tuple[Sentence, Related]]:
    """Yield the relations that hold in the sentences of one text, each rule once a sentence.

    Args:
        sentences: in their order.
    """
    work.spend(_UNITS_PER_SENTENCE * len(sentences))
    for number, sentence in enumerate(sentences):
        if not _ALWAYS and _ASKED.isdisjoint(sentence.symbols):
            continue
        symbols = frozenset(sentence.symbols)
        joined, found = "", set()
        for at in sorted(_ALWAYS.union(*map(_BY_SYMBOL.__getitem__, symbols & _ASKED))):
            relation = _RELATIONS[at]
            if relation.rule in found or any(map(symbols.isdisjoint, relation.needs)):
                continue
            around = sentences[max(0, number - 1) : number + 2]
            if relation.near and all(relation.near.isdisjoint(each.symbols) for each in around):
                continue
            work.spend(_UNITS_PER_SEARCH + len(sentence.symbols))
            joined = joined or f" {' '.join(sentence.symbols)} "
            match = relation.pattern.search(joined)
            while match is not None and _is_excluded(relation, joined, match):
                match = relation.pattern.search(joined, match.end() - 1)
            if match is not None:
                found.add(relation.rule)
                first = joined.count(" ", 0, match.start()) - 1
                yield sentence, Related(relation.rule, first, first + match[0].count(" "), relation.is_call)


def _is_excluded(relation: _Compiled, joined: str, match: re.Match[str]) -> bool:
    if relation.unless is None:
        return False
    # The exception concerns the last symbol of the match, and what follows it.
    return relation.unless.match(joined, joined.rfind(" ", 0, match.end() - 1) + 1) is not None


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
    """Yield what a text, as its reader sees it, does to a model."""
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
