"""Train the scorer of `assay_stream.detect` and write its weights, or report what it finds of sources left out.

python -m bench.alert_quality.train FOLDER ... [--write]

FOLDER holds texts by others in the public format (README.md). Without --write nothing is written: every source of
attacks is left out in turn, together with a share of the benign packages and of the languages, and scored by a model
that did not see them. The levels follow from those scores: 0.5 % of the benign packages may have a tool at high,
and 5 % one at medium.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np

import assay_stream.detect
from bench.alert_quality.public import read_public
from bench.alert_quality.training import Bag, bags_of, best_scores, fit, passages_of

_SCALE = 100
_WEIGHT_MIN = 15
"""Smaller weights are dropped: together they move no score over a level."""
_HIGH_SHARE, _MEDIUM_SHARE = 0.005, 0.05
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
        scores[left_out] = best_scores(passages.rows @ weights + bias, passages.bag, len(bags))[left_out]
    high, medium = (_level(bags, scores, share) for share in (_HIGH_SHARE, _MEDIUM_SHARE))
    _report(bags, scores, high, medium)
    if options.write:
        weights, bias = fit(passages, bags, np.ones(len(bags), dtype=bool))
        _write(passages.features, weights, bias, high, medium, bags)


def _folds(bags: Sequence[Bag]) -> list[np.ndarray]:
    """Return the bags left out at a time: of n sources of attacks one, and every n-th benign package and language."""
    sources = sorted({bag.group for bag in bags if bag.is_attack and not bag.language})
    packages = sorted({bag.group for bag in bags if not bag.language} - set(sources))
    languages = sorted({bag.language for bag in bags if bag.language})
    count = len(sources)
    folds = [{sources[n], *packages[n::count], *languages[n::count]} for n in range(count)]
    return [np.array([(bag.language or bag.group) in fold for bag in bags]) for fold in folds]


def _level(bags: Sequence[Bag], scores: np.ndarray, share: float) -> float:
    """Return the score that this share of the benign packages reaches with their worst tool."""
    worst: dict[str, float] = defaultdict(lambda: -np.inf)
    for bag, score in zip(bags, scores, strict=True):
        if bag.is_public and not bag.is_attack:
            worst[bag.group] = max(worst[bag.group], score)
    ordered = sorted(worst.values(), reverse=True)
    return ordered[int(share * len(ordered))] + 1 / _SCALE


def _report(bags: Sequence[Bag], scores: np.ndarray, high: float, medium: float) -> None:
    by_group: dict[tuple[bool, str], list[float]] = defaultdict(list)
    for bag, score in zip(bags, scores, strict=True):
        group = f"language {bag.language}" if bag.language else bag.group
        group = group if bag.is_attack or not bag.is_public else "benign packages"
        by_group[(bag.is_attack, group)].append(score)
    print(f"levels: high from {high:.2f}, medium from {medium:.2f}")
    for (is_attack, group), found in sorted(by_group.items()):
        at_high, at_medium = (sum(score >= level for score in found) for level in (high, medium))
        kind = "attacks" if is_attack else "benign"
        print(f"{kind:8} {group:24} {len(found):6} definitions, {at_high} at high, {at_medium} at medium or above")


def _write(
    features: Mapping[str, int], weights: np.ndarray, bias: float, high: float, medium: float, bags: Sequence[Bag]
) -> None:
    rounded = {feature: round(float(weights[column]) * _SCALE) for feature, column in features.items()}
    lines = [f"{feature}\t{weight}\n" for feature, weight in sorted(rounded.items()) if abs(weight) >= _WEIGHT_MIN]
    content = "".join(lines).encode()
    attacks = sum(bag.is_attack for bag in bags)
    (_DATA / "weights.tsv").write_bytes(content)
    (_DATA / "model.toml").write_text(
        "# The scorer's model: see scorer.py. Written by bench/alert_quality/train.py.\n"
        f'digest = "sha256:{sha256(content).hexdigest()}"\n'
        f"bias = {round(bias * _SCALE)}\n"
        f"medium = {round(medium * _SCALE)}\n"
        f"sign = {round((medium + high) / 2 * _SCALE)}\n"
        f"high = {round(high * _SCALE)}\n"
        f"alone = {round(high * _SCALE)}\n"
        f'trained_on = "{attacks} poisoned and {len(bags) - attacks} benign definitions"\n',
        encoding="utf-8",
    )
    print(f"wrote {len(lines)} weights, {len(content)} bytes")


if __name__ == "__main__":
    main()
