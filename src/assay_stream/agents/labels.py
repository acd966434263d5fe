"""What tools can do, as the operator says it: capabilities by patterns of ``server/tool``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from assay_stream.errors import InputError
from assay_stream.model.glob import compile_glob

CAPABILITIES = ("sends", "untrusted", "private")


class Labels:
    """Capabilities of tools.

    Args:
        rows: capabilities by pattern; the first pattern that matches counts.
    """

    def __init__(self, rows: Mapping[str, tuple[str, ...]]) -> None:
        self.rows = dict(rows)
        self._patterns = [(compile_glob(pattern), labels) for pattern, labels in rows.items()]
        self.of = lru_cache(maxsize=8_192)(self._of)
        """Return the capabilities of a tool, by its server's id and its name; ``None`` where no pattern matches."""

    def _of(self, server_id: str, tool_name: str) -> tuple[str, ...] | None:
        name = f"{server_id}/{tool_name}"
        return next((labels for pattern, labels in self._patterns if pattern.fullmatch(name)), None)


NO_LABELS = Labels({})


def read_labels(content: object) -> Labels:
    """Return the labels that a file holds: an object of lists, by pattern.

    Raises:
        InputError: ``bad_labels`` with the path of the bad field, or ``bad_pattern``.
    """
    if not isinstance(content, dict) or not content:
        raise InputError("bad_labels", 'write one line per pattern: "mail/*" = ["private"]', path="$")
    rows = {}
    for pattern, labels in content.items():
        path = f'$["{pattern}"]'
        if "/" not in str(pattern):
            raise InputError("bad_labels", "a pattern is SERVER/TOOL; * stands for any text", path=path)
        if not isinstance(labels, list):
            raise InputError("bad_labels", "the capabilities of a tool are a list; [] means harmless", path=path)
        if strange := [label for label in labels if label not in CAPABILITIES]:
            known = ", ".join(CAPABILITIES)
            raise InputError("bad_labels", f"{str(strange[0])[:64]!r} is no capability; there are {known}", path=path)
        rows[str(pattern)] = tuple(labels)
    return Labels(rows)
