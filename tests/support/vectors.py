"""Published vectors of digests, signatures and formats (``tests/data/vectors``)."""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[1] / "data" / "vectors"


def vectors(name: str) -> Any:
    return json.loads((_FOLDER / f"{name}.json").read_bytes())


def id_of(case: dict[str, Any]) -> str:
    return str(case["id"])
