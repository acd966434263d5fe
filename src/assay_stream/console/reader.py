"""Store queries on threads, bounded in number and time so that no page can block the others."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from assay_stream.console.sessions import with_room
from assay_stream.errors import OperatingError
from assay_stream.limits.serving import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.readmodel import schema
from assay_stream.readmodel.queries import Store

_T = TypeVar("_T")


class StoreReader:
    """Read a folder's store, reopening it for each query, so that a new or rebuilt one is noticed."""

    def __init__(self, folder: Path, limits: ConsoleLimits = CONSOLE_LIMITS) -> None:
        self._folder = folder
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.threads, "assay-stream console")
        self._room = threading.BoundedSemaphore(limits.questions_max)

    async def ask(self, question: Callable[[Store], _T]) -> _T:
        """Run a query on a thread and return its result.

        Raises:
            OperatingError: ``console_busy``, ``store_slow``, ``store_failing``.
            ConfigurationError: ``store_missing``, ``store_version``.
            InputError: ``store_unreadable``, and as the query.
        """
        busy = "too many pages are being made at once: try again in a few seconds"
        return await with_room(self._room, self._pool, partial(self._answer, question), busy)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, question: Callable[[Store], _T]) -> _T:
        until_s = time.monotonic() + self._limits.question_limit_s
        connection = schema.reading(self._folder)
        connection.set_progress_handler(lambda: time.monotonic() > until_s, self._limits.steps_between_looks)
        store = Store(connection)
        try:
            with schema.failures(self._folder):
                try:
                    return question(store)
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                        raise
                    raise OperatingError(
                        "store_slow",
                        f"the store did not answer within {self._limits.question_limit_s:g} s: ask for less "
                        "(a server, a shorter time), or look at the disk",
                    ) from None
        finally:
            store.close()
