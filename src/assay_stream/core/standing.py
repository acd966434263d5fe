"""How a definition in force stands at a time: against its pins, their policy, and its signature.

The join asks it of a call, the registry of a snapshot and of a control record; all get the same answer, and it
depends on what was observed and set, not on which of the two topics was read first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypedDict

import orjson

from assay_stream.core.bindings import ServerBindings
from assay_stream.core.digest import canonicalize
from assay_stream.core.facts import Seen
from assay_stream.core.finding import Finding, Kind
from assay_stream.core.fingerprint import Fingerprint
from assay_stream.core.moments import moments
from assay_stream.core.pins import PinResult, PinStatus, check_pins
from assay_stream.core.record import Position
from assay_stream.core.signing import MISSING, SignatureResult, check_signature
from assay_stream.schemes.hangar import Action
from assay_stream.schemes.schemapin import ErrorCode

_OF_SIGNATURE: dict[str, Kind] = {
    MISSING: Kind.SIGNATURE_MISSING,
    ErrorCode.KEY_PIN_MISMATCH: Kind.KEY_CHANGED,
    ErrorCode.KEY_REVOKED: Kind.KEY_REVOKED,
    ErrorCode.SIGNATURE_INVALID: Kind.SIGNATURE_INVALID,
    ErrorCode.DOMAIN_MISMATCH: Kind.SIGNATURE_INVALID,
    ErrorCode.DISCOVERY_INVALID: Kind.SIGNATURE_INVALID,
    ErrorCode.SCHEMA_CANONICALIZATION_FAILED: Kind.SIGNATURE_INVALID,
}
"""What is found in each failure. That nobody has asked for a key, or could not, is no finding."""


_OF_PIN = frozenset({Kind.PIN_MISMATCH, Kind.UNPINNED_TOOL})


class PinFields(TypedDict, total=False):
    """The fields of a finding that are about a pin."""

    scheme: str | None
    expected: str | None
    observed: str | None
    enforcement: str | None
    action: str | None


class Standing(NamedTuple):
    """The answer, and its form in evidence."""

    pin: PinResult
    signature: SignatureResult | None
    pin_fragment: orjson.Fragment
    signature_fragment: orjson.Fragment | None


def standing_of(
    server: ServerBindings, seen: Seen | None, found: Fingerprint | None, tool_name: str, time_us: int
) -> Standing:
    """Return how a tool stood at a time.

    Args:
        server: everything known of the server.
        seen: the observation in force, ``None`` where none was.
        found: the tool's fingerprint in it, ``None`` where it has none.
        tool_name: the tool.
        time_us: event time, microseconds since the epoch.
    """
    if seen is None or found is None:
        # Not kept: whoever makes names up must not fill the memory with what they are not.
        return _work_out(server, seen, found, tool_name, time_us)
    question = ("standing", seen.origin, tool_name, found.full, server.controls.epoch(time_us))
    answer: Standing | None = server.memo.get(question)
    if answer is None:
        answer = server.memo[question] = _work_out(server, seen, found, tool_name, time_us)
    return answer


def _work_out(
    server: ServerBindings, seen: Seen | None, found: Fingerprint | None, tool_name: str, time_us: int
) -> Standing:
    controls = server.controls
    pin = check_pins(
        controls.pins_as_of(tool_name, time_us),
        found,
        policy=controls.policy_as_of(tool_name, time_us),
    )
    signature = None
    if seen is not None and found is not None:
        signature = check_signature(controls, seen, tool_name, time_us)
    return Standing(
        pin=pin,
        signature=signature,
        pin_fragment=orjson.Fragment(canonicalize(pin.as_json())),
        signature_fragment=None if signature is None else orjson.Fragment(canonicalize(signature.as_json())),
    )


def standing_findings(
    server: ServerBindings, since: Position, *, observer_id: str | None = None
) -> dict[tuple[object, ...], Finding]:
    """Return what stands wrong at each moment from a position on, by what it is and where it was found.

    An observation repeats what is still wrong. A control record names only what it made wrong, once for the whole
    fleet.

    Args:
        server: everything known of the server.
        since: the first position that counts.
        observer_id: only what this observer saw, ``None`` for everybody.
    """
    findings: dict[tuple[object, ...], Finding] = {}
    for seen, position, by_control in moments(server, since, observer_id=observer_id):
        catalogue = server.catalogue_of(seen)
        for name, full in sorted(catalogue.tools.items()):
            if full is None:
                continue
            found = server.fingerprint_of(catalogue, full)
            standing = standing_of(server, seen, found, name, position[0])
            wrong = dict(_wrong(standing))
            if by_control:
                for kind, reason in _wrong(_before(server, seen, found, name, position)):
                    if kind in wrong and wrong[kind] == reason:
                        del wrong[kind]
            for kind, reason in wrong.items():
                findings[kind, name, full, reason, position] = Finding(
                    kind=kind,
                    server_id=seen.server_id,
                    tool_name=name,
                    observer_id=None if by_control else seen.observer_id,
                    time_us=position[0],
                    origin=position[1],
                    snapshot_id=None if by_control else seen.snapshot_id,
                    after=full,
                    reason=reason,
                    **(pin_fields(standing.pin) if kind in _OF_PIN else {}),
                )
    return findings


def pin_fields(pin: PinResult) -> PinFields:
    """Return what a finding says of a pin and its policy.

    Args:
        pin: how the definition stands to its pins.
    """
    return {
        "scheme": pin.scheme,
        "expected": pin.expected,
        "observed": pin.observed,
        "enforcement": pin.enforcement,
        "action": None if pin.action is None else pin.action.value,
    }


def _before(server: ServerBindings, seen: Seen, found: Fingerprint, name: str, position: Position) -> Standing:
    """Return how a tool stood just before a control record: event times are whole microseconds."""
    return standing_of(server, seen, found, name, position[0] - 1)


def _wrong(standing: Standing) -> Iterator[tuple[Kind, str | None]]:
    pin, signature = standing.pin, standing.signature
    if pin.status is PinStatus.MISMATCH:
        yield Kind.PIN_MISMATCH, None
    elif pin.status is PinStatus.REJECTED:
        yield Kind.PIN_MISMATCH, pin.status.value
    elif pin.status is PinStatus.UNPINNED and pin.action not in (None, Action.ALLOW):
        yield Kind.UNPINNED_TOOL, None
    if signature is not None and signature.error_code in _OF_SIGNATURE:
        kind = _OF_SIGNATURE[signature.error_code]
        yield kind, signature.error_code if kind is Kind.SIGNATURE_INVALID else signature.key_fingerprint
