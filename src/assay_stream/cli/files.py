"""Files that commands read, and files that they must not overwrite."""

import atexit
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, BinaryIO, TextIO
from weakref import WeakSet

from assay_stream.cli.parameters import flag
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.archive import EVENT_LINE_BYTES_MAX, lines_of, open_archive
from assay_stream.files.compressed import opened
from assay_stream.files.local import reading, writing, writing_to
from assay_stream.limits.core import DEFAULT_LIMITS

STANDARD_INPUT = Path("-")
_COPIED: WeakSet[TextIO] = WeakSet()


def copied_stdin(path: Path) -> Path:
    """Return the path, or for ``-`` a copy of standard input in a temporary file that is deleted on exit."""
    if path != STANDARD_INPUT:
        return path
    if sys.stdin in _COPIED:
        raise InputError("unreadable_file", "`-` stands for standard input twice: give the other input as a file")
    _COPIED.add(sys.stdin)
    folder = TemporaryDirectory(prefix="assay-stream-")
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "stdin"
    with writing(path), path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def read_input(path: Path | None, *, bytes_max: int = DEFAULT_LIMITS.record_bytes_max, cut: bool = False) -> bytes:
    with _opened(path) as file:
        raw = file.read(bytes_max + 1)
    if len(raw) > bytes_max and not cut:
        name = "standard input" if path is None else path
        raise InputError("too_large", f"{name} is over the limit of {bytes_max} bytes: give a smaller file")
    return raw


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    if path is None or path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with reading(path), path.open("rb") as file:
        yield file


def every_line(path: Path | None) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed if necessary, or of standard input.

    A line over the record limit is truncated just past it, so that its reader refuses it.
    """
    with _opened(path) if path is None or path == STANDARD_INPUT else opened(path) as file:
        yield from lines_of(file, name=str(path), bytes_max=EVENT_LINE_BYTES_MAX, too_long=lambda _: None)


def pieces(path: Path | None) -> Iterator[bytes]:
    with _opened(path) as file:
        while piece := file.read(65_536):
            yield piece


def input_lines(path: Path | None) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines of a file with their 1-based numbers."""
    return _numbered(every_line(path))


def archive_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines of a file, which may be gzip or zstd, with their 1-based numbers."""
    return input_lines(path) if path == STANDARD_INPUT else _numbered(open_archive(path))


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(lines, start=1):
        if line.strip(b" \t\r\n"):
            yield number, line.rstrip(b"\r\n")


def tools_in(content: object) -> list[dict[str, Any]] | None:
    """Return the tools of a tools/list result, of the response around one, or of a snapshot event; else ``None``."""
    for part in (content, content.get("result"), content.get("data")) if isinstance(content, dict) else ():
        tools = part.get("tools") if isinstance(part, dict) else None
        if isinstance(tools, list):
            for index, tool in enumerate(tools):
                if not isinstance(tool, dict):
                    raise InputError("not_a_tool", "a tool must be a JSON object", path=f"$.tools[{index}]")
            return tools
    return None


Force = Annotated[bool, flag("Replace existing results once the new ones are complete.", "--force")]


def refuse_existing_file(path: Path, *, force: bool) -> None:
    if not force and path.is_file() and path.stat().st_size:
        raise ConfigurationError("output_exists", f"{path} exists: choose another name, or give --force to replace it")


def refuse_filled_folder(folder: Path, *, force: bool, leftovers: Collection[str] = (), hint: str = "") -> None:
    """Refuse to write results into a folder that is not empty, unless ``force``."""
    if force or not folder.is_dir():
        return
    with writing_to(folder):
        found = sorted(entry.name for entry in folder.iterdir() if entry.name not in leftovers)
    if found:
        raise ConfigurationError(
            "output_exists",
            f"{folder} is not empty (it has {found[0]}): choose another folder, {hint}or give --force to replace "
            "the results in it",
        )


def write_key_files(private: tuple[Path, bytes], public: tuple[Path, bytes]) -> None:
    """Write both files of a key pair, or neither."""
    _write_new(*private, 0o600)
    try:
        _write_new(*public, 0o644)
    except (ConfigurationError, InputError):
        private[0].unlink(missing_ok=True)
        raise


def _write_new(path: Path, content: bytes, file_mode: int) -> None:
    """Write a file that must not exist, with its final permissions from the first byte on."""
    with writing(path):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file_mode)
        except FileExistsError:
            raise ConfigurationError("file_exists", f"{path} exists: keys are never overwritten") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
