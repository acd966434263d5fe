"""Tools that imitate another one of their list: nearly its name, its parameters or its description, and better at it.

1. Only a definition whose new words claim something for it is compared: its name says ``better`` or ``pro``, or its
   description says that it is faster, recommended or to be used instead. What the other one says of itself is no claim.
2. It is compared with the definitions that have its parameters, or a word of its name; each comparison is paid for.
3. It imitates another if it has most of its parameters and the same name except for rank and version, or if it has the
   same parameters and most of its description. A tool with another action or object does not count.

Similar tools that claim nothing are ordinary versions of each other, as in honest lists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, Final, NamedTuple

from assay_stream.detect.catalog import CATALOG, LEVELS
from assay_stream.detect.indicators import Indicator
from assay_stream.detect.surfaces import name_words
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import UNLIMITED, Work

_RULE: Final = "sibling_imitated"
_CLAIMS = frozenset(CATALOG.words.claims.split())
_COMPARING = frozenset(("better", "instead", "prefer", "preferred", "recommended"))
_RANKS = frozenset(CATALOG.words.ranks.split())
_ENDINGS = ("ing", "ers", "er", "or", "s")
_STEM_CHARS_MIN = 4
_VERBS = {word: group[0] for line in CATALOG.words.verbs for group in [line.split()] for word in group}
_READING = frozenset(["get", "search", "list", "read", "describe", "query"])
"""What a name without a verb does as well."""
_WORD = re.compile(r"[^\W\d_]{2,24}+")
_ARGUMENT = re.compile(r"^[ \t]+\w{1,64}(?: \([^)\n]{0,80}\))?:[^\n]*", re.MULTILINE)
"""A line about a parameter, which says nothing of the tool."""
_USED = re.compile(r"\b(?:use|prefer|call|see|try|choose) [^\w\s]?([\w-]{1,128}+)")
_RATHER = re.compile(r"\binstead of (?!using|calling|invoking|running)\w{1,24}+(?<=ing)\b")
"""What is done instead of something else. Instead of *using* another tool is a claim."""
_VERSION = re.compile(r"v?\d{1,3}")
_UNITS_PER_TOOL = 40
_UNITS_PER_PAIR = 10
_CHARS_PER_UNIT = 4
_COMMON_PERCENT_MIN = 70
_WORDS_MIN = 3
_LEVEL_OF_NAMES = 3
_LEVEL_OF_CLAIMS = (0, 0, 3, LEVELS[_RULE])
"""By the weight of claims: one word that claims something is common among honest neighbours, two are not."""
_MODEST = frozenset(CATALOG.words.modest_claims.split())
_SHORT_WORD_CHARS = 3
_COMMON_MIN = 3
_CHARS_MAX = 4_000
"""Characters of a description that are compared: what a tool is for stands at its beginning."""


class _Tool(NamedTuple):
    """What identifies a tool to its caller: stems of name and description, the verbs that the description has, names
    that it says to use, and claims."""

    name: str
    verbs: frozenset[str]
    nouns: frozenset[str]
    ranks: frozenset[str]
    parameters: frozenset[str]
    words: frozenset[str]
    told: frozenset[str]
    claims: frozenset[str]
    uses: frozenset[str]


class Siblings:
    """The tools of a list, to find the one that a definition imitates.

    Args:
        tools: the definitions.
    """

    def __init__(self, tools: Iterable[Mapping[str, Any]]) -> None:
        self._tools = tools
        self._names: Set[str] = frozenset()
        self._prefixes: Set[str] = frozenset()
        self._boilerplate: Set[str] = frozenset()
        self._index: Mapping[object, Sequence[_Tool]] | None = None

    def imitated(self, before: Mapping[str, Any] | None, after: Mapping[str, Any], work: Work) -> Iterator[Indicator]:
        """Yield the indicator of a definition that imitates another tool of the list.

        Args:
            before: the older definition, ``None`` where there was none.
        """
        claims = claims_of(after, work)
        if claims and before is not None:
            claims -= claims_of(before, work)
        if claims:
            self.read(work)
            yield from self.imitated_by(after, claims, work)

    def read(self, work: Work) -> None:
        """Read the tools of the list, unless that was done before."""
        if self._index is None:
            self._index = self._indexed(work)

    def imitated_by(self, after: Mapping[str, Any], claims: Set[str], work: Work) -> Iterator[Indicator]:
        """Yield the indicator of a definition that makes new claims, in a list that is read or was paid for."""
        if self._index is None:
            self._index = self._indexed(Work(UNLIMITED))
        own = self._without_prefix(_read(after, _said(after, Work(UNLIMITED))))
        if own.uses & (self._names - {own.name.lower()}):
            claims -= _COMPARING  # It is another one that is better.
        near = [
            (min(_level(own, other, self._boilerplate), _LEVEL_OF_CLAIMS[_weight(claims, own, other)]), other.name)
            for other in self._near(own, self._index, work)
            if own.name.lower() not in other.uses  # It is the other one that says which is better.
        ]
        level, name = max(near, default=(0, ""))
        if level:
            yield Indicator(_RULE, level, "$.name", name)

    def _indexed(self, work: Work) -> Mapping[object, Sequence[_Tool]]:
        index: dict[object, list[_Tool]] = {}
        tools = sorted((_read(each, _said(each, work)) for each in self._tools), key=lambda tool: tool.name)
        self._names = {tool.name.lower() for tool in tools}
        # A word that half of the names or descriptions have is the server's: it tells none of them from another.
        often_min = max(_COMMON_MIN, len(tools) / 2)
        self._prefixes = _in_many([tool.nouns for tool in tools], often_min)
        # An imitation and what it imitates say the same anyway: these two show nothing of the others.
        self._boilerplate = _in_many([tool.words for tool in tools], often_min + 2)
        for tool in map(self._without_prefix, tools):
            for key in (tool.parameters, *tool.nouns):
                index.setdefault(key, []).append(tool)
        return index

    def _without_prefix(self, tool: _Tool) -> _Tool:
        return tool._replace(nouns=tool.nouns - self._prefixes)

    @staticmethod
    def _near(own: _Tool, index: Mapping[object, Sequence[_Tool]], work: Work) -> Iterator[_Tool]:
        seen = {own.name}
        for key in (own.parameters, *sorted(own.nouns)):
            for other in index.get(key, ()):
                work.spend(_UNITS_PER_PAIR)
                if other.name not in seen:
                    seen.add(other.name)
                    yield other


def _weight(claims: Set[str], own: _Tool, other: _Tool) -> int:
    """Return how much is claimed, 0 to 3. A function may be called advanced, one of two alike may not."""
    new = claims - other.claims
    is_above = own.nouns == other.nouns and not own.ranks <= other.ranks
    return min(2 * len(new) - len(new & _MODEST) + (is_above and bool(new)), 3)


def claims_of(definition: Mapping[str, Any], work: Work) -> frozenset[str]:
    """Return the words by which a definition claims something for its tool: few make any claim."""
    return _said(definition, work)[-1]


_Said = tuple[str, tuple[str, ...], str, frozenset[str], frozenset[str]]


def _said(definition: Mapping[str, Any], work: Work) -> _Said:
    """Return name and description, each with its words, and the claims."""
    name, description = definition.get("name"), definition.get("description")
    name = name[: DEFAULT_LIMITS.tool_name_chars_max] if isinstance(name, str) else ""
    text = description[:_CHARS_MAX] if isinstance(description, str) else ""
    if "\n" in text or text[:1].isspace():  # Looking for the beginning of a line takes a step for each character.
        text = _ARGUMENT.sub("", text)
    text = _RATHER.sub("", text.lower())
    work.spend(_UNITS_PER_TOOL + len(name) + len(text) // _CHARS_PER_UNIT)
    named, words = name_words(name), frozenset(_WORD.findall(text))
    return name, named, text, words, (words | frozenset(named)) & _CLAIMS


def _read(definition: Mapping[str, Any], said: _Said) -> _Tool:
    name, named, text, words, claims = said
    schema = definition.get("inputSchema", definition.get("input_schema"))
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    core = {_stem(word) for word in named if word not in _RANKS and not _VERSION.fullmatch(word)}
    return _Tool(
        name=name,
        verbs=frozenset(_VERBS[word] for word in core if word in _VERBS),
        nouns=frozenset(core - _VERBS.keys()),
        ranks=_RANKS.intersection(named),
        parameters=frozenset(properties) if isinstance(properties, Mapping) else frozenset(),
        words=frozenset(map(_stem, words)),
        told=frozenset(_VERBS[word] for word in words if word in _VERBS),
        claims=claims,
        uses=frozenset(_USED.findall(text)),
    )


def _stem(word: str) -> str:
    word = word.rstrip("0123456789") or word
    return next(
        (word.removesuffix(end) for end in _ENDINGS if word.endswith(end) and len(word) > _STEM_CHARS_MIN), word
    )


def _in_many(found: Iterable[Set[str]], often_min: float) -> Set[str]:
    return {word for word, count in Counter(chain.from_iterable(found)).items() if count >= often_min}


def _level(own: _Tool, other: _Tool, boilerplate: Set[str]) -> int:
    """Return the level of an imitation: OCSF severity id, 0 if it is none."""
    common, params = own.parameters & other.parameters, own.parameters | other.parameters
    is_same_action = own.verbs == other.verbs or not other.verbs
    is_same_action = is_same_action or (not own.verbs and other.verbs - _READING <= own.told)
    # What its name adds and its description explains is something else: hourly, marine, archive. A first word that is
    # no known verb may be one.
    added = own.nouns - other.nouns - other.words
    has_same = own.parameters == other.parameters
    is_named_alike = own.nouns >= other.nouns if own.nouns and other.nouns else has_same and bool(params)
    if not (is_same_action and added.isdisjoint(own.words) and other.ranks <= own.ranks):
        return 0
    if is_named_alike and (own.verbs == other.verbs or not added) and 2 * len(common) >= len(params):
        # Names alone are alike in many honest lists.
        return LEVELS[_RULE] if params else _LEVEL_OF_NAMES
    if not (other.nouns & other.words) <= (own.nouns | own.words):
        return 0
    words = {word for word in other.words - _CLAIMS - other.nouns - boilerplate if len(word) > _SHORT_WORD_CHARS}
    is_told_alike = 100 * len(words & own.words) >= _COMMON_PERCENT_MIN * len(words)
    return LEVELS[_RULE] if has_same and params and len(words) >= _WORDS_MIN and is_told_alike else 0
