"""Which alerts there are in a replay and in what was recorded, and what each is about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from assay_stream.core.errors import InputError
from assay_stream.core.finding import uid_of
from assay_stream.core.kinds import Kind
from assay_stream.forensics.alert_formats.view import AlertView, read_alert, view_of

_ALTERED, _MISSING, _UNEXPECTED = "altered_record", "missing_record", "unexpected_record"


class KnownAlert(NamedTuple):
    """What an alert is about.

    Args:
        uid: its identity.
        kind: what was found.
        server_id: on which server.
        tool_name: about which tool, if about one.
    """

    uid: str
    kind: str
    server_id: str | None
    tool_name: str | None


class AlertLedger:
    """Alerts by uid, on both sides. Memory grows with the distinct things ever found."""

    def __init__(self) -> None:
        self._replayed: dict[str, KnownAlert] = {}
        self._recorded: dict[str, KnownAlert] = {}
        self._altered: dict[KnownAlert, None] = {}

    def replayed(self, value: bytes | None) -> None:
        """Take in an alert that a replay writes.

        Args:
            value: value bytes.
        """
        view = view_of(read_alert(value))
        self._replayed[view.uid] = _known(view)

    def recorded(self, value: bytes | None) -> None:
        """Take in an alert as it was recorded.

        Args:
            value: value bytes.
        """
        try:
            view = view_of(read_alert(value))
        except InputError:
            self._altered[KnownAlert("", "", None, None)] = None
            return
        alert = _known(view)
        if _own_uid(view) == view.uid:
            self._recorded[view.uid] = alert
        else:
            self._altered[alert] = None

    @property
    def identical(self) -> int:
        """How many alerts there are on both sides."""
        return len(self._replayed.keys() & self._recorded.keys())

    def differences(self) -> Iterator[tuple[str, KnownAlert]]:
        """Yield each alert that is on one side only, or says what its uid does not: why, and the alert."""
        for alert in self._altered:
            yield _ALTERED, alert
        for uid in sorted(self._replayed.keys() - self._recorded.keys()):
            yield _MISSING, self._replayed[uid]
        for uid in sorted(self._recorded.keys() - self._replayed.keys()):
            yield _UNEXPECTED, self._recorded[uid]


def _known(view: AlertView) -> KnownAlert:
    return KnownAlert(view.uid, view.kind, view.fact("mcp_server_id") or None, view.fact("mcp_tool_name") or None)


def _own_uid(view: AlertView) -> str | None:
    """Return the uid that belongs to what an alert says, ``None`` for a kind that this version does not know."""
    if view.kind not in set(Kind):
        return None
    about = view.fact("mcp_digest_after") or view.fact("mcp_digest_before") or None
    return uid_of(
        Kind(view.kind),
        view.fact("mcp_server_id"),
        view.fact("mcp_tool_name") or None,
        about,
        view.fact("mcp_reason") or None,
    )
