"""How many alerts benign releases open: ``python -m bench.alert_quality.releases FOLDER ...``."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from assay_stream.model.alert import Activity
from bench.alert_quality.first_sight import alerts_of_lists
from bench.alert_quality.public import Pair, read_public

_LARGEST = 10


def opened(pairs: Iterable[Pair]) -> list[tuple[int, str, Counter[str]]]:
    """Return how many alerts each release opens, its id and the severities, the most alerts first."""
    counted = []
    for pair in pairs:
        *_, alerts = alerts_of_lists([pair.before, pair.after])
        levels = Counter(str(each["severity"]) for each in alerts if each["activity_id"] == Activity.CREATE)
        counted.append((levels.total(), pair.id, levels))
    return sorted(counted, key=lambda row: (-row[0], row[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    rows = opened(pair for pair in read_public(parser.parse_args().folders).releases if pair.before != pair.after)
    print(f"{len(rows)} releases open {sum(count for count, *_ in rows)} alerts")
    for count, name, levels in rows[:_LARGEST]:
        print(f"{count:4} {name}: {', '.join(f'{number} {level}' for level, number in sorted(levels.items()))}")


if __name__ == "__main__":
    main()
