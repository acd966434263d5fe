"""Results of benches as lines of JSON, for the plot and for comparing two machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import orjson


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
