"""How good the alerts are: recall on attacks and noise on benign change, for us and beside others.

python -m bench.alert_quality.score [FOLDER ...] [--unseen NAME=FOLDER[,FOLDER]] [--scanner NAME=COMMAND]
    [--write PAGE] [--json]

Without folders only our own corpus is judged; folders hold texts by others, in the format that public.py describes.
Any scanner that meets the protocol of scanner.py is judged beside ours.
What no rule was made with is named by --unseen, and counted apart: its first figures are kept in unseen.ndjson.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assay_stream.canonical.digest import jcs_digest
from bench.alert_quality.corpus import Arrival, Case, load
from bench.alert_quality.judges import HIGH, JUDGES, MEDIUM, Fleet, Judge, Tool
from bench.alert_quality.public import read_public
from bench.alert_quality.public_judges import any_change, assay_stream, assay_stream_first, mcptrust, scanner_judge
from bench.alert_quality.public_score import Figures, measure
from bench.alert_quality.report import first_table, own_tables, public_tables, unseen_table
from bench.tables import filled


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
    """Score every judge on our own corpus and on the folders; print tables, or JSON; write the tables of a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="folders of files in the public format")
    parser.add_argument("--unseen", action="append", default=[], metavar="NAME=FOLDER", help="counted apart")
    parser.add_argument("--scanner", action="append", default=[], metavar="NAME=COMMAND", help="judged beside ours")
    parser.add_argument("--write", type=Path, help="put the tables between the markers of this page")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    cases = load()
    own = {name: score(cases, judge) for name, judge in JUDGES.items()}
    tables = own_tables(cases, own)
    tables["public_first"] = first_table()
    public: dict[str, Figures] = {}
    if options.folders:
        corpus = read_public(options.folders)
        public = {
            "assay-stream": measure(corpus, assay_stream, assay_stream_first),
            "any change": measure(corpus, any_change),
            "mcptrust": measure(corpus, mcptrust),
        }
        for name, _, command in (each.partition("=") for each in options.scanner):
            version, judge = scanner_judge(corpus, command)
            public[f"{name} {version}".strip()] = measure(corpus, judge)
        tables = public_tables(corpus, public) | tables
    if options.unseen:
        named = (each.partition("=") for each in options.unseen)
        unseen = {name: read_public(map(Path, folders.split(","))) for name, _, folders in named}
        judged = {name: measure(corpus, assay_stream, assay_stream_first) for name, corpus in unseen.items()}
        tables["public_unseen"] = unseen_table(judged)
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(filled(page, tables), encoding="utf-8")
    if options.json:
        print(json.dumps({"own": own, "public": {name: asdict(one) for name, one in public.items()}}, indent=2))
    else:
        print("\n".join(f"{name}\n\n{table}" for name, table in tables.items()))


if __name__ == "__main__":
    main()
