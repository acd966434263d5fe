"""A linear score of how much a text reads like one that steers a model, and the features it sees.

The weights are integers and are data (``data/weights.tsv``), so every platform computes the same score. They were
trained by ``bench/alert_quality/train.py``; ``data/model.toml`` states their digest, the levels and what they were
trained on. A sentence scores the sum of the weights of its features (``features``), or that of its best part less
a margin; a passage of up to three sentences the sum of theirs, divided by the root of its length. So harmless text
around a passage takes nothing from its score, harmless words inside a sentence little, and a long honest paragraph, in
which features that say nothing add up as noise does, gains nothing by its length.

1. A word, two words in a row (``call <other>``), and the stems of both.
2. Two concepts in one sentence, in no order: ``@before@call``. Words of one meaning are one concept
   (``data/concepts.toml``), and so is what stands for a name or an address.
3. Two concepts with nothing but words of no concept between them, in their order: ``>call>other``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.resources.abc import Traversable
from itertools import chain, combinations, pairwise
from math import isqrt
from typing import Annotated, Final, NamedTuple

import msgspec

from assay_stream.detect.catalog import CATALOG, DATA, reading
from assay_stream.detect.symbols import Sentence
from assay_stream.errors import ConfigurationError
from assay_stream.work import Work

with reading("concepts.toml"):
    _CONCEPTS: Final = msgspec.toml.decode((DATA / "concepts.toml").read_bytes(), type=dict[str, str])
_CACHED_CONCEPTS_MAX = 4_096
_ENDINGS: Final = {
    "s": ("ations", "ings", "ies", "es", "s"), "n": ("ation",), "g": ("ing",), "d": ("ed",), "y": ("edly", "ly"),
}  # fmt: skip
"""Endings of words by their last letter, the longest first."""
_STEM_CHARS_MIN, _INFLECTED_CHARS_MAX = 4, 24
"""A longer word is no inflected one, and would fill the cache of stems with whatever a server makes up."""
_CACHED_WORDS_MAX = 16_384
_OF_SYMBOLS: Final = {
    **{f"<{name}>": name for name in ("other", "own", "self", "param", "url", "mail", "path", "secret", "number")},
    "<named>": "other",
    "<startup>": "path",
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
    """The weights of features, of ``features_of``, summed over sentences and parts of them."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights

    def sum_of(self, symbols: Sequence[str]) -> int:
        """Return the sum of the weights of the features of a sentence, given as ``Sentence.symbols``."""
        return sum(map(self._weights.__getitem__, self._weights.keys() & features_of(symbols)))

    def _weighed(self, symbols: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the weight of each word of a sentence, and of each two in a row, without those of concepts."""
        stems = list(map(stem_of, symbols))
        pairs = self._of_both(map(" ".join, pairwise(symbols)), map(" ".join, pairwise(stems)))
        return self._of_both(symbols, stems), pairs

    def _of_both(self, features: Iterable[str], of_stems: Iterable[str]) -> list[int]:
        """Return the weight of each feature and of the same of stems together; one that both have counts once."""
        weight = self._weights.get
        return [
            weight(one, 0) + (0 if one == other else weight(other, 0))
            for one, other in zip(features, of_stems, strict=True)
        ]

    def score(self, symbols: Sequence[str]) -> tuple[int, int]:
        """Return the sum and the length of a sentence, or of its best part: harmless words take little away from it."""
        whole = self.sum_of(symbols), len(symbols)
        if len(symbols) < _PADDED_SYMBOLS_MIN:
            return whole
        first, end = self._best_part(symbols)
        if end - first == len(symbols):
            return whole
        part = self.sum_of(symbols[first:end]) - _PART_MARGIN, end - first
        return max(whole, part, key=lambda each: _over_root(*each))

    def _best_part(self, symbols: Sequence[str]) -> tuple[int, int]:
        """Return the start and end of the consecutive symbols whose words and pairs of words weigh most together."""
        words, pairs = self._weighed(symbols)
        best = total = first = 0
        part = (0, len(symbols))
        for at, weight in enumerate(words):
            if total <= 0:
                first, total = at, weight
            else:
                total += weight + pairs[at - 1]
            if total > best:
                best, part = total, (first, at + 1)
        return part

    def heaviest(self, symbols: Sequence[str]) -> tuple[int, int]:
        """Return the place of the heaviest pair of words: it explains a score best."""
        words, pairs = self._weighed(symbols)
        weights = [pair + one + other for pair, one, other in zip(pairs, words, words[1:], strict=False)]
        at = max(range(len(weights)), key=weights.__getitem__, default=0)
        return at, min(at + 2, len(symbols))


def features_of(symbols: Sequence[str]) -> set[str]:
    """Return the features of a sentence, given as ``Sentence.symbols``."""
    stems = list(map(stem_of, symbols))
    features = {*symbols, *stems}
    features.update(map(" ".join, chain(pairwise(symbols), pairwise(stems))))
    stated = [concepts for symbol in symbols if (concepts := _CONCEPTS_OF.get(symbol)) is not None]
    features.update(_concept_features(frozenset(chain.from_iterable(stated))))
    for one, other in pairwise(stated):
        features.update(_in_order(one, other))
    return features


def stem_of(symbol: str) -> str:
    """Return a word without its inflection, as far as an ending shows it: ``forward`` for ``forwarded``."""
    return _stem_of(symbol) if len(symbol) <= _INFLECTED_CHARS_MAX else symbol


@lru_cache(_CACHED_WORDS_MAX)
def _stem_of(word: str) -> str:
    endings = _ENDINGS.get(word[-1:])
    if endings is not None and word.isalpha():
        for ending in endings:
            if word.endswith(ending) and len(word) - len(ending) >= _STEM_CHARS_MIN:
                return word.removesuffix(ending)
    return word


@lru_cache(_CACHED_CONCEPTS_MAX)
def _concept_features(concepts: frozenset[str]) -> tuple[str, ...]:
    found = sorted(concepts)
    return (*(f"@{concept}" for concept in found), *map(_PAIRS.__getitem__, combinations(found, 2)))


@lru_cache(_CACHED_CONCEPTS_MAX)
def _in_order(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f">{first}>{second}" for first in one for second in other)


PASSAGE_SENTENCES_MAX: Final = 3
RULE: Final = "steering_scored"
"""Id of the rule that a passage is reported under."""

LENGTH_SYMBOLS_ADDED: Final = 16
"""Added to the length of a passage, so that a few words do not weigh as much as a sentence."""

_ROOT_SCALE = 16
_UNITS_PER_SYMBOL = 4
_PADDED_SYMBOLS_MIN = 12
"""A shorter sentence has no room for a directive and for text that would hide it."""
_DIRECTIVE_SYMBOLS_MIN = 6
"""A shorter passage, such as a list of addresses, tells a model to do nothing: it is medium at most."""
_DIRECTING = frozenset(CATALOG.words.directing.split())
_ENGLISH = frozenset(CATALOG.words.english.split())
_ENGLISH_MIN = 2
"""A passage with so many common English words and none that directs is medium at most, whatever its score."""
_PART_MARGIN = 400
"""Deduction from the score of a part, compared with the same words alone: levels were set on whole sentences, and of
many parts one is high by chance."""
_CACHED_SENTENCES_MAX = 4_096
_LEVEL_HIGH, _LEVEL_MEDIUM = 4, 3


class ScorerModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of ``data/model.toml``.

    Args:
        digest: of ``weights.tsv``: ``sha256:`` and hexadecimal digits.
        bias: initial score of every passage.
        medium: the score from which a passage counts as medium.
        sign: the score from which it supports what a rule finds near it.
        high: the score from which it counts as high beside a second sign.
        alone: the score from which it needs none.
        trained_on: description of the training data.
    """

    digest: Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")]
    bias: int
    medium: int
    sign: int
    high: int
    alone: int
    trained_on: str


class ScoredPassage(NamedTuple):
    """Consecutive sentences whose score is medium or above.

    Args:
        level: OCSF severity id.
        heaviest: indexes of the heaviest symbols of the heaviest sentence: the first, and after the last.
        at: index of the heaviest sentence within the passage.
    """

    level: int
    score: int
    sentences: Sequence[Sentence]
    at: int
    heaviest: tuple[int, int]


def load(data: Traversable = DATA) -> tuple[ScorerModel, dict[str, int]]:
    """Read the model, and its weights by feature.

    Raises:
        ConfigurationError: ``detection_data_altered`` if a file cannot be read, or if the weights do not have the
            digest stated in the model.
    """
    with reading("model.toml"):
        model = msgspec.toml.decode((data / "model.toml").read_bytes(), type=ScorerModel)
    with reading("weights.tsv"):
        weights = (data / "weights.tsv").read_bytes()
    found = f"sha256:{sha256(weights).hexdigest()}"
    if found != model.digest:
        raise ConfigurationError(
            "detection_data_altered",
            f"detect/data/weights.tsv has the digest {found}, and model.toml states {model.digest}: reinstall"
            " assay-stream, or state the digest of weights that you trained yourself",
        )
    with reading("weights.tsv"):
        pairs = (line.split("\t") for line in weights.decode().splitlines())
        return model, {feature: int(weight) for feature, weight in pairs}


MODEL, _by_feature = load()
_WEIGHTS: Final = Weights(_by_feature)
_score = lru_cache(_CACHED_SENTENCES_MAX)(_WEIGHTS.score)


def _over_root(total: int, symbols: int) -> int:
    return total * _ROOT_SCALE // isqrt(_ROOT_SCALE * _ROOT_SCALE * (symbols + LENGTH_SYMBOLS_ADDED))


def passages_in(sentences: Sequence[Sentence], work: Work) -> Iterator[ScoredPassage]:
    """Yield the passages of one text that score medium or above, none of which share a sentence."""
    work.spend(_UNITS_PER_SYMBOL * sum(len(sentence.symbols) for sentence in sentences))
    scores = [_score(sentence.symbols) for sentence in sentences]
    first = 0
    while first < len(scores):
        score, length = best_passage(scores, first)
        if MODEL.bias + score < MODEL.medium:
            first += 1
            continue
        # A later beginning may do better: harmless sentences before a poison take nothing from its score.
        for later in range(first + 1, min(first + PASSAGE_SENTENCES_MAX, len(scores))):
            other = best_passage(scores, later)
            if other[0] > score:
                (score, length), first = other, later
        score += MODEL.bias
        at = max(range(length), key=lambda index: scores[first + index])
        passage = sentences[first : first + length]
        level = _LEVEL_HIGH if score >= MODEL.high and _is_directive(passage) else _LEVEL_MEDIUM
        yield ScoredPassage(level, score, passage, at, _WEIGHTS.heaviest(passage[at].symbols))
        first += length


def _is_directive(passage: Sequence[Sentence]) -> bool:
    words = set(chain.from_iterable(sentence.symbols for sentence in passage))
    is_long = sum(len(sentence.symbols) for sentence in passage) >= _DIRECTIVE_SYMBOLS_MIN
    return is_long and not (_DIRECTING.isdisjoint(words) and len(words & _ENGLISH) >= _ENGLISH_MIN)


def best_passage(scores: Sequence[tuple[int, int]], first: int) -> tuple[int, int]:
    """Return the best score of a passage that begins at a sentence, without the bias, and its number of sentences.

    Args:
        scores: sum and length of each sentence, of ``Weights.score``.
        first: index of the sentence.
    """
    best: tuple[int, int] | None = None
    total = symbols = 0
    for length, (score, added) in enumerate(scores[first : first + PASSAGE_SENTENCES_MAX], 1):
        total, symbols = total + score, symbols + added
        reached = _over_root(total, symbols)
        if best is None or reached > best[0]:
            best = reached, length
    if best is None:
        raise ValueError("no sentence begins there")
    return best
