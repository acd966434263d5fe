"""Find sentences that steer a model: by relations (``data/relations.toml``) and by their scores.

A relation ignores the words around it, so it finds attacks in wordings that no phrase lists: "call <other>" in a
sentence with "first" is a directive to call a tool that the server does not offer.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import chain, pairwise
from operator import itemgetter, or_
from typing import Final, NamedTuple

import msgspec

from assay_stream.detect.catalog import CATALOG, DATA, LEVELS, reading
from assay_stream.detect.match import Match
from assay_stream.detect.scorer import MODEL, RULE, passages_in
from assay_stream.detect.surfaces import Text, TextRole
from assay_stream.detect.symbols import OfferedNames, Sentence, sentences_of, spans_of
from assay_stream.detect.tool_names import OtherTools
from assay_stream.work import Work

_CLASS = re.compile(r"\$(\w+)(\{\d+,\d+\})?")
_GAP = re.compile(r"~(\d+)(?:!(\w+))?")
_CALLS = frozenset(["$call", "$call_now"])
_EDGES = {"^^": "(?<=^ )", "$$": "$"}
"""Where a sentence begins and ends."""
_CAPITALS = "<capitals>"
_FAILING = frozenset(["fail", "fails", "failed", "failing"])
_DENIED_SYMBOLS = 5
"""A relation is denied by a word within so many symbols before it."""
_LEVEL_OF_PARTS = 1
"""Up to this level a facet is reported beside another one only."""
_FACET_SENTENCES = 2
"""Facets of one rule may be so many sentences apart."""
_COMMON = {word: rank for rank, word in enumerate(CATALOG.words.common.split(), 1)}
_SHARE_OF_OTHERS = 1 / 1_000
_CACHED_SENTENCES_MAX = 4_096
_UNITS_PER_SENTENCE = 10
_UNITS_PER_SEARCH = 20


class _Relation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rule: str
    patterns: tuple[str, ...] = ()
    together: tuple[str, ...] = msgspec.field(name="with", default=())
    near: tuple[str, ...] = ()
    unless: str | None = None
    unless_denied: bool = False
    level: int | None = None
    facet: str = ""
    is_sufficient: bool = False


class _Relations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    words: Mapping[str, str]
    relation: tuple[_Relation, ...]


class Related(NamedTuple):
    """A relation that holds in a sentence, from its first symbol that takes part to the end of the last one."""

    rule: str
    level: int
    facet: str
    first: int
    end: int
    is_call: bool
    is_sufficient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """One pattern of a relation, with the sets of symbols of which each must have one in the sentence.

    Without a pattern, ``needs`` are all there is, in any order.
    """

    rule: str
    level: int
    facet: str
    is_call: bool
    is_sufficient: bool
    pattern: re.Pattern[str] | None
    needs: tuple[frozenset[str], ...]
    near: tuple[frozenset[str], ...]
    unless: re.Pattern[str] | None
    denials: frozenset[str]


def _compiled() -> Iterator[_Compiled]:
    data = msgspec.toml.decode((DATA / "relations.toml").read_bytes(), type=_Relations)
    classes = {name: frozenset(words.split()) for name, words in data.words.items()}
    for relation in data.relation:
        level = LEVELS[relation.rule]
        for pattern in relation.patterns or ("",):
            terms = pattern.split()
            needs = [_words_of(term, classes) for term in terms if term not in _EDGES and not _is_optional(term)]
            needs += [_words_of(term, classes) for term in relation.together]
            yield _Compiled(
                rule=relation.rule,
                level=level if relation.level is None else relation.level,
                facet=relation.facet,
                is_call=not _CALLS.isdisjoint(terms[:1]),
                is_sufficient=relation.is_sufficient,
                pattern=_regex(terms, classes) if terms else None,
                needs=tuple(sorted(needs, key=_how_common)),
                near=tuple(_words_of(term, classes) for term in relation.near),
                unless=None if relation.unless is None else _regex(relation.unless.split(), classes),
                denials=classes["denial"] if relation.unless_denied else frozenset(),
            )


def _how_common(words: Set[str]) -> float:
    return sum(1 / _COMMON[word] if word in _COMMON else _SHARE_OF_OTHERS for word in words)


def _is_optional(term: str) -> bool:
    return _GAP.fullmatch(term) is not None or "{" in term or "$$" in term


def _words_of(term: str, classes: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the symbols that a term stands for: ``$name`` a class, anything else itself, and ``|`` between them."""
    found: set[str] = set()
    for each in set(term.split("|")) - _EDGES.keys():
        named = _CLASS.fullmatch(each)
        found |= {each} if named is None else classes[named[1]]
    return frozenset(found)


def _regex(terms: Sequence[str], classes: Mapping[str, frozenset[str]]) -> re.Pattern[str]:
    """Return an expression over symbols that are joined, preceded and followed by blanks."""
    parts = []
    for term in terms:
        gap, named = _GAP.fullmatch(term), _CLASS.fullmatch(term)
        if term in _EDGES:
            parts.append(_EDGES[term])
        elif gap is not None:
            barred = f"(?!(?:{'|'.join(sorted(classes[gap[2]]))}) )" if gap[2] else ""
            parts.append(rf"(?:{barred}\S+ ){{0,{gap[1]}}}?")
        else:
            words = "|".join(map(re.escape, sorted(_words_of(term, classes))))
            if "$$" in term:
                parts.append(f"(?:$|(?:{words}) )")
            else:
                parts.append(f"(?:(?:{words}) ){named[2]}" if named is not None and named[2] else f"(?:{words}) ")
    return re.compile("(?<= )" + "".join(parts))


with reading("relations.toml"):
    # The gravest first: each rule is reported once a sentence.
    _RELATIONS: Final = tuple(sorted(_compiled(), key=lambda relation: (-relation.level, not relation.is_sufficient)))
_BIT_OF: Final = {
    need: 1 << bit for bit, need in enumerate(dict.fromkeys(chain(*(relation.needs for relation in _RELATIONS))))
}
"""A bit for each set of symbols of which some relation needs one."""
_BITS_OF: Final[dict[str, int]] = {}
_BY_RAREST: Final[dict[int, list[tuple[int, int]]]] = {}
"""Relations, with all of their bits, by that of the rarest set that they need: most sentences have none."""
for _need, _bit in _BIT_OF.items():
    for _symbol in _need:
        _BITS_OF[_symbol] = _BITS_OF.get(_symbol, 0) | _bit
for _at, _relation in enumerate(_RELATIONS):
    _bits = [_BIT_OF[need] for need in _relation.needs]
    _BY_RAREST.setdefault(_bits[0], []).append((_at, reduce(or_, _bits)))
_RARE: Final = reduce(or_, _BY_RAREST)
RELATION_RULES: Final = frozenset(relation.rule for relation in _RELATIONS)
"""Ids of the rules that relations are reported under."""


def relations_in(sentences: Sequence[Sentence], work: Work) -> Iterator[tuple[Sentence, Related]]:
    """Yield the relations that hold in the sentences of one text, each rule and facet once a sentence.

    What different facets of one rule say near each other is no chance: they have the level of the rule, unless each of
    them is common (level 0).

    Args:
        sentences: in their order.
    """
    held = list(_held(sentences, work))
    parts = defaultdict[tuple[str, int], list[Related]](list)
    for number, _, each in held:
        if each.facet:
            parts[each.rule, number].append(each)
    work.spend(_UNITS_PER_SENTENCE * len(held))
    for number, sentence, related in held:
        around = range(number - _FACET_SENTENCES, number + _FACET_SENTENCES + 1)
        others = [
            (at, other)
            for at in (around if related.facet else ())
            for other in parts.get((related.rule, at), ())
            if other.facet != related.facet and max(other.level, related.level) > 0
        ]
        # The same words say one thing, whatever facets they have, and what is common tells nothing.
        is_sufficient = related.is_sufficient and (
            not related.facet
            or any(
                other.level > 0 and (at != number or other.end <= related.first or related.end <= other.first)
                for at, other in others
            )
        )
        if others or related.level > _LEVEL_OF_PARTS:
            level = LEVELS[related.rule] if others else related.level
            yield sentence, related._replace(level=level, is_sufficient=is_sufficient)


def _held(sentences: Sequence[Sentence], work: Work) -> Iterator[tuple[int, Sentence, Related]]:
    work.spend(_UNITS_PER_SENTENCE * len(sentences))
    for number, each in enumerate(sentences):
        possible = _possible(each.symbols)
        if not possible:
            continue
        sentence = _uncapitalized(each) if _CAPITALS in each.symbols else each
        joined, found = "", set()
        for relation in possible:
            asked = relation.rule, relation.facet
            if asked in found:
                continue
            if relation.near:
                around = frozenset(chain(*(near.symbols for near in sentences[max(0, number - 1) : number + 2])))
                if any(map(around.isdisjoint, relation.near)):
                    continue
            work.spend(_UNITS_PER_SEARCH + len(sentence.symbols))
            joined = joined or f" {' '.join(sentence.symbols)} "
            part = _part(relation, sentence.symbols, joined)
            if part is not None:
                found.add(asked)
                related = Related(
                    relation.rule, relation.level, relation.facet, *part, relation.is_call, relation.is_sufficient
                )
                yield number, sentence, related


@lru_cache(_CACHED_SENTENCES_MAX)
def _possible(symbols: tuple[str, ...]) -> tuple[_Compiled, ...]:
    """Return the relations of which a sentence has all that they need, the gravest first."""
    bits = 0
    for symbol in symbols:
        bits |= _BITS_OF.get(symbol, 0)
    rare, found = bits & _RARE, []
    while rare:
        lowest = rare & -rare
        found += [at for at, needs in _BY_RAREST[lowest] if needs & bits == needs]
        rare ^= lowest
    return tuple(_RELATIONS[at] for at in sorted(found))


def _uncapitalized(sentence: Sentence) -> Sentence:
    """Return a sentence without the marks of words in capitals: who shouts says the same."""
    kept = [at for at, symbol in enumerate(sentence.symbols) if symbol != _CAPITALS]
    symbols = tuple(map(sentence.symbols.__getitem__, kept))
    return sentence._replace(symbols=symbols, runs=tuple(map(sentence.runs.__getitem__, kept)))


def _part(relation: _Compiled, symbols: tuple[str, ...], joined: str) -> tuple[int, int] | None:
    """Return the first and the end of the symbols that take part in a relation, ``None`` if it does not hold."""
    if relation.pattern is None:
        ats = [next(at for at, symbol in enumerate(symbols) if symbol in words) for words in relation.needs]
        part = min(ats), max(ats) + 1
        return None if _is_denied(relation, symbols, part) else part
    match = relation.pattern.search(joined)
    while match is not None:
        first = joined.count(" ", 0, match.start()) - 1
        part = first, first + match[0].count(" ")
        # The exception concerns the last symbol of the match, and what follows it.
        last = joined.rfind(" ", 0, match.end() - 1) + 1
        is_excluded = relation.unless is not None and relation.unless.match(joined, last) is not None
        if not is_excluded and not _is_denied(relation, symbols, part):
            return part
        match = relation.pattern.search(joined, match.end() - 1)
    return None


def _is_denied(relation: _Compiled, symbols: tuple[str, ...], part: tuple[int, int]) -> bool:
    around = symbols[max(0, part[0] - _DENIED_SYMBOLS) : part[1]]
    if relation.denials and any(one in _FAILING and other == "to" for one, other in pairwise(around)):
        return True  # What "will silently fail to send" sends nothing.
    return not relation.denials.isdisjoint(around)


STEERING_RULES: Final = frozenset([RULE, *RELATION_RULES]) - {rule for rule, _ in CATALOG.phrases}
"""Ids of the rules on sentences alone."""
_CHARS_MIN = 12
"""A shorter text has no room for a directive."""
_CHARS_PER_UNIT = 4
_LEVEL_MEDIUM = 3


def offered_by(others: OtherTools, texts: Iterable[Text]) -> OfferedNames:
    """Return what a definition, of which these are the texts, and its list offer."""
    return OfferedNames(
        own=others.keys,
        itself=others.own_key,
        parameters=frozenset(text.value for text in texts if text.role is TextRole.PARAMETER or text.is_listed),
        families=others.families,
    )


def steering_in(seen: str, offered: OfferedNames, work: Work) -> Iterator[Match]:
    """Yield what a text, as its reader sees it, does to a model: the keys are symbols."""
    if len(seen) < _CHARS_MIN:
        return
    work.spend(len(seen) // _CHARS_PER_UNIT)
    sentences = list(sentences_of(seen, offered))
    spans: list[tuple[int, int]] = []
    found: set[tuple[str, int]] = set()
    passages = list(passages_in(sentences, work))
    scored = [(passage.sentences[0].runs[0], passage.sentences[-1].runs[-1]) for passage in passages]
    for sentence, related in _relations(seen, sentences, offered, work):
        run = sentence.runs[related.first]
        if (related.rule, run) not in found:
            found.add((related.rule, run))
            spans = spans or spans_of(seen)
            key = sentence.symbols[related.first : related.end]
            # What either finds alone is for a reviewer; what both find is not by chance.
            before = bisect_right(scored, run, key=itemgetter(0))
            is_scored = before > 0 and run <= scored[before - 1][1]
            level = LEVELS[related.rule] if is_scored else related.level
            start, end = spans[run][0], spans[sentence.runs[related.end - 1]][1]
            yield Match(related.rule, level, seen, start, end, key, None, is_sufficient=related.is_sufficient)
    for passage in passages:
        spans = spans or spans_of(seen)
        key = tuple(symbol for sentence in passage.sentences for symbol in sentence.symbols)
        runs, (first, last) = passage.sentences[passage.at].runs, passage.heaviest
        start, end = spans[runs[first]][0], spans[runs[last - 1]][1]
        # One that is medium whatever its score supports others as any medium one does.
        barely = passage.level > _LEVEL_MEDIUM and passage.score < MODEL.alone
        faint = passage.score < MODEL.sign
        yield Match(RULE, passage.level, seen, start, end, key, None, needs_second=barely, is_faint=faint)


def _relations(
    seen: str, sentences: list[Sentence], offered: OfferedNames, work: Work
) -> Iterator[tuple[Sentence, Related]]:
    """Yield the relations that hold, and those of names that only look like the server's own.

    Parameters are not called, so a directive to call one keeps its level, but tools are called *with* one. Any other
    such name may be honest: medium.
    """
    yield from relations_in(sentences, work)
    if any(sentence.is_doubtful for sentence in sentences):
        for reading, is_call in ((offered._replace(parameters=frozenset()), True), (offered.strictly(), False)):
            work.spend(len(seen) // _CHARS_PER_UNIT)
            for sentence, related in relations_in(list(sentences_of(seen, reading)), work):
                called = sentence.symbols[related.first : related.end]
                if not is_call or (related.is_call and "with" not in called):
                    level = related.level if is_call else min(related.level, _LEVEL_MEDIUM)
                    yield sentence, related._replace(level=level, is_sufficient=related.is_sufficient and is_call)
