"""Texts that recur, by number: names of servers, tools, observers and agents, and the words of decisions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Literal

from assay_stream.limits.store import STORE_NAMES_KEPT_MAX

_AT_ONCE = 500


class Names:
    """Numbers of texts. What a transaction that was undone has added must be forgotten.

    Args:
        table: ``name``, or ``word`` for the words that records are made of.
    """

    def __init__(self, connection: sqlite3.Connection, table: Literal["name", "word"] = "name") -> None:
        self._connection = connection
        self._select = f"SELECT id FROM {table} WHERE text = ?"  # noqa: S608
        self._insert = f"INSERT INTO {table} (text) VALUES (?) RETURNING id"  # noqa: S608
        self._texts = f"SELECT id, text FROM {table} WHERE id IN "  # noqa: S608
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Return the number of a text, which it is given if it has none yet."""
        found = self._numbers.get(text)
        if found is None:
            known = self.known(text)
            if known is None:
                known = int(self._connection.execute(self._insert, (text,)).fetchone()[0])
            if len(self._numbers) >= STORE_NAMES_KEPT_MAX:
                self._numbers.clear()
            found = self._numbers[text] = known
        return found

    def known(self, text: str) -> int | None:
        """Return the number of a text, ``None`` where it has none."""
        row = self._connection.execute(self._select, (text,)).fetchone()
        return None if row is None else int(row[0])

    def texts(self, numbers: Iterable[int | None]) -> dict[int | None, str]:
        """Return the texts of some numbers; ``None`` has none."""
        wanted = sorted({number for number in numbers if number is not None})
        found: dict[int | None, str] = {}
        for begin in range(0, len(wanted), _AT_ONCE):
            part = wanted[begin : begin + _AT_ONCE]
            places = ",".join("?" * len(part))
            found.update(self._connection.execute(f"{self._texts}({places})", part))
        return found

    def forget(self) -> None:
        """Forget what is remembered here; the store keeps it."""
        self._numbers.clear()
