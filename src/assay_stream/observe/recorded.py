"""What all readers of recorded traffic share: lines, strict times, ids that come out the same every time."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from hashlib import sha256

from assay_stream.errors import InputError
from assay_stream.observe.vantage import Vantage

OnError = Callable[[InputError], None]
"""Gets the error of a line that is left out. Without one, the first error is raised."""

_NAMESPACE = uuid.UUID("6f7c3f0e-5d2b-5a53-9d0c-1f2a2f3b9c11")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")


class StableIds:
    """Gives ids that depend on who observed, and on every line read so far, and on nothing else.

    So a file gives the same ids whenever it is read, also when lines were appended to it since.

    Args:
        vantage: who observes which server.
    """

    def __init__(self, vantage: Vantage) -> None:
        self._hash = sha256(f"{vantage.server_id}\0{vantage.observer_id}\0".encode())
        self._count = 0

    def line(self, raw: bytes) -> None:
        """Take a line into account.

        Args:
            raw: its bytes.
        """
        self._hash.update(sha256(raw).digest())
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return stable_id(self._hash.hexdigest(), str(self._count))


def stable_id(*parts: str) -> str:
    """Return a UUID that is a function of some texts.

    Args:
        parts: the texts.
    """
    return str(uuid.uuid5(_NAMESPACE, "\0".join(parts)))


def parse_rfc3339(text: object, *, path: str) -> datetime:
    """Return the moment that a text names.

    Args:
        text: an RFC 3339 date and time with its offset.
        path: where it stands, for the error.

    Raises:
        InputError: ``bad_time``.
    """
    if isinstance(text, str) and _RFC3339.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper())
        except ValueError:
            pass
    raise InputError("bad_time", "write the time as RFC 3339, for example 2026-11-21T02:06:07.386Z", path=path)


def located(error: InputError, number: int) -> InputError:
    """Return an error that names the line it is about.

    Args:
        error: what is wrong with the line.
        number: the line's number in its file, counted from 1.
    """
    return InputError(error.code, f"line {number}: {error.message}", path=error.path)


def report(error: InputError, number: int, on_error: OnError | None) -> None:
    """Hand an error over, or raise it where nobody collects errors.

    Args:
        error: what is wrong with the line.
        number: the line's number in its file, counted from 1.
        on_error: who collects errors.

    Raises:
        InputError: the error, naming its line.
    """
    if on_error is None:
        raise located(error, number) from None
    on_error(located(error, number))


def numbered(lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers counted from 1.

    Args:
        lines: lines with or without their line feeds.
    """
    for number, line in enumerate(lines, start=1):
        raw = line.strip(b" \t\r\n")
        if raw:
            yield number, raw
