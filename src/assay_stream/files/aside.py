"""Files written aside: all of them take their places once everything is written, or none does."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay_stream.errors import ConfigurationError

PREFIX = ".part."
"""Starts the name of an incomplete file. The ending stays: it says how the file is compressed."""
_NO_LOCKS = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL})


class Aside:
    """New files beside those they will replace.

    At the end of the context each file takes its place. An error drops all of them and keeps the old files.
    """

    def __init__(self) -> None:
        self._parts: dict[Path, Path] = {}
        self._stale: set[Path] = set()

    def __enter__(self) -> Aside:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                for target, part in self._parts.items():
                    part.replace(target)
                for path in self._stale.difference(self._parts):
                    path.unlink(missing_ok=True)
        finally:
            self.drop()

    def path(self, target: Path) -> Path:
        """Return the temporary path to write to; a device or a pipe is written to directly."""
        if target.exists() and not target.is_file():
            return target
        return self._parts.setdefault(target, target.with_name(f"{PREFIX}{target.name}"))

    def remove(self, path: Path) -> None:
        """Remove a file of an earlier run when the new ones take their places, unless it is written again."""
        self._stale.add(path)

    def drop(self) -> None:
        """Leave everything as it was."""
        for part in self._parts.values():
            part.unlink(missing_ok=True)
        self._parts.clear()
        self._stale.clear()


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other runs from writing to a folder; it is made if missing, and the lock leaves no file behind.

    A system or file system without locks gets none.

    Raises:
        ConfigurationError: ``output_in_use``.
        OSError: if the folder cannot be created or opened.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                "output_in_use", f"another run is writing to {folder}: wait for it, or choose another folder"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(handle)
