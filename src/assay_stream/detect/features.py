"""What the scorer sees in a sentence: its words, its pairs of words, and which concepts stand beside each other.

1. A word, and two words in a row: ``call <other>``.
2. Two concepts in one sentence, in no order: ``@before@call``. Words of one meaning are one concept
   (``data/concepts.toml``), and so is what stands for a name or an address.
3. Two concepts with nothing but words of no concept between them, in their order: ``>call>other``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Final

import msgspec

from assay_stream.detect.catalog import DATA, reading

with reading("concepts.toml"):
    _CONCEPTS: Final = msgspec.toml.decode((DATA / "concepts.toml").read_bytes(), type=dict[str, str])
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
"""Every pair of concepts, in alphabetical order: there are some hundreds."""


def features_of(symbols: Sequence[str]) -> set[str]:
    """Return the features of a sentence.

    Args:
        symbols: of ``Sentence``.
    """
    features = set(symbols)
    features.update(map(" ".join, pairwise(symbols)))
    stated = [concepts for symbol in symbols if (concepts := _CONCEPTS_OF.get(symbol)) is not None]
    found = sorted({concept for each in stated for concept in each})
    features.update(f"@{concept}" for concept in found)
    features.update(map(_PAIRS.__getitem__, combinations(found, 2)))
    for one, other in pairwise(stated):
        features.update(_in_order(one, other))
    return features


@lru_cache(4_096)
def _in_order(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f">{first}>{second}" for first in one for second in other)
