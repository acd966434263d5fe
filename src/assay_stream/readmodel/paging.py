"""Shared by all store queries: the connection, bounded pages and opaque cursors."""

from __future__ import annotations

import base64
import binascii
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import orjson

from assay_stream.errors import InputError
from assay_stream.limits.store import STORE_PAGE_ROWS_MAX
from assay_stream.readmodel.rows import Page, Paging

_T = TypeVar("_T")
_P = ParamSpec("_P")
_CURSOR_CHARS_MAX = 16_384


def at_one_moment(question: Callable[_P, _T]) -> Callable[_P, _T]:
    """Run a query on one snapshot of the store, however many tables it reads.

    The query raises ``InputError`` ``bad_filter`` for values that no store can hold.
    """

    @wraps(question)
    def ask(*given: _P.args, **named: _P.kwargs) -> _T:
        tables = given[0]
        assert isinstance(tables, Tables)  # noqa: S101 -- a method of one
        with tables.moment():
            try:
                return question(*given, **named)
            except (UnicodeEncodeError, OverflowError):
                raise InputError("bad_filter", "a text that is not Unicode, or a number over 64 bits") from None

    return ask


class Tables:
    """Read access to the tables of a store."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def connection(self) -> sqlite3.Connection:
        return self._connection

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Hold one snapshot of the store until the end of the block."""
        if self._connection.in_transaction:
            yield
            return
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")


def cursor_of(*place: str | int) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(place)).decode()


def place_of(paging: Paging, *kinds: type) -> tuple[Any, ...] | None:
    """Decode a cursor, ``None`` for the first page.

    Args:
        kinds: the types of its parts.

    Raises:
        InputError: ``bad_cursor``.
    """
    if paging.after is None:
        return None
    try:
        place = orjson.loads(base64.b64decode(paging.after[:_CURSOR_CHARS_MAX], altchars=b"-_", validate=True))
    except (ValueError, binascii.Error):
        place = None
    if (
        not isinstance(place, list)
        or [type(part) for part in place] != list(kinds)
        or not all(isinstance(part, str) or abs(part) < 2**63 for part in place)
    ):
        raise InputError("bad_cursor", "a page begins where an answer of this store said that it does: begin again")
    return tuple(place)


def rows_max(paging: Paging) -> int:
    return min(max(paging.limit, 1), STORE_PAGE_ROWS_MAX)


def page_of(found: Sequence[_T], paging: Paging, place: Callable[[_T], Sequence[str | int]]) -> Page[_T]:
    """Build a page; ``found`` may have one row more than fits.

    Args:
        place: sort key of a row, for the cursor.
    """
    limit = rows_max(paging)
    following = cursor_of(*place(found[limit - 1])) if len(found) > limit else None
    return Page(rows=tuple(found[:limit]), following=following)
