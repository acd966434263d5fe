"""The codes of changes, as data in ``codes.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from assay_stream.model.fields import ChangeDirection


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """Meaning of a code.

    Args:
        title: one line for a person.
        direction: direction of such a change.
        opposite: the code of the opposite change; its own where that is of the same kind.
        level: name of its level under the profile ``soc``.
    """

    title: str
    direction: ChangeDirection
    opposite: str
    level: str


def _read() -> dict[str, CodeInfo]:
    table = tomllib.loads(files("assay_stream.drift").joinpath("codes.toml").read_text(encoding="utf-8"))
    return {
        code: CodeInfo(entry["title"], ChangeDirection(entry["direction"]), entry["opposite"], entry["level"])
        for code, entry in table.items()
    }


CODES: Mapping[str, CodeInfo] = _read()
