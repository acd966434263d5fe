"""What puts an end to alerts: a definition that is gone again, a list that can be read again, a decision.

An end is told by the uids of what it ends; the alert stage passes over those it never heard of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from assay_stream.core.attention import Reason, Resolution
from assay_stream.core.bindings import ServerBindings
from assay_stream.core.control_facts import KeyDecision, Pin
from assay_stream.core.drift import Baseline
from assay_stream.core.facts import Catalogue, Seen
from assay_stream.core.finding import uid_of
from assay_stream.core.kinds import Kind
from assay_stream.schemes.handshake_contract import DRIFT_CODES
from assay_stream.schemes.schemapin import ErrorCode

_OF_DEFINITION: dict[Kind, tuple[str | None, ...]] = {
    Kind.TOOL_ADDED: (None,),
    Kind.TOOL_CHANGED: (None,),
    Kind.TOOL_RENAMED: (None,),
    Kind.TOOL_SHADOWED: (None,),
    Kind.RISK_LEVEL_CHANGED: (None,),
    Kind.CONTRACT_VIOLATION: DRIFT_CODES,
    Kind.PIN_MISMATCH: (None, "rejected"),
    Kind.UNPINNED_TOOL: (None,),
    Kind.SIGNATURE_MISSING: (None,),
    Kind.SIGNATURE_INVALID: tuple(code.value for code in ErrorCode),
}
"""Kinds that are about one definition, and the reasons they come with."""

AFTER_ALL_US = 2**63 - 1
"""An event time after everything."""

_DECIDED = frozenset(_OF_DEFINITION) - {Kind.SIGNATURE_MISSING, Kind.SIGNATURE_INVALID}
"""Kinds that a pin puts an end to: somebody has looked at the definition and decided."""


def resolved_by_snapshot(
    server: ServerBindings, baseline: Baseline | None, catalogue: Catalogue, seen: Seen
) -> list[Resolution]:
    """Return what a snapshot puts an end to, for the observer who took it. One that is late ends nothing.

    Args:
        server: the state before the snapshot.
        baseline: what it was compared with.
        catalogue: what the snapshot offers.
        seen: the observation itself.
    """
    own = server.observers.get(seen.observer_id)
    latest = None if own is None else own.as_of(AFTER_ALL_US)
    if latest is not None and latest.position > seen.position:
        return []
    before = baseline if baseline is not None and latest is not None else Baseline()
    keys = sorted(server.controls.key_documents())
    gone: list[str] = []
    for name, old in sorted(before.tools.items()):
        listed = name in catalogue.tools
        if not listed and seen.completeness != "complete":
            continue
        if old is not None and (not listed or catalogue.tools[name] != old.full):
            gone += uids_about(seen.server_id, name, old.full, _OF_DEFINITION, keys)
    back = [
        uid_of(Kind.TOOL_REMOVED, seen.server_id, name, full, None)
        for name in sorted(catalogue.tools.keys() - before.tools.keys())
        for full in sorted(_definitions_of(server, name))
    ]
    readable = [
        uid_of(Kind.SNAPSHOT_REJECTED, seen.server_id, None, None, code)
        for code in sorted({rejection.code for rejection in server.rejections})
    ]
    resolutions = [
        _resolution(seen, gone, "no_longer_offered", seen.observer_id),
        _resolution(seen, back, "definition_returned", None),
        _resolution(seen, readable, "definition_returned", None),
    ]
    return [resolution for resolution in resolutions if resolution.uids]


def resolved_by_decision(server: ServerBindings, fact: Pin | KeyDecision) -> list[Resolution]:
    """Return what an operator's decision puts an end to, for the whole fleet.

    Args:
        server: the state of the server.
        fact: the decision.
    """
    uids: list[str] = []
    match fact:
        case Pin(act="set"):
            for full in sorted(_definitions_of(server, fact.tool_name)):
                if _value_of(server, full, fact.scheme) == fact.value:
                    uids += uids_about(fact.server_id, fact.tool_name, full, _DECIDED, ())
        case Pin(act="remove"):
            for full in sorted(_definitions_of(server, fact.tool_name)):
                uids += uids_about(fact.server_id, fact.tool_name, full, (Kind.PIN_MISMATCH,), ())
        case KeyDecision(act="accept"):
            for name in [fact.tool_name] if fact.tool_name else sorted(_names(server)):
                uids += [
                    uid_of(Kind.KEY_CHANGED, fact.server_id, name, full, fact.fingerprint)
                    for full in sorted(_definitions_of(server, name))
                ]
    if not uids:
        return []
    return [
        Resolution(
            server_id=fact.server_id,
            uids=tuple(uids),
            reason="decided",
            observer_id=None,
            time_us=fact.time_us,
            origin=fact.origin,
        )
    ]


def uids_about(
    server_id: str, tool_name: str, full: str, kinds: Iterable[Kind], keys: Iterable[str]
) -> Iterator[str]:
    """Yield the identity of everything of some kinds that could be found about one definition.

    Args:
        server_id: the server.
        tool_name: the tool.
        full: full digest of the definition.
        kinds: which kinds.
        keys: fingerprints of the keys that are known of the server.
    """
    for kind in kinds:
        for reason in _OF_DEFINITION[kind]:
            yield uid_of(kind, server_id, tool_name, full, reason)
    for key in keys:
        for kind in (Kind.KEY_CHANGED, Kind.KEY_REVOKED, Kind.SIGNATURE_MISSING):
            yield uid_of(kind, server_id, tool_name, full, key)


def _resolution(seen: Seen, uids: Iterable[str], reason: Reason, observer_id: str | None) -> Resolution:
    return Resolution(
        server_id=seen.server_id,
        uids=tuple(uids),
        reason=reason,
        observer_id=observer_id,
        time_us=seen.time_us,
        origin=seen.origin,
    )


def _names(server: ServerBindings) -> set[str]:
    return {name for catalogue in server.catalogues.values() for name in catalogue.tools}


def _definitions_of(server: ServerBindings, tool_name: str) -> set[str]:
    found = {catalogue.tools.get(tool_name) for catalogue in server.catalogues.values()}
    return {full for full in found if full is not None}


def _value_of(server: ServerBindings, full: str, scheme: str) -> str | None:
    for scoped in (True, False):
        print_ = server.tools.get((scoped, full))
        if print_ is not None and scheme in print_.schemes:
            return print_.schemes[scheme]
    return None
