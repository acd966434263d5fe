"""Which alerts can be about one definition: the identities of everything that could have been found about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from assay_stream.model.evidence import PinStatus
from assay_stream.model.finding import uid_of
from assay_stream.model.kinds import Kind
from assay_stream.registry.server import ServerBindings
from assay_stream.schemes.handshake.contract import DRIFT_CODES
from assay_stream.schemes.schemapin.verification import SchemaPinErrorCode

Uids = Iterable[str]
_Reasons = dict[Kind, tuple[str | None, ...]]

OF_CHANGE: _Reasons = {
    Kind.TOOL_ADDED: (None,),
    Kind.TOOL_CHANGED: (None,),
    Kind.TOOL_RENAMED: (None,),
    Kind.RISK_LEVEL_CHANGED: (None,),
    Kind.CONTRACT_VIOLATION: DRIFT_CODES,
}
"""Kinds that are about one definition, and the reasons they come with."""

OF_PINS: _Reasons = {Kind.PIN_MISMATCH: (None, PinStatus.REJECTED.value), Kind.UNPINNED_TOOL: (None,)}
_OF_SIGNATURE: _Reasons = {
    Kind.SIGNATURE_MISSING: (None,),
    Kind.SIGNATURE_INVALID: tuple(code.value for code in SchemaPinErrorCode),
}
_OF_KEY = (Kind.KEY_CHANGED, Kind.KEY_REVOKED, Kind.SIGNATURE_MISSING)
"""Kinds whose reason is a key."""

OF_CALL: _Reasons = {Kind.BLOCKED_TOOL_CALLED: (None,)}


def uids_about(
    server: ServerBindings, server_id: str, tool_name: str, full: str, *, is_offered: bool = False
) -> Iterator[str]:
    """Yield the identity of everything that could be found about one definition while it was offered."""
    if not is_offered:
        yield from uids_of(server_id, tool_name, full, OF_CHANGE)
    if server.controls:
        # Without anything set or signed nothing was found about it.
        yield from uids_of(server_id, tool_name, full, OF_PINS)
        yield from uids_of_signature(server, server_id, tool_name, full)


def uids_of_signature(server: ServerBindings, server_id: str, tool_name: str, full: str) -> Iterator[str]:
    """Yield the identity of everything that could be found about the signature of one definition."""
    yield from uids_of(server_id, tool_name, full, _OF_SIGNATURE)
    for key in sorted(server.controls.key_documents()):
        for kind in _OF_KEY:
            yield uid_of(kind, server_id, tool_name, full, key)


def uids_of(server_id: str, tool_name: str, full: str, reasons: _Reasons) -> Uids:
    for kind, known in reasons.items():
        for reason in known:
            yield uid_of(kind, server_id, tool_name, full, reason)
