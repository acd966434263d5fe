"""Read the entries of log files, reporting bad ones with their place and reading the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.observe.logs.calls import Whose
from assay_stream.observe.observation import Observation
from assay_stream.observe.recorded import OnError, numbered, report
from assay_stream.plugins import LogReader

_MESSAGE_BYTES_MAX = DEFAULT_LIMITS.record_bytes_max


def from_log(
    reader: LogReader, pieces: Iterable[bytes], whose: Whose, counts: Counter[str], *, on_error: OnError | None = None
) -> Iterator[Observation]:
    """Yield a log's observations, always the same; without ``on_error`` the first error is raised.

    Args:
        pieces: the lines of the log; pieces of any size where its reader splits them.
    """
    before = sha256()
    for number, raw in _entries(reader, pieces):
        if isinstance(raw, InputError):
            report(raw, number, on_error)
            return
        # Two equal entries are two calls, and an appended log keeps the ids of its entries.
        before.update(sha256(raw).digest())
        try:
            entry = (reader.decode or decode_json)(raw)
        except InputError as error:
            report(error, number, on_error)
            if reader.read_unsound is not None:
                yield from reader.read_unsound(raw, whose)
            continue
        try:
            if not isinstance(entry, dict):
                raise InputError("not_an_event", "the line must be a JSON object", path="$")
            for each in reader.read(entry, before.hexdigest(), whose, counts):
                if isinstance(each, InputError):
                    report(each, number, on_error)
                else:
                    yield each
        except InputError as error:
            report(error, number, on_error)


def _entries(reader: LogReader, pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes | InputError]]:
    """Yield the entries of a log with their numbers, and an error in place of those that cannot be told apart."""
    if reader.split is None:
        yield from numbered(iter(pieces))
        return
    number = 0
    try:
        for number, raw in enumerate(reader.split(pieces), 1):
            yield number, raw
    except InputError as error:
        yield number + 1, error


def delimited_messages(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield protocol buffers messages: one, or many with their length (four bytes, big-endian) before them."""
    held, rest = bytearray(), iter(pieces)

    def has(size: int) -> bool:
        while len(held) < size and (piece := next(rest, b"")):
            held.extend(piece)
        return len(held) >= size

    is_one = has(1) and held[0] != 0  # a length begins with 0, a message never does
    while held or has(1):
        length = _MESSAGE_BYTES_MAX if is_one else int.from_bytes(held[:4], "big") if has(4) else 4
        start = 0 if is_one else 4
        if length > _MESSAGE_BYTES_MAX or (is_one and has(_MESSAGE_BYTES_MAX + 1)):
            raise InputError("too_large", f"a message has at most {_MESSAGE_BYTES_MAX} bytes", path="$")
        if not has(start + length) and not is_one:
            raise InputError("bad_format", "the last message is cut short", path="$")
        yield bytes(held[start : start + length])
        del held[: start + length]
