"""Parameters, pages and result rows of store queries."""

from __future__ import annotations

import base64
import binascii
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import orjson

from assay_stream.alerts.view import AlertRow, AlertSelection, ReviewState
from assay_stream.errors import InputError
from assay_stream.limits import STORE_PAGE_ROWS_MAX
from assay_stream.model.fields import compile_glob
from assay_stream.model.record import Origin

INT64_MAX = 2**63 - 1
"""Largest number that a column holds."""
RANK_MAX = 7
_T = TypeVar("_T")
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """Which page of a result.

    Args:
        limit: maximum rows; the store has a bound of its own (``STORE_PAGE_ROWS_MAX``).
        after: ``Page.following`` of the page before, ``None`` for the first.
    """

    limit: int = 50
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[_T]):
    """One page of a result.

    Args:
        following: pass it as ``Paging.after`` for the next page; ``None`` on the last.
    """

    rows: tuple[_T, ...]
    following: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestValue:
    """A digest with its scheme and the role of what it covers.

    Args:
        role: such as ``tool_definition``, ``arguments``, ``result``, ``policy``, ``pin_expected``.
        scheme: such as ``assay.v1``, ``hangar.v2``; ``full`` is the digest of a whole definition.
        value: as its scheme prints it.
    """

    role: str
    scheme: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestPlace:
    """One place where a digest occurs.

    Args:
        place: ``evidence``, ``calls`` (shared by several calls), ``tool``, ``list``, ``definition``,
            ``verdict``, ``alert`` or ``decision``.
        server_id: ``None`` if the place belongs to no server.
        reference: key for the next query: id of the evidence or decision, uid of the alert, full digest of
            the definition; ``None`` if there is nothing more.
        calls: number of stored evidence records with the digest.
    """

    digest: DigestValue
    place: str
    server_id: str | None = None
    tool_name: str | None = None
    reference: str | None = None
    calls: int = 0


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server. Times are microseconds since the epoch, ``None`` for never.

    Args:
        tools: number of tools in its observers' latest lists.
        observers: number of observers that listed it or saw it called.
        pinned: number of its tools that an operator decided on.
        calls: calls ever read.
        calls_day: calls in the 24 hours before the query's time.
    """

    server_id: str
    tools: int
    observers: int
    pinned: int
    calls: int
    calls_day: int
    listed_us: int | None
    called_us: int | None


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A tool of a server.

    Args:
        full_digests: of the definitions in its observers' latest lists; several if they differ.
        digests: of the first of these, under each scheme.
        versions: number of known definitions.
        is_listed: whether any observer's latest list has it.
        pin_status: as in verdicts: ``match``, ``mismatch``, ``rejected``, ``unobserved``; ``unpinned`` without any.
    """

    server_id: str
    tool_name: str
    full_digests: tuple[str, ...]
    digests: tuple[DigestValue, ...]
    versions: int
    is_listed: bool
    pin_status: str
    calls: int
    calls_day: int
    listed_us: int | None
    called_us: int | None


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One definition of a tool.

    Args:
        first_us: first time in any observer's list, as far as lists are kept.
        last_us: last time.
        calls: number of stored evidence records that refer to it.
    """

    server_id: str
    tool_name: str
    full_digest: str
    digests: tuple[DigestValue, ...]
    first_us: int | None
    last_us: int | None
    is_listed: bool
    calls: int


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """How an offered tool compares with its pins, and the resulting action of its policy.

    Args:
        status: ``match``, ``mismatch``, ``rejected``, ``unobserved`` or ``unpinned``.
        action: ``allow``, ``warn`` or ``block``.
    """

    server_id: str
    tool_name: str
    status: str
    action: str


@dataclass(frozen=True, slots=True)
class ObserverRow:
    """An observer of servers: a tap, a gateway, list-watch."""

    observer_id: str
    servers: int
    calls: int
    calls_day: int
    listed_us: int | None
    called_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFilter:
    """Filter for evidence; ``None`` means no restriction.

    Args:
        since_us: event time, inclusive, microseconds since the epoch.
        until_us: event time, exclusive.
        is_unbound: whether the call carries no definition.
        digest: any digest of any scheme, or a trace id, a call's id or an evidence id; with or without ``sha256:``.
    """

    server_id: str | None = None
    tool_name: str | None = None
    observer_id: str | None = None
    agent_id: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    decision: str | None = None
    scope: str | None = None
    unbound_reason: str | None = None
    is_unbound: bool | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """One call's evidence as shown in lists. Fields declare the columns that they come from (``CALL_COLUMNS``).

    Args:
        reference: its key in this store; ``evidence_of`` returns the full record.
        origin: position of the record in the evidence topic, or in a file.
        digests: of the definition in force, and others shared by similar calls.
    """

    reference: str
    time_us: int
    origin: Origin
    server_id: str = field(metadata={"name": "server", "member": "server_id"})
    tool_name: str = field(metadata={"name": "tool", "member": "tool"})
    observer_id: str = field(metadata={"name": "observer", "member": "observer_id"})
    agent_id: str | None = field(metadata={"name": "agent", "member": "actor.agent_id"})
    decision: str | None = field(metadata={"name": "decision", "member": "decision"})
    scope: str = field(metadata={"name": "scope", "member": "binding.scope"})
    unbound_reason: str | None = field(metadata={"name": "unbound", "member": "unbound_reason"})
    ok: bool | None = field(metadata={"name": "ok", "member": "ok"})
    digests: tuple[DigestValue, ...]


class CallColumn(NamedTuple):
    """A column of the table ``evidence``: a member of ``EvidenceData``, and ``read`` as a field of ``EvidenceRow``."""

    field: str
    sql: str
    read: Callable[[Any], Any]
    name: str
    member: str


_TYPES = {"str": ("TEXT NOT NULL", str), "str | None": ("TEXT", str), "bool | None": ("INTEGER", bool)}
CALL_COLUMNS = tuple(
    CallColumn(each.name, *_TYPES[str(each.type)], **each.metadata) for each in fields(EvidenceRow) if each.metadata
)
"""Table, insertion and queries have these in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRecord:
    """One call's full evidence.

    Args:
        value: its bytes, exactly as in the topic.
        digests: every digest in it, with its scheme.
    """

    row: EvidenceRow
    value: bytes
    digests: tuple[DigestValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFilter:
    """Filter for alerts.

    Args:
        selection: by server, severity and time last seen.
        state: ``None`` for any.
        tool_name: a glob pattern, unless ``is_exact``.
        is_exact: whether ``tool_name`` is a literal name.
        is_unreviewed: only open alerts, neither acknowledged nor assigned.
        digest: full digest of a definition that the alerts are about.
    """

    selection: AlertSelection = field(default_factory=AlertSelection)
    state: ReviewState | None = ReviewState.OPEN
    tool_name: str | None = None
    is_exact: bool = False
    kind: str | None = None
    is_unreviewed: bool = False
    digest: str | None = None

    def fits(self, row: AlertRow) -> bool:
        """Return True if a new alert matches server, severity, state, kind and tool."""
        return (
            self.state in (None, row.state)
            and self.kind in (None, row.kind)
            and (self.tool_name is None or compile_glob(self.tool_name).fullmatch(row.tool_name) is not None)
            and self.selection.wants(row, row.last_seen_ms)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertHistory:
    """One alert: its row and its records.

    Args:
        records: OCSF objects in the order of the log: the first five and the latest ones.
        count: number of stored records.
        decisions: operators' decisions, latest first.
    """

    row: AlertRow
    records: tuple[dict[str, Any], ...]
    count: int
    decisions: tuple[DecisionRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionRow:
    """A definition as it was received, with its digests under every scheme."""

    full_digest: str
    definition: dict[str, Any]
    digests: tuple[DigestValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """What an operator set, or what was observed of a key: evidence of one control record.

    Args:
        change: type of the control record.
        is_superseded: whether a later record had overridden it when it was read.
        origin: position of the control record.
        content: the ``data`` of the ``assay.control.change``.
    """

    reference: str
    time_us: int
    change: str
    server_id: str
    tool_name: str | None
    author: str | None
    reason: str | None
    scheme: str | None
    value: str | None
    alert_uid: str | None
    is_superseded: bool
    origin: Origin
    content: dict[str, Any]


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
        self.connection = connection

    def _named(self, statement: str, given: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a query whose columns have the names of a result row's fields, and give them to it by name."""
        cursor = self.connection.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(statement, given)

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Hold one snapshot of the store until the end of the block."""
        if self.connection.in_transaction:
            yield
            return
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self.connection.execute("COMMIT")


def rank_of(severity_id: int) -> int:
    """Return the rank of a severity (OCSF); an unknown one may be any, and ranks first."""
    return severity_id if 1 <= severity_id < RANK_MAX else RANK_MAX


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
        or not all(isinstance(part, str) or abs(part) <= INT64_MAX for part in place)
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
