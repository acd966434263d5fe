"""Train the scorer of `assay_stream.detect` and write its weights, or report what it finds of sources left out.

python -m bench.alert_quality.train FOLDER ... [--write]

FOLDER holds texts by others in the public format (README.md). Without --write nothing is written: every source of
attacks is left out once, together with other sources and a share of the benign packages and of the languages, and
scored by a model that did not see them. The levels follow from those scores: `_SHARES` says how many of the benign
packages may have a tool at each.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np

import assay_stream.detect
from assay_stream.detect.scorer import Weights, best_passage
from bench.alert_quality.public import read_public
from bench.alert_quality.training import ENGLISH, Bag, bags_of, fit, passages_of

_FOLDS = 8
_SCALE = 100
_WEIGHT_MIN = 15
"""Smaller weights are dropped: together they move no score over a level."""
_SHARES = {"medium": 0.04, "sign": 0.03, "high": 0.01, "alone": 0.0015}
"""Share of the benign packages that may reach each level of the model."""
_DATA = Path(assay_stream.detect.__file__).parent / "data"


def main() -> None:
    """Report figures of sources left out; with --write train on everything and write the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="write weights.tsv and model.toml of the package")
    options = parser.parse_args()
    bags = bags_of(read_public(options.folder))
    passages = passages_of(bags)
    scores = np.full(len(bags), np.nan)
    for left_out in _folds(bags):
        weights, bias = fit(passages, bags, ~left_out)
        weigh = lru_cache(None)(Weights(_rounded(passages.features, weights)).score)
        for number in np.flatnonzero(left_out):
            scores[number] = round(bias * _SCALE) + max(
                best_passage([*map(weigh, text)], first)[0] for text in bags[number].texts for first in range(len(text))
            )
    levels = {name: _level(bags, scores, share) for name, share in _SHARES.items()}
    _report(bags, scores, levels)
    if options.write:
        weights, bias = fit(passages, bags, np.ones(len(bags), dtype=bool))
        _write(passages.features, weights, bias, levels, bags)


def _folds(bags: Sequence[Bag]) -> list[np.ndarray]:
    """Return the bags left out at a time: every n-th source of attacks, benign package and language."""
    attacks = Counter(_left_out_with(bag) for bag in bags if bag.is_attack and bag.language in ENGLISH)
    sources = sorted(attacks, key=lambda source: (-attacks[source], source))
    others = sorted({_left_out_with(bag) for bag in bags} - set(sources))
    folds = [{*sources[n::_FOLDS], *others[n::_FOLDS]} for n in range(_FOLDS)]
    return [np.array([_left_out_with(bag) in fold for bag in bags]) for fold in folds]


def _left_out_with(bag: Bag) -> str:
    return bag.group if bag.language in ENGLISH else f"language {bag.language}"


def _level(bags: Sequence[Bag], scores: np.ndarray, share: float) -> float:
    """Return the score that at most this share of the benign packages reaches with their worst tool."""
    worst: dict[str, float] = defaultdict(lambda: -np.inf)
    for bag, score in zip(bags, scores, strict=True):
        if bag.is_public and not bag.is_attack:
            worst[bag.group] = max(worst[bag.group], score)
    ordered = sorted(worst.values(), reverse=True)
    return ordered[int(share * len(ordered))] + 1


def _report(bags: Sequence[Bag], scores: np.ndarray, levels: Mapping[str, float]) -> None:
    by_group: dict[tuple[bool, str], list[float]] = defaultdict(list)
    for bag, score in zip(bags, scores, strict=True):
        group = _left_out_with(bag) if bag.is_attack or not bag.is_public else "benign packages"
        by_group[(bag.is_attack, group)].append(score)
    print("levels:", ", ".join(f"{name} from {level:.0f}" for name, level in levels.items()))
    for (is_attack, group), found in sorted(by_group.items()):
        reached = ", ".join(f"{sum(score >= level for score in found)} {name}" for name, level in levels.items())
        print(f"{'attacks' if is_attack else 'benign':8} {group:24} {len(found):6} definitions, {reached} or above")


def _rounded(features: Mapping[str, int], weights: np.ndarray) -> dict[str, int]:
    rounded = {feature: round(float(weights[column]) * _SCALE) for feature, column in features.items()}
    return {feature: weight for feature, weight in rounded.items() if abs(weight) >= _WEIGHT_MIN}


def _write(
    features: Mapping[str, int], weights: np.ndarray, bias: float, levels: Mapping[str, float], bags: Sequence[Bag]
) -> None:
    lines = [f"{feature}\t{weight}\n" for feature, weight in sorted(_rounded(features, weights).items())]
    content = "".join(lines).encode()
    attacks = sum(bag.is_attack for bag in bags)
    (_DATA / "weights.tsv").write_bytes(content)
    (_DATA / "model.toml").write_text(
        "# The scorer's model: see scorer.py. Written by bench/alert_quality/train.py.\n"
        f'digest = "sha256:{sha256(content).hexdigest()}"\n'
        f"bias = {round(bias * _SCALE)}\n"
        + "".join(f"{name} = {level:.0f}\n" for name, level in levels.items())
        + f'trained_on = "{attacks} poisoned and {len(bags) - attacks} benign definitions"\n',
        encoding="utf-8",
    )
    print(f"wrote {len(lines)} weights, {len(content)} bytes")


if __name__ == "__main__":
    main()
