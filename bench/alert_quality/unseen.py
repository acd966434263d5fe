"""Material that no rule was made with: what it gave when it was first measured, and what it gives now.

The first figures of a folder are kept in ``unseen.ndjson``, with the digest of the rules that they were measured with.
Rules that are made with the folder afterwards change the second column of the table, never the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from assay_stream.detect import RULES_DIGEST
from bench.alert_quality.public_score import Figures, Share

FIRST = Path(__file__).with_name("unseen.ndjson")
ROWS: Mapping[str, str] = {
    "attacks": "attacks at high",
    "attacks_medium": "attacks at medium or above",
    "servers": "servers with any first list at high",
    "servers_medium": "servers with any first list at medium or above",
    "first_benign": "first lists with anything at high",
    "first_benign_tools": "tools of first lists at high",
    "releases": "releases with anything at high",
    "releases_medium": "releases with anything at medium or above",
    "changed_tools": "changed tools of releases at high",
}


class FirstFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a folder gave when it was first measured.

    Args:
        name: of the material.
        rules: digest of the rules that it was measured with.
        shares: by the name of a figure how many were found, and of how many.
        by_source: attacks at high, by source.
    """

    name: str
    rules: str
    shares: dict[str, tuple[int, int]]
    by_source: dict[str, tuple[int, int]] = {}

    @property
    def mean_of_sources(self) -> float:
        return sum(found / of for found, of in self.by_source.values()) / max(len(self.by_source), 1)


def first_figures(name: str, now: Figures, path: Path = FIRST) -> FirstFigures:
    """Return the first figures of a material. Those of a new one are today's, and are written down.

    Args:
        name: of the material.
        now: what it gives now.
        path: the file of first figures.
    """
    known = all_first(path)
    if name in known:
        return known[name]
    shares = {row: getattr(now, row) for row in ROWS}
    first = FirstFigures(
        name=name,
        rules=RULES_DIGEST,
        shares={row: (share.found, share.of) for row, share in shares.items() if share.of},
        by_source={source: (share.found, share.of) for source, share in now.by_source.items()},
    )
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in (*known.values(), first)))
    return first


def all_first(path: Path = FIRST) -> dict[str, FirstFigures]:
    """Return the first figures of every material that was ever measured, by name."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return {first.name: first for first in (msgspec.json.decode(line, type=FirstFigures) for line in lines)}


def rows(materials: Mapping[str, Figures], path: Path = FIRST) -> Iterator[tuple[str, str, Share, Share]]:
    """Yield each figure of each material: the material, what is counted, first, and now.

    Args:
        materials: what each gives now, by name.
        path: the file of first figures.
    """
    for name, now in materials.items():
        first = first_figures(name, now, path)
        for row, title in ROWS.items():
            if row in first.shares:
                found, of = first.shares[row]
                yield name, title, Share(found=found, of=of), getattr(now, row)
