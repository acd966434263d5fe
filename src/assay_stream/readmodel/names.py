"""Texts that recur, by number: names of servers, tools, observers and agents, and the words of decisions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from assay_stream.limits import STORE_NAMES_KEPT_MAX


class Names:
    """Numbers of texts. What a transaction that was undone has added must be forgotten."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Return the number of a text, which it is given if it has none yet."""
        found = self._numbers.get(text)
        if found is None:
            known = self.known(text)
            if known is None:
                known = self._connection.execute("INSERT INTO name (text) VALUES (?) RETURNING id", (text,)).fetchone()[
                    0
                ]
            if len(self._numbers) >= STORE_NAMES_KEPT_MAX:
                self._numbers.clear()
            found = self._numbers[text] = known
        return found

    def known(self, text: str) -> int | None:
        """Return the number of a text, ``None`` where it has none."""
        row = self._connection.execute("SELECT id FROM name WHERE text = ?", (text,)).fetchone()
        return None if row is None else int(row[0])

    def texts(self, numbers: Iterable[int | None]) -> dict[int | None, str]:
        """Return the texts of some numbers; ``None`` has none."""
        wanted = sorted({number for number in numbers if number is not None})
        found: dict[int | None, str] = {}
        for begin in range(0, len(wanted), 500):
            part = wanted[begin : begin + 500]
            places = ",".join("?" * len(part))
            found.update(self._connection.execute(f"SELECT id, text FROM name WHERE id IN ({places})", part))  # noqa: S608
        return found

    def forget(self) -> None:
        """Forget what is remembered here; the store keeps it."""
        self._numbers.clear()
