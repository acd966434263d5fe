"""How the pages of servers, tools and observers are read: from a server to what it has, never the other way round."""

from __future__ import annotations

from dataclasses import dataclass

from assay_stream.readmodel.calls import HOUR_US

_DAY_HOURS = 24


def _numbers(table: str, column: str) -> str:
    """Return a table expression: the distinct numbers of an indexed column, found with one step for each."""
    return (
        f"SELECT n AS number FROM (WITH RECURSIVE step(n) AS (SELECT min({column}) FROM {table} UNION ALL "  # noqa: S608
        f"SELECT (SELECT min({column}) FROM {table} WHERE {column} > n) FROM step WHERE n IS NOT NULL) "
        "SELECT n FROM step WHERE n IS NOT NULL)"
    )


def _named(*sources: str) -> str:
    return (
        f"SELECT n.text, n.id FROM ({' UNION '.join(sources)}) u CROSS JOIN name n ON n.id = u.number "  # noqa: S608
        "WHERE n.text >= ? ORDER BY n.text LIMIT ?"
    )


SERVERS = _named(*(_numbers(table, "server") for table in ("called", "seen", "catalogue")))
OBSERVERS = _named(_numbers("reported", "observer"), _numbers("seen", "observer"))
_LISTED = (
    "SELECT l.tool AS number, l.full FROM catalogue c CROSS JOIN listed l ON l.catalogue = c.id WHERE c.server = ?1"
)
TOOLS = f"""SELECT n.text, n.id FROM (SELECT number FROM ({_LISTED}) UNION SELECT tool FROM called WHERE server = ?1) u
  CROSS JOIN name n ON n.id = u.number WHERE n.text >= ?2 ORDER BY n.text LIMIT ?3"""  # noqa: S608
VERSIONS = f"""SELECT number, count(*) FROM ({_LISTED} UNION
  SELECT tool, full FROM subject WHERE server = ?1 AND full != '') GROUP BY number"""  # noqa: S608
STATUSES = "SELECT tool, status FROM verdict WHERE server = ? AND tool IS NOT NULL ORDER BY part DESC, id DESC"
IN_A_DAY = f"hour IN ({', '.join('?' * _DAY_HOURS)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfServer:
    """What rows of a server's tools are made of.

    Args:
        latest: time and digest of what each observer was shown last.
        called: calls and the time of the last one, by tool.
        day: calls of the last day, by tool.
        versions: how many definitions are known, by tool.
        statuses: of verdicts, by tool.
    """

    latest: dict[int, tuple[int, str]]
    called: dict[int, tuple[int, int]]
    day: dict[int, int]
    versions: dict[int, int]
    statuses: dict[int, str]


def hours_of_day(now_us: int) -> range:
    """Return the hours since the epoch that end with this one and make a day."""
    hour = now_us // HOUR_US
    return range(hour - _DAY_HOURS + 1, hour + 1)
