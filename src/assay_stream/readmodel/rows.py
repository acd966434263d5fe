"""What questions to the store take, and what they give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from assay_stream.alerts.index import AlertRow, ReviewState
from assay_stream.alerts.selection import AlertSelection
from assay_stream.model.glob import compile_glob
from assay_stream.model.record import Origin

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """Which page of an answer.

    Args:
        limit: rows at most; the store has a bound of its own (``STORE_PAGE_ROWS_MAX``).
        after: ``Page.following`` of the page before, ``None`` for the first.
    """

    limit: int = 50
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Row]):
    """Some rows of an answer.

    Args:
        following: give it as ``Paging.after`` to get the next page; ``None`` where there is none.
    """

    rows: tuple[Row, ...]
    following: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestValue:
    """A digest with the scheme it belongs to, and what it is of.

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
    """One place where a digest stands.

    Args:
        place: ``evidence``, ``calls`` (what several calls have in common), ``tool``, ``list``, ``definition``,
            ``verdict``, ``alert`` or ``decision``.
        server_id: of which server, ``None`` where the place belongs to none.
        tool_name: of which tool.
        reference: what to ask the store for next: id of the evidence or decision, uid of the alert, full digest of
            the definition; ``None`` where there is nothing more.
        calls: evidence here that has it.
    """

    digest: DigestValue
    place: str
    server_id: str | None = None
    tool_name: str | None = None
    reference: str | None = None
    calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRow:
    """A server. Times are microseconds since the epoch, ``None`` for never.

    Args:
        tools: how many tools its observers were shown last.
        observers: how many observers listed it or saw it called.
        pinned: how many of its tools an operator decided on.
        calls: calls ever read.
        calls_day: calls of the 24 hours up to the time asked about.
    """

    server_id: str
    tools: int
    observers: int
    pinned: int
    calls: int
    calls_day: int
    listed_us: int | None
    called_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow:
    """A tool of a server.

    Args:
        full_digests: of the definitions its observers were shown last; several where they differ.
        digests: of the first of these, under each scheme.
        versions: how many definitions of it are known.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """One definition of a tool.

    Args:
        first_us: when an observer was first shown it, as far as lists are kept.
        last_us: when one was last.
        calls: evidence here that names it.
    """

    server_id: str
    tool_name: str
    full_digest: str
    digests: tuple[DigestValue, ...]
    first_us: int | None
    last_us: int | None
    is_listed: bool
    calls: int


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverRow:
    """Somebody who watches servers: a tap, a gateway, list-watch."""

    observer_id: str
    servers: int
    calls: int
    calls_day: int
    listed_us: int | None
    called_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFilter:
    """Which evidence is asked for; ``None`` asks for nothing in particular.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    """What a list shows of one call's evidence.

    Args:
        reference: names it in this store; ask ``evidence_of`` for the whole record.
        origin: where the record stands in the evidence topic, or in a file.
        digests: of the definition in force and whatever else the calls of one kind have in common.
    """

    reference: str
    time_us: int
    origin: Origin
    server_id: str
    tool_name: str
    observer_id: str
    agent_id: str | None
    decision: str | None
    scope: str
    unbound_reason: str | None
    ok: bool | None
    digests: tuple[DigestValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRecord:
    """One call's evidence, whole.

    Args:
        value: its bytes, as they stand in the topic.
        digests: every digest in it, with its scheme.
    """

    row: EvidenceRow
    value: bytes
    digests: tuple[DigestValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFilter:
    """Which alerts are asked for.

    Args:
        selection: by server, severity and time last seen.
        state: ``None`` for any.
        tool_name: a pattern, unless ``is_exact``.
        is_exact: whether the tool has this name, whatever characters it has.
        is_unreviewed: only open ones that nobody acknowledged or was given.
        uid_prefix: beginning of the uid, at least six hexadecimal digits.
        digest: full digest of a definition that they are about.
    """

    selection: AlertSelection = field(default_factory=AlertSelection)
    state: ReviewState | None = ReviewState.OPEN
    tool_name: str | None = None
    is_exact: bool = False
    kind: str | None = None
    is_unreviewed: bool = False
    uid_prefix: str | None = None
    digest: str | None = None

    def fits(self, row: AlertRow) -> bool:
        """Return whether an alert that just came has the server, severity, state, kind and tool that are asked for."""
        return (
            self.state in (None, row.state)
            and self.kind in (None, row.kind)
            and (self.tool_name is None or compile_glob(self.tool_name).fullmatch(row.tool_name) is not None)
            and self.selection.fits(time_ms=row.last_seen_ms, server_id=row.server_id, severity_id=row.severity_id)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertHistory:
    """One alert: what a list shows of it, and its records.

    Args:
        records: OCSF objects in the order of the log: the first five and the latest ones.
        count: how many records it has here.
        decisions: what people did with it, latest first.
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
        is_superseded: whether a later record had decided otherwise when it was read.
        origin: where the control record stands.
        content: all it says, as the ``data`` of ``assay.control.change`` has it.
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
