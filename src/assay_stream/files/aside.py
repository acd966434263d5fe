"""Files written aside: all of them take their places once everything is written, or none does."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

PREFIX = ".part."
"""Begins the name of a file that is not complete. The ending stays: it says how a file is compressed."""


class Aside:
    """New files beside those that they will replace.

    At the end of the context each file takes its place. An error drops them all, and what was there stays.
    """

    def __init__(self) -> None:
        self._parts: dict[Path, Path] = {}
        self._stale: set[Path] = set()

    def __enter__(self) -> Aside:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                for target, part in self._parts.items():
                    part.replace(target)
                for path in self._stale.difference(self._parts):
                    path.unlink(missing_ok=True)
        finally:
            for part in self._parts.values():
                part.unlink(missing_ok=True)

    def path(self, target: Path) -> Path:
        """Return where to write a file for now.

        Args:
            target: where it belongs; a device or a pipe is written to at once.
        """
        if target.exists() and not target.is_file():
            return target
        return self._parts.setdefault(target, target.with_name(f"{PREFIX}{target.name}"))

    def remove(self, path: Path) -> None:
        """Remove a file of an earlier run when the new ones take their places: two runs are never mixed.

        Args:
            path: a file that may be missing; one that is written anew stays.
        """
        self._stale.add(path)

    def drop(self) -> None:
        """Leave everything as it was."""
        for part in self._parts.values():
            part.unlink(missing_ok=True)
        self._parts.clear()
        self._stale.clear()
