"""The process that inspects: it reads the tap's notes from a pipe, and publishes what was observed.

It opens the sink, answers once whether it could, and ends where the pipe ends.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import marshal
import os
import pickle
import signal
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

from assay_stream.errors import AssayStreamError
from assay_stream.limits.serving import HTTP_LIMITS, HttpLimits
from assay_stream.observe.backlog import Failures
from assay_stream.observe.http.credentials import Contexts
from assay_stream.observe.http.traffic import Traffic
from assay_stream.observe.http.watching import Inspection
from assay_stream.observe.observation import Vantage
from assay_stream.observe.sinks import Sink

OpensSink = Callable[[], AbstractAsyncContextManager[Sink]]
"""Opens the sink, in the other process: it must be picklable."""

Refusal = tuple[type[AssayStreamError], str, str, str]
"""Why the process cannot do it: class, code, message and path of an error."""

SIZE_BYTES = 4
_IDS_DRAWN = 256

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionJob:
    """What the other process has to know.

    Args:
        vantages: by the path of the server.
        keys: of ``Contexts``: for what is published, and for what is not.
    """

    vantages: Mapping[str, Vantage]
    keys: tuple[bytes, bytes]
    opens: OpensSink
    limits: HttpLimits = HTTP_LIMITS


def inspect() -> None:
    """Be the process that inspects."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the end of the pipe is the end
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    job = pickle.loads(_frame(source))  # noqa: S301 - the tap that started us wrote it
    try:
        asyncio.run(_inspect(job, source, answers))
    except AssayStreamError as error:
        sys.exit(f"assay-stream: {error.code}: {error.message}")


async def _inspect(job: InspectionJob, source: BinaryIO, answers: BinaryIO) -> None:
    async with AsyncExitStack() as stack:
        try:
            sink = await stack.enter_async_context(job.opens())
        except AssayStreamError as error:
            _answer(answers, (type(error), error.code, error.message, error.path))
            return
        _answer(answers, None)
        traffic, failures = traffic_of(job.vantages, job.keys, limits=job.limits), Failures()
        inspection = Inspection(traffic, publish=sink.publish, failed=failures.note)
        # Nothing else needs this thread: sinks that connect to something do so in threads of their own.
        while frame := _frame(source):
            inspection.look(*marshal.loads(frame))  # noqa: S302 - the tap that started us wrote it
        inspection.close(datetime.now(UTC))
        report_missed(traffic, failures.count)


def _answer(answers: BinaryIO, refusal: Refusal | None) -> None:
    answers.write(framed(pickle.dumps(refusal)))
    answers.flush()


def _frame(source: BinaryIO) -> bytes:
    """Return the next frame; nothing at the end, even if it comes within a frame."""
    size_bytes = int.from_bytes(source.read(SIZE_BYTES), "big")
    frame = source.read(size_bytes)
    return frame if len(frame) == size_bytes else b""


def framed(content: bytes) -> bytes:
    """Return what goes into a pipe: the length, then the content."""
    return len(content).to_bytes(SIZE_BYTES, "big") + content


def traffic_of(
    vantages: Mapping[str, Vantage],
    keys: tuple[bytes, bytes],
    *,
    new_id: Callable[[], str] | None = None,
    **options: Any,
) -> dict[str, Traffic]:
    """Return the traffic of every server, by its path; ``options`` as ``Traffic`` takes them."""
    return {
        path: Traffic(
            vantage,
            Contexts(*keys, default=vantage.auth_context),
            new_id=new_id or functools.partial(next, _random_ids()),
            **options,
        )
        for path, vantage in vantages.items()
    }


def _random_ids() -> Iterator[str]:
    """Yield new ids, drawn many at a time: each draw lets another thread run first. For one thread."""
    while True:
        drawn = os.urandom(16 * _IDS_DRAWN)
        for start in range(0, len(drawn), 16):
            yield str(uuid.UUID(bytes=drawn[start : start + 16], version=4))


def report_missed(traffic: Mapping[str, Traffic], failures: int) -> None:
    """Log what could not be observed."""
    for path, each in traffic.items():
        stats = each.stats
        if stats.missed_lines or stats.refused_snapshots or stats.evicted_requests or each.evicted_connections:
            counts = {name: count for name, count in stats.as_dict().items() if count}
            counts |= {"evicted_connections": each.evicted_connections}
            _log.warning("not everything could be observed under %s: %s", path, counts)
    if failures:
        _log.warning("inspecting failed %d times", failures)
