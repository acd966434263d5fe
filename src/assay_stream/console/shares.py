"""Room that people share: nobody who is signed in can take all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from assay_stream.console.sessions import Session
from assay_stream.errors import OperatingError


class Shares:
    """What each person uses at once. Used from the event loop only.

    Args:
        most: of one person. Where nobody is asked who they are, there is no such bound.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._used: Counter[str] = Counter()

    @contextmanager
    def by(self, session: Session | None) -> Iterator[None]:
        """Take a place for as long as the block lasts.

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
