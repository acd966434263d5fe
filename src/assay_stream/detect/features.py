"""What the scorer sees in a sentence: its words, its pairs of words, and which concepts stand beside each other.

1. A word, and two words in a row: ``call <other>``.
2. Two concepts in one sentence, in no order: ``@before@call``. Words of one meaning are one concept
   (``data/concepts.toml``), and so is what stands for a name or an address.
3. Two concepts with nothing but words of no concept between them, in their order: ``>call>other``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, combinations, pairwise
from typing import Final

import msgspec

from assay_stream.detect.catalog import DATA, reading

with reading("concepts.toml"):
    _CONCEPTS: Final = msgspec.toml.decode((DATA / "concepts.toml").read_bytes(), type=dict[str, str])
_CACHED_CONCEPTS_MAX = 4_096
_OF_SYMBOLS: Final = {
    **{f"<{name}>": name for name in ("other", "own", "self", "param", "url", "mail", "path", "secret", "number")},
    "<named>": "other",
    "<quoted>": "quoted",
    "<capitals>": "capitals",
    "[": "mark",
}


def _concepts_by_word() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for concept, words in sorted(_CONCEPTS.items()):
        for word in words.split():
            found.setdefault(word, []).append(concept)
    for symbol, concept in _OF_SYMBOLS.items():
        found[symbol] = [concept]
    return {word: tuple(concepts) for word, concepts in found.items()}


_CONCEPTS_OF: Final = _concepts_by_word()
_ALL: Final = sorted({concept for concepts in _CONCEPTS_OF.values() for concept in concepts})
_PAIRS: Final = {(one, other): f"@{one}@{other}" for one, other in combinations(_ALL, 2)}
"""Every pair of concepts, in alphabetical order: some hundreds."""


class Weights:
    """The weights of features, summed for a sentence without materializing its features.

    Args:
        weights: by feature, in the notation of ``features_of``.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        self.words: Final = {feature: weight for feature, weight in weights.items() if " " not in feature}
        """Weights of words, and of features of concepts."""
        self.pairs: Final = {
            (one, other): weight
            for feature, weight in weights.items()
            for one, blank, other in [feature.partition(" ")]
            if blank
        }
        """Weights of two words in a row."""
        self._of_concepts = lru_cache(_CACHED_CONCEPTS_MAX)(self._sum_of_concepts)
        self._in_order = lru_cache(_CACHED_CONCEPTS_MAX)(self._weighed_in_order)

    def sum_of(self, symbols: Sequence[str]) -> int:
        """Return the sum of the weights of the features of a sentence, given as ``Sentence.symbols``."""
        total = sum(map(self.words.__getitem__, self.words.keys() & symbols))
        total += sum(map(self.pairs.__getitem__, self.pairs.keys() & pairwise(symbols)))
        stated = list(filter(None, map(_CONCEPTS_OF.get, symbols)))
        if stated:
            total += self._of_concepts(frozenset(chain.from_iterable(stated)))
            total += sum(dict(chain.from_iterable(self._in_order(*pair) for pair in set(pairwise(stated)))).values())
        return total

    def _sum_of_concepts(self, concepts: frozenset[str]) -> int:
        return sum(self.words.get(feature, 0) for feature in _concept_features(concepts))

    def _weighed_in_order(self, one: tuple[str, ...], other: tuple[str, ...]) -> list[tuple[str, int]]:
        return [(each, self.words[each]) for each in _in_order(one, other) if each in self.words]


def features_of(symbols: Sequence[str]) -> set[str]:
    """Return the features of a sentence, given as ``Sentence.symbols``."""
    features = set(symbols)
    features.update(map(" ".join, pairwise(symbols)))
    stated = [concepts for symbol in symbols if (concepts := _CONCEPTS_OF.get(symbol)) is not None]
    features.update(_concept_features(frozenset(chain.from_iterable(stated))))
    for one, other in pairwise(stated):
        features.update(_in_order(one, other))
    return features


def _concept_features(concepts: frozenset[str]) -> Iterator[str]:
    found = sorted(concepts)
    yield from (f"@{concept}" for concept in found)
    yield from map(_PAIRS.__getitem__, combinations(found, 2))


def _in_order(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f">{first}>{second}" for first in one for second in other)
