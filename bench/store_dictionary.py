"""Make the dictionary with which a store compresses evidence, from made-up records.

    python -m bench.store_dictionary FILE

Names, times and digests differ in each record, so that what the dictionary has is what records have in common. It is
part of the store's format: another one is another SCHEMA_VERSION.
"""

from __future__ import annotations

import argparse
import random
import re
from pathlib import Path

import zstandard

from assay_stream.model.record import Role
from bench.bench_readmodel import evidence
from tests.support.readmodel import history, of_role

BYTES = 3_072
SAMPLES = 1_500
SEGMENT, MATCH = 512, 8
"""``k`` and ``d`` of the trainer: of those tried, the fastest to compress with, and within 3 % of the smallest."""

_VARYING = re.compile(
    rb"(?P<hex>[0-9a-f]{32,64})|(?P<name>(?:server|tool|agent|observer|snapshot|call)[-_]\d+)|2026-\d\d-\d\dT[\d:]{8}"
)
_NAMES = ("github", "search", "files", "mail", "db")


def varied(record: bytes, choose: random.Random) -> bytes:
    """Give a record other names, times and digests."""

    def another(found: re.Match[bytes]) -> bytes:
        if digits := found["hex"]:
            return f"{choose.getrandbits(4 * len(digits)):0{len(digits)}x}".encode()
        if found["name"]:
            return f"{choose.choice(_NAMES)}-{choose.randrange(100_000)}".encode()
        parts = [choose.randrange(*each) for each in ((2026, 2036), (1, 13), (1, 29), (0, 24), (0, 60), (0, 60))]
        return "{}-{:02}-{:02}T{:02}:{:02}:{:02}".format(*parts).encode()

    return _VARYING.sub(another, record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    written = [record.value or b"" for record in of_role(history(SAMPLES + 500, 20, 3), Role.EVIDENCE)[:SAMPLES]]
    choose = random.Random(1)
    records = (*written, *map(evidence, range(SAMPLES)))
    samples: list[bytes | bytearray | memoryview] = [varied(record, choose) for record in records]
    made = zstandard.train_dictionary(BYTES, samples, k=SEGMENT, d=MATCH, level=1)
    given.file.write_bytes(made.as_bytes())


if __name__ == "__main__":
    main()
