"""Results of benches as lines of JSON, for tables, for the plot and for comparing two machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

Row = dict[str, Any]


def write_line(file: Path | None, found: Mapping[str, object]) -> None:
    """Append one result to a file.

    Args:
        file: the file, or ``None`` where nobody asked for one.
        found: what was measured.
    """
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as lines:
            lines.write(orjson.dumps(found) + b"\n")


def read_lines(folder: Path) -> list[Row]:
    """Return every line of every result file of a folder.

    Args:
        folder: where the files are.
    """
    return [orjson.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_bytes().splitlines()]


def rows_of(rows: Iterable[Row], bench: str, **wanted: object) -> list[Row]:
    """Return the results of one bench that have these values.

    Args:
        rows: results.
        bench: which bench.
        wanted: names and values.
    """
    return [
        row for row in rows if row["bench"] == bench and all(row.get(name) == value for name, value in wanted.items())
    ]
