"""Where observations go: a publisher, a file, or memory."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from assay_stream.canonical.digest import DigestKey
from assay_stream.errors import ConfigurationError
from assay_stream.observe.observation import Observation, with_keyed_digests

DropReason = Literal["queue_full", "too_large", "delivery_failed", "closed", "spool_damaged"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStats:
    """Counts since the sink was created.

    Args:
        delivered: observations with confirmed delivery.
        spooled: observations on disk, including those of earlier processes.
        connected: whether the destination is reachable, as far as known.
    """

    accepted: int = 0
    delivered: int = 0
    queued: int = 0
    queued_bytes: int = 0
    spooled: int = 0
    spooled_bytes: int = 0
    dropped: Mapping[DropReason, int] = field(default_factory=dict)
    retries: int = 0
    connected: bool = True


class Sink(Protocol):
    """Destination for the tap and the adapters."""

    @property
    def stats(self) -> SinkStats:
        pass

    def publish(self, observation: Observation) -> bool:
        """Accept an observation from any thread; return False if it was dropped. Never blocks, never raises."""

    async def aclose(self, timeout_s: float = 10.0) -> None:
        """Deliver accepted observations within ``timeout_s`` seconds, as far as possible, and release all resources."""


class FileSink:
    """Write events to a file, one JSON object per line, in the format of ``assay-stream replay``.

    Every line is written at once, so that nothing is lost with the process, and as a whole or not at all. Existing
    content is kept: a client that restarts its server restarts the tap, too.

    Args:
        target: a path to append to, or an open binary file, which stays open.
        digest_key: keys the digests of arguments and results.

    Raises:
        ConfigurationError: ``unwritable_file``.
    """

    def __init__(self, target: Path | BinaryIO, *, digest_key: DigestKey | None = None) -> None:
        self._digest_key = digest_key
        self._owned = isinstance(target, Path)
        self._is_cut = False
        """Whether the file ends within a line."""
        try:
            if isinstance(target, Path):
                self._is_cut = _is_cut(target)
                target = target.open("ab", buffering=0)
        except OSError as error:
            raise ConfigurationError("unwritable_file", f"cannot write {target}: {error.strerror}") from None
        self._file = target
        # A buffer keeps what it could not write, and writes it later.
        self._raw: Any = getattr(target, "raw", target)
        self._lock = threading.Lock()
        self._delivered = 0
        self._dropped: Counter[DropReason] = Counter()

    @property
    def stats(self) -> SinkStats:
        taken = self._delivered + self._dropped["delivery_failed"]
        return SinkStats(accepted=taken, delivered=self._delivered, dropped=dict(self._dropped))

    def publish(self, observation: Observation) -> bool:
        if self._digest_key is not None:
            observation = with_keyed_digests(observation, self._digest_key)
        # Only an unsound message kept as it came can contain a line feed: between tokens, where a space means the
        # same, or inside a string, where both are errors.
        line = observation.value.replace(b"\n", b" ") + b"\n"
        with self._lock:
            try:
                self._file.flush()
                self._write(b"\n" + line if self._is_cut else line)
            except ValueError:
                self._dropped["closed"] += 1
                return False
            except OSError as error:
                if not self._dropped["delivery_failed"]:
                    _log.error("cannot write observations: %s", error.strerror)
                self._dropped["delivery_failed"] += 1
                return False
            self._delivered += 1
            return True

    async def aclose(self, timeout_s: float = 10.0) -> None:  # noqa: ARG002 - every line is already written
        if self._owned:
            with suppress(OSError):
                self._file.close()

    def _write(self, line: bytes) -> None:
        """Write a line; take back what was written of it if it does not fit."""
        written, was_cut, self._is_cut = 0, self._is_cut, True
        try:
            while written < len(line):
                count = self._raw.write(line[written:])
                if not count:
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
                written += count
            self._raw.flush()
            self._is_cut = False
        except OSError:
            with suppress(OSError):  # of a pipe, for example
                if written:
                    self._raw.seek(-written, os.SEEK_CUR)
                    self._raw.truncate()
                self._is_cut = was_cut
            raise


def _is_cut(path: Path) -> bool:
    """Return True if a kill cut off the last line."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


class MemorySink:
    def __init__(self) -> None:
        self.observations: list[Observation] = []

    @property
    def stats(self) -> SinkStats:
        return SinkStats(accepted=len(self.observations), delivered=len(self.observations))

    def publish(self, observation: Observation) -> bool:
        self.observations.append(observation)
        return True

    async def aclose(self, timeout_s: float = 10.0) -> None:
        pass
