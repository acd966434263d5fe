"""How good the alerts are: recall on attacks and noise on benign change, for us and for two baselines.

python -m bench.alert_quality.score [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from assay_stream.canonical.digest import jcs_digest
from bench.alert_quality.corpus import Arrival, Case, load
from bench.alert_quality.judges import HIGH, JUDGES, MEDIUM, Fleet, Judge, Tool

_COUNTS = (("attacks_found", "attacks"), ("benign_at_high", "benign"))


def levels(case: Case, judge: Judge) -> Iterator[int]:
    """Yield the level of each arrival of a case but the first, which is what was known.

    An arrival is compared with what the same observer saw last in full, or the fleet where it is its first.

    Args:
        case: the case.
        judge: who judges.
    """
    first = case.arrivals[0]
    seen: dict[str, Sequence[Tool]] = {first.observer: first.tools}
    fleet_saw = first.tools
    known = _digests(first)
    for arrival in case.arrivals[1:]:
        before = seen.get(arrival.observer, fleet_saw)
        fleet = Fleet(known=frozenset(known), others=case.fleet, is_complete=arrival.is_complete)
        yield judge(before, arrival.tools, fleet)
        known |= _digests(arrival)
        if arrival.is_complete:
            seen[arrival.observer] = fleet_saw = arrival.tools


def _digests(arrival: Arrival) -> set[str]:
    return {str(jcs_digest(tool)) for tool in arrival.tools}


def score(cases: Sequence[Case], judge: Judge) -> dict[str, Any]:
    """Return the figures of one judge: recall, noise, and every case it got wrong.

    Args:
        cases: the corpus.
        judge: who judges.
    """
    judged = {case.id: list(levels(case, judge)) for case in cases}
    attacks = [case for case in cases if case.label == "attack"]
    benign = [case for case in cases if case.label == "benign"]
    missed = [case.id for case in attacks if max(judged[case.id]) < HIGH]
    starts = [level for case in benign for level in judged[case.id]]
    return {
        "attacks": len(attacks),
        "recall": (len(attacks) - len(missed)) / len(attacks),
        "benign_session_starts": len(starts),
        "alerts_per_1000_high": 1000 * sum(level >= HIGH for level in starts) / len(starts),
        "alerts_per_1000_medium": 1000 * sum(level >= MEDIUM for level in starts) / len(starts),
        "by_part": _by_part(cases, judged),
        "missed": missed,
        "benign_at_high": [case.id for case in benign if max(judged[case.id]) >= HIGH],
    }


def _by_part(cases: Sequence[Case], judged: dict[str, list[int]]) -> dict[str, dict[str, int]]:
    """Return by part of the corpus how many cases reach high, and of how many."""
    parts: dict[str, dict[str, int]] = {}
    for case in cases:
        part = parts.setdefault(case.part, {"attacks": 0, "attacks_found": 0, "benign": 0, "benign_at_high": 0})
        is_attack = case.label == "attack"
        part["attacks" if is_attack else "benign"] += 1
        part["attacks_found" if is_attack else "benign_at_high"] += max(judged[case.id]) >= HIGH
    return parts


def main() -> None:
    """Score every judge on the corpus and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    cases = load()
    scores = {name: score(cases, judge) for name, judge in JUDGES.items()}
    print(json.dumps(scores, indent=2) if options.json else table(scores))


def table(scores: dict[str, dict[str, Any]]) -> str:
    """Return the figures as text: one line for each judge, then what the first one got wrong.

    Args:
        scores: figures by name.
    """
    lines = [
        f"{'':14}{'recall':>8}{'benign alerts per 1,000 session starts':>42}",
        f"{'':14}{'high':>8}{'high':>21}{'medium':>21}",
    ]
    for name, figures in scores.items():
        noise = f"{figures['alerts_per_1000_high']:>21.1f}{figures['alerts_per_1000_medium']:>21.1f}"
        lines.append(f"{name:14}{figures['recall']:>8.3f}{noise}")
    name, ours = next(iter(scores.items()))
    lines.append(f"{ours['attacks']} attacks, {ours['benign_session_starts']} benign session starts")
    for part, found in ours["by_part"].items():
        attacks, benign = (f"{found[a]} of {found[b]}" for a, b in _COUNTS)
        lines.append(f"{part}: {attacks} attacks found, {benign} benign cases at high")
    lines += [f"missed by {name}: {case}" for case in ours["missed"]]
    lines += [f"benign, at high or above for {name}: {case}" for case in ours["benign_at_high"]]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
