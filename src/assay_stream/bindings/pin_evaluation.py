"""Pin evaluation: a definition in force checked against its pins, their policy, and its signature, as of any time.

The join evaluates calls, the registry snapshots and control records. The result depends on what was observed and set,
not on which of the two topics was read first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from assay_stream.bindings.as_of import change_points
from assay_stream.bindings.controls import When
from assay_stream.bindings.pins import check_pins
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.signatures import MISSING, SignatureResult, check_signature, warning_at
from assay_stream.canonical.digest import canonicalize, compact_copy
from assay_stream.detect import RULES_DIGEST
from assay_stream.model.evidence import PinResult, PinStatus
from assay_stream.model.facts import Seen
from assay_stream.model.finding import PIN_FIELDS, Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Output, Position
from assay_stream.schemes.fingerprint import Fingerprint
from assay_stream.schemes.hangar import Action
from assay_stream.schemes.schemapin.verification import SchemaPinErrorCode
from assay_stream.work import Work

_OF_SIGNATURE: dict[str, Kind] = {
    MISSING: Kind.SIGNATURE_MISSING,
    SchemaPinErrorCode.KEY_PIN_MISMATCH: Kind.KEY_CHANGED,
    SchemaPinErrorCode.KEY_REVOKED: Kind.KEY_REVOKED,
    SchemaPinErrorCode.SIGNATURE_INVALID: Kind.SIGNATURE_INVALID,
    SchemaPinErrorCode.DOMAIN_MISMATCH: Kind.SIGNATURE_INVALID,
    SchemaPinErrorCode.DISCOVERY_INVALID: Kind.SIGNATURE_INVALID,
    SchemaPinErrorCode.SCHEMA_CANONICALIZATION_FAILED: Kind.SIGNATURE_INVALID,
}
"""The finding for each failure. A key that was never requested, or could not be fetched, is no finding."""

_UNITS_PER_CHANGE_POINT = 10
_UNITS_PER_ANSWER = 100

_OF_CHANGE = frozenset({Kind.TOOL_ADDED, Kind.TOOL_CHANGED, Kind.TOOL_RENAMED})
_OF_PIN = frozenset({Kind.PIN_MISMATCH, Kind.UNPINNED_TOOL})


class PinEvaluation(NamedTuple):
    """The results, and their canonical form in evidence."""

    pin: PinResult
    signature: SignatureResult | None
    pin_fragment: bytes
    signature_fragment: bytes | None


def pin_evaluation_of(
    server: ServerBindings, seen: Seen | None, found: Fingerprint | None, tool_name: str, when: When
) -> PinEvaluation:
    """Return the pin and signature results of a tool, as of a time or a position.

    Args:
        seen: the observation in force, ``None`` where none was.
        found: the tool's fingerprint in it, ``None`` where it has none.
    """
    if seen is None or found is None:
        # Not kept: made-up names must not fill the memory.
        return _encoded(*_evaluate(server, seen, found, tool_name, when))
    epoch, warning = server.controls.epoch(when), warning_at(server.controls, seen, tool_name, when)
    question = ("pins", seen.origin, tool_name, found.full, epoch, warning)
    answer: PinEvaluation | None = server.answers.get(question)
    if answer is None:
        answer = _encoded(*_evaluate(server, seen, found, tool_name, when))
        server.answers.keep(question, answer)
    return answer


def _encoded(pin: PinResult, signature: SignatureResult | None) -> PinEvaluation:
    return PinEvaluation(
        pin=pin,
        signature=signature,
        pin_fragment=compact_copy(canonicalize(pin.as_json())),
        signature_fragment=None if signature is None else compact_copy(canonicalize(signature.as_json())),
    )


def _evaluate(
    server: ServerBindings, seen: Seen | None, found: Fingerprint | None, tool_name: str, when: When
) -> tuple[PinResult, SignatureResult | None]:
    controls = server.controls
    pin = check_pins(
        controls.pins_as_of(tool_name, when),
        found,
        listed=seen is not None and tool_name in server.catalogue_of(seen).tools,
        policy=controls.policy_as_of(tool_name, when),
    )
    if seen is None or found is None:
        return pin, None
    return pin, check_signature(controls, seen, tool_name, when)


def evaluate_pins(
    server: ServerBindings,
    since: Position,
    *,
    observer_id: str | None = None,
    tool_name: str | None = None,
    work: Work | None = None,
    own: Seen | None = None,
) -> set[Finding]:
    """Return the faults at each change point from a position on.

    An observation repeats faults that persist. A control record names only the faults it caused, once for the fleet.
    """
    findings: set[Finding] = set()
    if not server.controls:
        return findings
    for seen, position, by_control in change_points(server, since, observer_id=observer_id):
        tools = server.catalogue_of(seen).tools
        names = tools if tool_name is None else tools.keys() & {tool_name}
        if work is not None and (by_control or seen != own):
            work.spend(_UNITS_PER_CHANGE_POINT + _UNITS_PER_ANSWER * len(names))
        for name in names:
            findings.update(_findings_at(server, seen, name, position, by_control=by_control))
    return findings


def evaluate_one(server: ServerBindings, seen: Seen) -> set[Finding]:
    """Return the faults of one observation, at its own time."""
    if not server.controls or not server.in_force(seen, seen.time_us):
        return set()
    names = server.catalogue_of(seen).tools
    return {found for name in names for found in _findings_at(server, seen, name, seen.position, by_control=False)}


def _findings_at(
    server: ServerBindings, seen: Seen, name: str, position: Position, *, by_control: bool
) -> Iterator[Finding]:
    """Yield the faults of one tool at one change point."""
    catalogue = server.catalogue_of(seen)
    full = catalogue.tools[name]
    found = None if full is None else server.fingerprint_of(catalogue, full)
    pin, signature = _evaluate(server, seen, found, name, position if by_control else position[0])
    wrong = dict(_wrong(pin, signature))
    if wrong and by_control:
        before = (position[0], position[1]._replace(offset=position[1].offset - 1))
        for kind, reason in _wrong(*_evaluate(server, seen, found, name, before)):
            if kind in wrong and wrong[kind] == reason:
                del wrong[kind]
    for kind, reason in wrong.items():
        yield Finding(
            kind=kind,
            server_id=seen.server_id,
            tool_name=name,
            observer_id=None if by_control else seen.observer_id,
            time_us=position[0],
            origin=position[1],
            snapshot_id=None if by_control else seen.snapshot_id,
            after=full,
            reason=reason,
            **(pin_fields(pin) if kind in _OF_PIN else {}),
        )


def with_reasons(findings: Iterable[Finding], wrong: Iterable[Finding]) -> list[Finding]:
    """Return findings; the first about a definition lists its other faults, so that one alert covers them.

    Args:
        findings: what is new in a list.
        wrong: faults in pins and signatures since.
    """
    listed, about = list(findings), defaultdict[tuple[str | None, ...], list[Finding]](list)
    for finding in (*listed, *wrong):
        about[_definition_in(finding)].append(finding)
    for place, finding in enumerate(listed):
        first, *others = about[_definition_in(finding)]
        others = [other for other in others if other.kind not in _OF_CHANGE]  # Those have changes of their own to say.
        if others and first is finding and finding.kind in _OF_CHANGE:
            pin = next((other for other in others if other.kind in _OF_PIN), finding)
            said: dict[str, Any] = {name: getattr(pin, name) for name in PIN_FIELDS}
            listed[place] = replace(finding, also=tuple(sorted({other.label() for other in others})), **said)
    return listed


def _definition_in(finding: Finding) -> tuple[str | None, ...]:
    offered_as = finding.renamed_to or finding.tool_name
    return (offered_as, finding.after, finding.observer_id, finding.snapshot_id)


def new_findings(found: Iterable[Finding]) -> list[Output]:
    """Return the findings as records in the order of event time, each with the rules that produced it."""
    written = [(finding.time_us, finding.origin, replace(finding, rules=RULES_DIGEST).output()) for finding in found]
    return [output for *_, output in sorted(written, key=lambda place: (*place[:2], place[2].value))]


def pin_fields(pin: PinResult) -> dict[str, Any]:
    """Return the fields of a finding that state a pin result."""
    return {name: getattr(pin, name) for name in PIN_FIELDS} | {"action": pin.action and pin.action.value}


def _wrong(pin: PinResult, signature: SignatureResult | None) -> Iterator[tuple[Kind, str | None]]:
    if pin.status is PinStatus.MISMATCH:
        yield Kind.PIN_MISMATCH, None
    elif pin.status is PinStatus.REJECTED:
        yield Kind.PIN_MISMATCH, pin.status.value
    elif pin.status is PinStatus.UNPINNED and pin.action not in (None, Action.ALLOW):
        yield Kind.UNPINNED_TOOL, None
    if signature is not None and signature.error_code in _OF_SIGNATURE:
        kind = _OF_SIGNATURE[signature.error_code]
        yield kind, signature.error_code if kind is Kind.SIGNATURE_INVALID else signature.key_fingerprint
