"""Read log files by line or message, reporting bad entries with their place and reading the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Literal

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.observe.logs import hangar, otlp, toolhive
from assay_stream.observe.logs.calls import Whose
from assay_stream.observe.observation import Observation
from assay_stream.observe.recorded import OnError, numbered, report

LogFormat = Literal["hangar", "otlp-json", "otlp-proto", "toolhive"]

_LINES = {"hangar": hangar.read, "toolhive": toolhive.read}


def from_log(
    source: LogFormat,
    lines: Iterable[bytes],
    whose: Whose,
    counts: Counter[str],
    *,
    span_kind: otlp.SpanKind = "server",
    on_error: OnError | None = None,
) -> Iterator[Observation]:
    """Yield a log's observations, always the same; without ``on_error`` the first error is raised."""
    if source == "otlp-proto":
        yield from _messages(lines, whose, counts, span_kind, on_error)
        return
    before = sha256()
    for number, raw in numbered(iter(lines)):
        # Two equal lines are two calls, and an appended log keeps the ids of its lines.
        before.update(sha256(raw).digest())
        try:
            line = decode_json(raw)
        except InputError as error:
            report(error, number, on_error)
            if source == "toolhive":
                yield from toolhive.read_unsound(raw, whose)
            continue
        try:
            if not isinstance(line, dict):
                raise InputError("not_an_event", "the line must be a JSON object", path="$")
            if source == "otlp-json":
                yield from _kept(otlp.read(line, whose, counts, kind=span_kind), number, on_error)
            else:
                yield from _kept(_LINES[source](line, before.hexdigest(), whose, counts), number, on_error)
        except InputError as error:
            report(error, number, on_error)


def _messages(
    pieces: Iterable[bytes], whose: Whose, counts: Counter[str], span_kind: otlp.SpanKind, on_error: OnError | None
) -> Iterator[Observation]:
    number = 0
    try:
        for number, message in enumerate(otlp.protobuf_messages(pieces), 1):
            try:
                request = otlp.from_protobuf(message)
            except InputError as error:
                report(error, number, on_error)
                continue
            yield from _kept(otlp.read(request, whose, counts, kind=span_kind), number, on_error)
    except InputError as error:
        report(error, number + 1, on_error)


def _kept(
    found: Iterator[Observation | InputError], number: int, on_error: Callable[[InputError], None] | None
) -> Iterator[Observation]:
    for each in found:
        if isinstance(each, InputError):
            report(each, number, on_error)
        else:
            yield each
