"""What the scorer is trained on, and how: definitions as bags of passages, and a linear model of them.

A definition is a bag of passages of one to three sentences. A poisoned one has at least one passage that steers, and
nobody marked which; a benign one has none. So the fit alternates: the passage of each poisoned definition that scores
highest stands for it, and the model is fitted to those against all benign passages (multiple-instance learning).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, diags
from sklearn.linear_model import LogisticRegression

from assay_stream.detect.scorer import LENGTH_SYMBOLS_ADDED, PASSAGE_SENTENCES_MAX, features_of
from assay_stream.detect.steering import offered_by
from assay_stream.detect.surfaces import texts_of
from assay_stream.detect.symbols import sentences_of
from assay_stream.detect.tool_names import OtherTools, ToolNames
from assay_stream.text.words import as_read
from assay_stream.work import UNLIMITED, Work
from bench.alert_quality.corpus import load
from bench.alert_quality.public import PublicCorpus

WRITTEN = Path(__file__).resolve().parent / "training"
MEASURED_ONLY = "unseen_2"
"""The part of our own corpus that nothing is made with."""

_PASSAGES_MAX = 30_000
_ROUNDS = 4
_INVERSE_PENALTY = 10.0
_DEFINITIONS_MIN = 3
_FUNCTION_SHARE, _FUNCTION_TEXTS_MIN = 0.1, 3
"""Share and number of the honest texts of a language that have a word which says nothing by itself."""
ENGLISH = ("", "en")
"""Languages of bags that are left out with their group."""
_LANGUAGE_WEIGHT = 15.0
"""What an honest text of another language than English weighs: there are few of each."""
_GROUP_WEIGHT = 60
"""Poisoned definitions of one source that weigh one each; more of them weigh less, so that no author dominates."""
_WRITTEN_WEIGHT = 0.12
"""What one that was written for training weighs beside one that was published, or is a case of our own corpus."""
_POISONED_SHARE = 0.3
"""What all poisoned passages weigh together, as a share of the benign ones."""

Tool = Mapping[str, Any]
Sentences = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bag:
    """One definition, or the new part of one.

    Args:
        group: source or package, which is left out as a whole; of a text written for training its file, of one author.
        is_attack: whether it is poisoned.
        texts: sentences of each text, as symbols.
        is_public: whether others wrote it.
        language: of a text written for training; one that is not English is left out with its language.
    """

    group: str
    is_attack: bool
    texts: tuple[Sentences, ...]
    is_public: bool
    language: str = ""


def bags_of(corpus: PublicCorpus) -> list[Bag]:
    """Return the definitions of public corpora, of our own corpus and of the texts written for training."""
    found = [*_public(corpus), *_own(), *_written()]
    return [bag for bag in found if any(bag.texts)]


def _public(corpus: PublicCorpus) -> Iterator[Bag]:
    for pair in corpus.attacks:
        before = next((tool for tool in pair.before if tool["name"] == pair.tool), None)
        after = next(tool for tool in pair.after if tool["name"] == pair.tool)
        yield Bag(group=pair.source, is_attack=True, texts=new_texts(before, after, pair.after), is_public=True)
    seen = set()
    for listed in corpus.benign_first_lists():
        for tool in listed.tools:
            bag = Bag(group=listed.source, is_attack=False, texts=new_texts(None, tool, listed.tools), is_public=True)
            if (bag.group, bag.texts) not in seen:
                seen.add((bag.group, bag.texts))
                yield bag


def _own() -> Iterator[Bag]:
    for case in load():
        if case.part == MEASURED_ONLY:
            continue
        texts: list[Sentences] = []
        known: dict[str, Tool] = {}
        for number, arrival in enumerate(case.arrivals):
            for tool in arrival.tools if number else ():
                if known.get(tool["name"]) != tool:
                    texts += new_texts(known.get(tool["name"]), tool, arrival.tools)
            known |= {tool["name"]: tool for tool in arrival.tools}
        yield Bag(group="own", is_attack=case.label == "attack", texts=tuple(texts), is_public=False)


def _written() -> Iterator[Bag]:
    for path in sorted(WRITTEN.glob("*.ndjson")):
        for line in path.read_text(encoding="utf-8").splitlines():
            text = json.loads(line)
            parameters = {name: {"description": each} for name, each in text.get("parameters", {}).items()}
            tool = {
                "name": text["name"],
                "description": text["description"],
                "inputSchema": {"type": "object", "properties": parameters},
            }
            listed = [tool, *({"name": name} for name in text["server_tools"])]
            yield Bag(
                group=path.stem,
                is_attack=text["label"] == "attack",
                texts=new_texts(None, tool, listed),
                is_public=False,
                language=text.get("language", "en"),
            )


def new_texts(before: Tool | None, after: Tool, listed: Sequence[Tool]) -> tuple[Sentences, ...]:
    """Return the sentences that a definition has and the older one has not, text by text."""
    work = Work(UNLIMITED)
    names = ToolNames([str(tool["name"]) for tool in listed], work)
    known = {sentence for text in _sentences(before, names, work) for sentence in text} if before else set()
    return tuple(
        tuple(sentence for sentence in text if sentence not in known) for text in _sentences(after, names, work)
    )


def _sentences(tool: Tool, names: ToolNames, work: Work) -> list[Sentences]:
    texts = texts_of(tool, work)
    offered = offered_by(OtherTools(names, tool["name"]), texts)
    return [tuple(each.symbols for each in sentences_of(as_read(text.value), offered)) for text in texts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passages:
    """The passages of many bags as rows of one matrix.

    Args:
        features: column of each feature.
        rows: passages by features.
        bag: number of the bag of each row.
    """

    features: Mapping[str, int]
    rows: csr_matrix
    bag: np.ndarray


def function_words(bags: Sequence[Bag]) -> frozenset[str]:
    """Return the words that many honest texts of a language have, unless English texts have them often, too.

    In the few texts of a language such words would carry whatever share of them is poisoned. English has thousands of
    honest texts, which weigh its own words.
    """
    found: set[str] = set()
    english: set[str] = set()
    for language in sorted({bag.language for bag in bags if bag.language}):
        honest = [bag for bag in bags if bag.language == language and not bag.is_attack]
        counted = Counter(chain.from_iterable(frozenset(chain(*chain(*bag.texts))) for bag in honest))
        often_min = max(_FUNCTION_TEXTS_MIN, _FUNCTION_SHARE * len(honest))
        if language in ENGLISH:
            english = set(counted)
        else:
            found |= {word for word, count in counted.items() if count >= often_min and word.isalpha()}
    return frozenset(found - english)


def passages_of(bags: Sequence[Bag]) -> Passages:
    """Return the passages of bags. Features of few definitions are left out, and those of function words alone."""
    sentences = list(dict.fromkeys(sentence for bag in bags for text in bag.texts for sentence in text))
    number = {sentence: index for index, sentence in enumerate(sentences)}
    found = [features_of(sentence) for sentence in sentences]
    counted: Counter[str] = Counter()
    for bag in bags:
        counted.update(set().union(*(found[number[sentence]] for text in bag.texts for sentence in text)))
    dropped = function_words(bags)
    kept = [each for each in sorted(counted) if counted[each] >= _DEFINITIONS_MIN]
    kept = [each for each in kept if not dropped.issuperset(each.split())]
    columns = {feature: index for index, feature in enumerate(kept)}
    by_sentence = _binary(
        [sorted(columns[each] for each in features if each in columns) for features in found], len(columns)
    )
    passages: list[list[int]] = []
    owners: list[int] = []
    for index, bag in enumerate(bags):
        for text in bag.texts:
            numbers = [number[sentence] for sentence in text]
            for first in range(len(numbers)):
                for length in range(1, min(PASSAGE_SENTENCES_MAX, len(numbers) - first) + 1):
                    passages.append(numbers[first : first + length])
                    owners.append(index)
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.float32)
    of_sentences = _binary(passages, len(sentences))
    by_length = diags(1 / np.sqrt(of_sentences @ lengths + LENGTH_SYMBOLS_ADDED))
    rows = (by_length @ of_sentences @ by_sentence).tocsr().astype(np.float32)
    return Passages(features=columns, rows=rows, bag=np.array(owners))


def _binary(rows: Sequence[Sequence[int]], width: int) -> csr_matrix:
    indexes = np.array([index for row in rows for index in row], dtype=np.int32)
    ends = np.cumsum([0, *(len(row) for row in rows)])
    return csr_matrix((np.ones(len(indexes), dtype=np.float32), indexes, ends), shape=(len(rows), width))


def fit(passages: Passages, bags: Sequence[Bag], used: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the weights and the bias that fit the bags in use.

    Args:
        passages: of all bags.
        bags: all of them.
        used: whether each is in use.
    """
    rows = np.flatnonzero(used[passages.bag])
    matrix, owner = passages.rows[rows], passages.bag[rows]
    attack = np.array([bag.is_attack for bag in bags])[owner]
    size = Counter(bag.group for bag, is_used in zip(bags, used, strict=True) if bag.is_attack and is_used)
    weight = np.array(
        [
            min(1.0, (_GROUP_WEIGHT / max(1, size[bag.group])) ** 0.5) * (_WRITTEN_WEIGHT if bag.language else 1.0)
            if bag.is_attack
            else _LANGUAGE_WEIGHT
            if bag.language not in ENGLISH
            else 1.0
            for bag in bags
        ]
    )
    benign = np.flatnonzero(~attack)
    score = np.asarray(matrix.sum(axis=1)).ravel()
    draw = np.random.default_rng(0)
    for turn in range(_ROUNDS):
        poisoned = _best(score, owner)
        poisoned = poisoned[attack[poisoned]]
        hard = benign[np.argsort(-score[benign], kind="stable")][: _PASSAGES_MAX // 2 if turn else 0]
        rest = np.setdiff1d(benign, hard)
        some = draw.choice(rest, min(len(rest), _PASSAGES_MAX - len(hard)), replace=False)
        chosen = np.concatenate([poisoned, hard, some])
        sample = weight[owner[chosen]]
        sample[attack[chosen]] *= _POISONED_SHARE * sample[~attack[chosen]].sum() / sample[attack[chosen]].sum()
        model = LogisticRegression(C=_INVERSE_PENALTY, max_iter=300, solver="liblinear", random_state=0)
        model.fit(matrix[chosen], attack[chosen], sample_weight=sample)
        score = matrix @ model.coef_[0] + model.intercept_[0]
    return model.coef_[0], float(model.intercept_[0])


def _best(score: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Return the row of each owner that scores highest."""
    order = np.lexsort((-score, owner))
    return order[np.append(True, np.diff(owner[order]) > 0)]
