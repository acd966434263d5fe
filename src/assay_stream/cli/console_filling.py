"""``assay-stream console --fill``: the store is filled by a thread beside the pages.

Pages read the store through their own read-only connections. If filling fails, it is retried after a pause, and pages
show a notice until it runs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from assay_stream.config import Settings
from assay_stream.errors import AssayStreamError
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import Filler
from assay_stream.worker.storing import StoreFilling

_STOP_LIMIT_S = 15.0
"""A batch that is being committed, and a consumer that is being closed, take a few seconds."""

_log = logging.getLogger(__name__)


def pause_s(failures: int, limits: ConsoleLimits = CONSOLE_LIMITS) -> float:
    """Return the delay before the next attempt, after some consecutive failures."""
    return min(limits.filler_pause_first_s * 2.0 ** min(failures - 1, 32), limits.filler_pause_max_s)


class StoreFillingThread:
    """Fill a store from the topics while the context is active; on exit, finish the current batch.

    Args:
        tell: receives one line per failure, for standard error or the log.
    """

    def __init__(self, settings: Settings, folder: Path, tell: Callable[[str], object]) -> None:
        self._settings, self._folder, self._tell = settings, folder, tell
        self.problem: str | None = None
        """Why the store is not being filled; ``None`` while it is."""
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._stop_filling: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="store-filling", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stopping.set()
            self._stop_filling()
        self._thread.join(_STOP_LIMIT_S)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            started_s = time.monotonic()
            try:
                asyncio.run(self._fill())
                continue
            except AssayStreamError as error:
                why = f"{error.code}: {error.message}"
            except Exception as error:  # noqa: BLE001 - a thread that ends unseen would leave a store that grows stale
                _log.exception("filling the store failed")
                why = type(error).__name__
            failures = 1 if time.monotonic() - started_s > CONSOLE_LIMITS.filler_pause_max_s else failures + 1
            wait_s = pause_s(failures)
            self.problem = f"Filling the store failed ({why}). Next try in {wait_s:g} s."
            self._tell(self.problem)
            self._stopping.wait(wait_s)

    async def _fill(self) -> None:
        with schema.writing(self._folder) as connection:
            filling, loop = StoreFilling(self._settings, Filler(connection)), asyncio.get_running_loop()
            with self._lock:
                if self._stopping.is_set():
                    return
                self._stop_filling = lambda: loop.call_soon_threadsafe(filling.stop)
            self.problem = None
            try:
                await filling.run()
            finally:
                with self._lock:
                    self._stop_filling = lambda: None
