"""Files of this machine: written aside, read whole, and errors of the system that say which file."""

from __future__ import annotations

import errno
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from assay_stream.errors import ConfigurationError, InputError, OperatingError
from assay_stream.limits import DEFAULT_LIMITS

_PLACE = re.compile(r"\(at (?:line ([0-9]+), column [0-9]+|end of document)\)")


def path_text(path: Path | str) -> str:
    """Return a path, or the name of a file, with bytes that are not UTF-8 escaped as ``\\xff``."""
    return os.fsencode(path).decode(errors="backslashreplace")


def config_of(raw: bytes, where: str, code: str) -> dict[str, Any]:
    """Decode a configuration file. Raises ``ConfigurationError`` of this code, which quotes nothing of it."""
    try:
        if len(raw) > DEFAULT_LIMITS.record_bytes_max:
            raise ConfigurationError(code, f"{where}: over {DEFAULT_LIMITS.record_bytes_max} bytes")
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError as error:
        why = f"byte {error.start} is not UTF-8: write UTF-8"
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        found = _PLACE.search(str(error))
        number = int(found[1] or len(raw.splitlines())) if found else 0  # 0: without a place
        hint = ". YAML and JSON are not read: docs/operations.md#configuration-files has both" if number == 1 else ""
        why = f"line {number}: not TOML{hint}" if number else "not TOML"
    raise ConfigurationError(code, f"{where}: {why}")


def no_field(strange: Iterable[str], known: Iterable[str]) -> str:
    """Return the message for the first field that a table must not have."""
    return f"there is no field {min(strange)!r}: the only fields are {', '.join(known)}"


_OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
"""The same command may succeed later."""


@contextmanager
def _failing(code: str, what: str, path: object) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        is_file = code == "unwritable_folder" and isinstance(error, FileExistsError | NotADirectoryError)
        why = "a file is in its place: name a folder" if is_file else error.strerror
        kind = OperatingError if error.errno in _OF_THE_DISK and code != "unreadable_file" else InputError
        raise kind(code, f"cannot {what} {path}: {why}") from None


# Each takes the path that its block reads or writes.
reading = partial(_failing, "unreadable_file", "read")
writing = partial(_failing, "unwritable_file", "write")
writing_to = partial(_failing, "unwritable_folder", "write to")


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Return what differs once a file has changed; ``None`` where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


PREFIX = ".part."
"""Starts the name of an incomplete file. The ending stays: it says how the file is compressed."""
_NO_LOCKS = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL})


def is_special(path: Path) -> bool:
    """Return True for a device or a pipe: it is written to, and never replaced or removed."""
    return path.exists() and not path.is_file()


class Aside:
    """New files beside those they will replace.

    At the end of the context each file takes its place. An error drops all of them and keeps the old files; a power
    failure leaves the old file or the new one. A link stays, and what it leads to is replaced.
    """

    def __init__(self) -> None:
        self._parts: dict[Path, Path] = {}
        self._stale: set[Path] = set()
        self._held = ExitStack()

    def __enter__(self) -> Aside:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                for part in self._parts.values():
                    with part.open("r+b") as file:
                        os.fsync(file.fileno())
                for target, part in self._parts.items():
                    part.replace(target)
                for path in self._stale:
                    if Path(os.path.realpath(path)) not in self._parts:
                        path.unlink(missing_ok=True)
        finally:
            self.drop()
            self._held.close()

    def path(self, target: Path, *, mode: int = 0o666) -> Path:
        """Return the temporary path to write to; a device or a pipe is written to directly.

        Args:
            mode: permissions of the new file, before the umask.

        Raises:
            ConfigurationError: ``output_in_use``.
        """
        if is_special(target):
            return target
        target = Path(os.path.realpath(target))
        part = target.with_name(f"{PREFIX}{target.name}")
        if not self._parts:
            # One is enough: runs that write the same files begin with the same one.
            self._held.enter_context(_locked(part, os.O_RDWR | os.O_CREAT, mode, str(target)))
            part.write_bytes(b"")  # a run that was killed may have left something
        return self._parts.setdefault(target, part)

    def remove(self, path: Path) -> None:
        """Remove a file of an earlier run when the new ones take their places, unless it is written again."""
        if not is_special(path):
            self._stale.add(path)

    def drop(self) -> None:
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
    with _locked(folder, os.O_RDONLY, 0, str(folder)):
        yield


@contextmanager
def _locked(path: Path, flags: int, mode: int, place: str) -> Iterator[None]:
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        yield
        return
    in_use = ConfigurationError("output_in_use", f"another run is writing to {place}: wait for it, or choose another")
    handle = os.open(path, flags, mode)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise in_use from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):
            raise in_use  # it ended just now, and took what was opened here to its place
        yield
    finally:
        os.close(handle)


SECRET_FILE_BYTES_MAX = 64 * 1_024
"""A longer file is not a password file: the path is probably wrong."""


def secret_of_file(path: Path, *, variable: str) -> str:
    """Return the secret in a file, without its trailing line feed.

    Args:
        variable: the variable that named the file, for the error.

    Raises:
        ConfigurationError: ``bad_secret_file``.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(SECRET_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(
            "bad_secret_file", f"{variable} names a file that cannot be read ({error.strerror}): {path}"
        ) from None
    try:
        text = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        text = ""
    if not text or len(raw) > SECRET_FILE_BYTES_MAX or "\n" in text:
        raise ConfigurationError(
            "bad_secret_file", f"{variable} names a file that does not hold one line of UTF-8 text: {path}"
        )
    return text


def read_config(path: Path, code: str) -> bytes:
    """Read a configuration file, and no more of it than ``config_of`` takes; raises ``ConfigurationError``."""
    try:
        with path.open("rb") as file:
            return file.read(DEFAULT_LIMITS.record_bytes_max + 1)
    except OSError as error:
        raise ConfigurationError(code, f"cannot read {path}: {error.strerror}") from None


def read_toml(path: Path, code: str) -> dict[str, Any]:
    return config_of(read_config(path, code), str(path), code)


def entries_of(content: object, name: str, where: str, code: str, *, entries_max: int) -> list[Any]:
    """Return the entries of a file that is one list of them; raises ``ConfigurationError``."""
    listed = content.get(name) if isinstance(content, dict) and set(content) == {name} else None
    if not isinstance(listed, list) or not 1 <= len(listed) <= entries_max:
        raise ConfigurationError(code, f"{where}: it must hold a list named {name}, with 1 to {entries_max} entries")
    return listed
