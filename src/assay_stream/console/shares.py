"""Fair shares of shared capacity: no signed-in user can take all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from assay_stream.console.sessions import Session
from assay_stream.errors import OperatingError


class Shares:
    """Concurrent use by each operator. Event loop only.

    Args:
        most: maximum per operator; without authentication there is no such bound.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._used: Counter[str] = Counter()

    @contextmanager
    def by(self, session: Session | None) -> Iterator[None]:
        """Hold a place while the block runs.

        Raises:
            OperatingError: ``console_busy``.
        """
        if session is None:
            yield
            return
        name = session.operator.name
        if self._used[name] >= self._most:
            raise OperatingError("console_busy", "you have too many pages loading at once: try again in a few seconds")
        self._used[name] += 1
        try:
            yield
        finally:
            self._used[name] -= 1
            self._used += Counter()  # keeps no zeros
