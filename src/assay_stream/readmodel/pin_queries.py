"""Questions about what operators pinned: what a decision on a definition needs, and which tools differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from assay_stream.readmodel.paging import Tables, at_one_moment, page_of, place_of, rows_max
from assay_stream.readmodel.rows import Page, Paging


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """How a tool that is offered compares with its pins, and what its policy makes of that.

    Args:
        status: ``match``, ``mismatch``, ``rejected``, ``unobserved`` or ``unpinned``.
        action: ``allow``, ``warn`` or ``block``, as the policy has it.
    """

    server_id: str
    tool_name: str
    status: str
    action: str


class PinQueries(Tables):
    """Questions about pins."""

    @at_one_moment
    def printed(self, server_id: str, full_digest: str) -> Mapping[str, str]:
        """Return a definition's value under every scheme as printed for one server; none where it never offered it."""
        statement = "SELECT schemes FROM tool_fact WHERE full = ? AND server = ? ORDER BY part LIMIT 1"
        row = self._connection.execute(statement, (full_digest, server_id)).fetchone()
        found: dict[str, str] = {} if row is None else orjson.loads(row[0])
        return found

    @at_one_moment
    def pinned(self, server_id: str, tool_name: str) -> Mapping[str, str]:
        """Return the approved value of a tool under each scheme that it is pinned under."""
        row = self._connection.execute(
            "SELECT body FROM verdict WHERE server = ? AND tool = ? ORDER BY part, id LIMIT 1", (server_id, tool_name)
        ).fetchone()
        found: dict[str, str] = {} if row is None else orjson.loads(row[0]).get("pins", {})
        return found

    @at_one_moment
    def differing(self, paging: Paging = Paging()) -> Page[VerdictRow]:  # noqa: B008 -- frozen
        """Return tools that differ from their pins, or that their policy blocks, those that changed last first.

        Raises:
            InputError: ``bad_cursor``.
        """
        place = place_of(paging, int) or (2**63 - 1,)
        found = self._connection.execute(
            "SELECT id, server, tool, status, action FROM verdict WHERE id < ? AND tool IS NOT NULL "
            "AND (status IN ('mismatch', 'rejected') OR action = 'block') ORDER BY id DESC LIMIT ?",
            (*place, rows_max(paging) + 1),
        ).fetchall()
        page = page_of(found, paging, lambda row: (row[0],))
        rows = tuple(
            VerdictRow(server_id=server, tool_name=tool, status=status, action=action)
            for _, server, tool, status, action in page.rows
        )
        return Page(rows=rows, following=page.following)
