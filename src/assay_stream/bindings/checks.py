"""A definition in force checked against its pins, their policy and its signature, as of any time.

The join evaluates calls, the registry snapshots and control records. The result depends on what was observed and set,
not on which of the two topics was read first.

Signatures and the results of checking them are facts, so the answer for a call needs no cryptography. The first of
these rules that applies is the answer:

1. The tool came without a signature: ``signature_missing`` if an operator accepted a key for it or a signed use came
   before, else there is no result.
2. The domain is the one that came with the signature, else the only one discovered for the server. A domain that is
   not the server's is ``domain_mismatch``.
3. The key document in force is the one last observed at the domain. None: ``key_not_found``, or
   ``discovery_fetch_failed`` if only failures were observed; not a document: ``discovery_invalid``. After a failure the
   one observed last stays in force, and the result says so. Of equal ones in a row the first is named.
4. A key revoked by its document or by an operator is ``key_revoked``. An operator's later acceptance takes back an
   operator's revocation, for what it covers; never that of the document.
5. A key that differs from the one the operator accepted for the tool, or else from the one first used, is
   ``key_pin_mismatch``.
6. A signature that matches in neither hashing mode is ``signature_invalid``. A tool without a canonical form is
   ``schema_canonicalization_failed``. A signature not checked against the key, since it came by another partition than
   its server's keys, is ``signature_unchecked``: nothing is known of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from assay_stream.bindings.as_of import change_points
from assay_stream.bindings.controls import Controls, When, check_pins, position_of
from assay_stream.bindings.server import ServerBindings
from assay_stream.canonical.digest import canonicalize, compact_copy
from assay_stream.detect import RULES_DIGEST
from assay_stream.model.control import Discovery, FirstUse, PinResult, PinStatus
from assay_stream.model.facts import Seen
from assay_stream.model.finding import PIN_FIELDS, Finding
from assay_stream.model.kinds import PIN_KINDS, Kind
from assay_stream.model.record import Output, Position
from assay_stream.model.wire import FactKey
from assay_stream.schemes.fingerprint import Fingerprint
from assay_stream.schemes.hangar import Action
from assay_stream.schemes.schemapin import SchemaPinErrorCode, expiry_warning
from assay_stream.work import Work

_UNITS_PER_CHANGE_POINT = 10
_UNITS_PER_SIGNATURE = 100

MISSING = "signature_missing"
"""Our own code: the tool is expected to be signed and is not."""

UNCHECKED = "signature_unchecked"
"""Our own code: the registry that read the signature never saw the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureResult:
    """The signature result in evidence. ``valid`` is about the signature, and implies nothing about the tool.

    Args:
        valid: whether the signature matches under a key that is in force.
        error_code: why it is not valid.
        mode: the hashing mode found: ``double_sha256`` or ``single_sha256``.
        key_fingerprint: the key it was checked against.
        domain: the domain of that key.
        discovery: where the key document was observed.
        last_observed: the domain could not be read since; the document is the one observed last.
        claims: what came with the signature that it does not cover: its expiry and its lineage.
        warning: consequence of its expiry; an expired signature is valid all the same.
    """

    valid: bool
    error_code: str | None = None
    mode: str | None = None
    key_fingerprint: str | None = None
    domain: str | None = None
    discovery: Discovery | None = None
    last_observed: bool = False
    claims: tuple[tuple[str, str], ...] = ()
    warning: str | None = None

    def as_json(self) -> dict[str, object]:
        names = ("valid", "error_code", "mode", "key_fingerprint", "domain", "warning")
        fields = {"scheme": "schemapin.v1", **dict(self.claims)} | {name: getattr(self, name) for name in names}
        if self.discovery is not None:
            fields["discovery"] = {
                "origin": self.discovery.origin.as_json(),
                "status": "last_observed" if self.last_observed else "observed",
            }
        return {name: value for name, value in fields.items() if value is not None}


def check_signature(
    controls: Controls, seen: Seen, tool_name: str, when: When, *, pinned: bool = True
) -> SignatureResult | None:
    """Return the result of a tool's signature at a time, ``None`` where there is none."""
    signatures = controls.signatures.get(seen.signatures) if seen.signatures else None
    entry = signatures.tools.get(tool_name) if signatures else None
    if signatures is None or entry is None:
        return _missing(controls, tool_name, when)
    domain, _, schema_digest, claims = entry
    known = sorted(name for name in controls.discoveries if controls.discoveries_as_of(name, when))
    if domain is None:
        if len(known) != 1:
            return SignatureResult(valid=False, error_code=SchemaPinErrorCode.KEY_NOT_FOUND)
        domain = known[0]
    if known and domain not in known:
        return SignatureResult(valid=False, error_code=SchemaPinErrorCode.DOMAIN_MISMATCH, domain=domain)
    document, last_observed = _document_as_of(controls, domain, when)
    if document is None or document.status != "observed":
        return SignatureResult(valid=False, error_code=_undiscovered(document, last_observed), domain=domain)
    key = str(document.fingerprint)
    checked = controls.checked.get((signatures.digest, key))
    mode = checked.modes.get(tool_name) if checked else None
    error: str | None = None
    if key in document.revoked or _is_revoked(controls, key, domain, tool_name, when):
        error = SchemaPinErrorCode.KEY_REVOKED
    elif pinned and pinned_key(controls, domain, tool_name, when) not in (None, key):
        error = SchemaPinErrorCode.KEY_PIN_MISMATCH
    elif schema_digest is None:
        error = SchemaPinErrorCode.SCHEMA_CANONICALIZATION_FAILED
    elif checked is None:
        error = UNCHECKED
    elif mode is None:
        error = SchemaPinErrorCode.SIGNATURE_INVALID
    return SignatureResult(
        valid=error is None,
        error_code=error,
        mode=mode,
        key_fingerprint=key,
        domain=domain,
        discovery=document,
        last_observed=last_observed,
        claims=tuple(sorted(claims.items())),
        warning=expiry_warning(claims, position_of(when)[0]),
    )


def warning_at(controls: Controls, seen: Seen, tool_name: str, when: When) -> str | None:
    """Return the warning for a signature's expiry: the only part of an answer that changes with time alone."""
    signatures = controls.signatures.get(seen.signatures or "")
    entry = signatures.tools.get(tool_name) if signatures else None
    return expiry_warning(entry.claims, position_of(when)[0]) if entry else None


def pinned_key(controls: Controls, domain: str, tool_name: str, when: When) -> str | None:
    """Return the key that a tool of a domain is pinned to at a time: the accepted one, else the first one used."""
    for decision in reversed(controls.key_acts_as_of(when)):
        if decision.act == "accept" and decision.covers(domain, tool_name):
            return decision.fingerprint
    first = controls.first_use_as_of(domain, tool_name, when)
    return None if first is None else first.fingerprint


def first_uses_since(
    server: ServerBindings, since: Position, work: Work | None = None, own: Seen | None = None
) -> dict[tuple[str, str], FirstUse]:
    """Return the first matching use of a key for each tool and domain, of those made at or after a position."""
    found: dict[tuple[str, str], FirstUse] = {}
    for seen, position, by_control in change_points(server, since):
        signatures = server.controls.signatures.get(seen.signatures) if seen.signatures else None
        when: When = position if by_control else position[0]
        if work is not None and (by_control or seen != own):
            work.spend(_UNITS_PER_CHANGE_POINT + _UNITS_PER_SIGNATURE * len(signatures.tools if signatures else ()))
        for tool_name in signatures.tools if signatures else ():
            result = check_signature(server.controls, seen, tool_name, when, pinned=False)
            if result is None or not result.valid:
                continue
            domain, key = str(result.domain), str(result.key_fingerprint)
            earlier = found.get((domain, tool_name))
            if earlier is None or position < earlier.position:
                found[domain, tool_name] = FirstUse(
                    server_id=seen.server_id,
                    domain=domain,
                    tool_name=tool_name,
                    fingerprint=key,
                    time_us=position[0],
                    origin=position[1],
                )
    return found


def revised_first_uses(
    server: ServerBindings, since: Position, work: Work | None = None, own: Seen | None = None
) -> tuple[list[FactKey], list[FirstUse]]:
    """Return the first uses that a change at a position undoes, and those it adds or changes.

    A use whose list or key document was folded away stays: it cannot be checked again.
    """
    found = first_uses_since(server, since, work, own)
    for place in list(found):
        earlier = server.controls.first_uses.get(place)
        if earlier is not None and earlier.position < since:
            del found[place]
    undone: list[FactKey] = []
    for place, known in server.controls.first_uses_from(since):
        use, documents = found.get(place), server.controls.discoveries.get(known.domain)
        is_document_folded = not documents or documents[0].time_us > known.time_us
        is_folded = is_document_folded or server.is_folded_at(known.time_us)
        if (use is None or use.position > known.position) and is_folded:
            found.pop(place, None)
        elif use is None:
            undone.append(known.key())
        elif use == known:
            del found[place]
    return undone, [use for _, use in sorted(found.items())]


def _missing(controls: Controls, tool_name: str, when: When) -> SignatureResult | None:
    accepted = {str(decision.domain) for decision in controls.key_decisions if decision.act == "accept"}
    for domain in sorted(accepted | controls.discoveries.keys()):
        if pinned_key(controls, domain, tool_name, when) is not None:
            return SignatureResult(valid=False, error_code=MISSING, domain=domain)
    return None


def _document_as_of(controls: Controls, domain: str, when: When) -> tuple[Discovery | None, bool]:
    """Return the document in force at a domain, and whether reading it has failed since."""
    failed = False
    document: Discovery | None = None
    for found in reversed(controls.discoveries_as_of(domain, when)):
        if document is None:
            if found.status == "fetch_failed":
                failed = True
            else:
                document = found
        elif found.says_the_same(document):
            document = found
        else:
            break
    return document, failed


_UNUSABLE = {
    "invalid": SchemaPinErrorCode.DISCOVERY_INVALID,
    "no_key": SchemaPinErrorCode.KEY_NOT_FOUND,
    "other_domain": SchemaPinErrorCode.DOMAIN_MISMATCH,
}


def _undiscovered(document: Discovery | None, failed: bool) -> SchemaPinErrorCode:
    if document is not None:
        return _UNUSABLE[document.status]
    return SchemaPinErrorCode.DISCOVERY_FETCH_FAILED if failed else SchemaPinErrorCode.KEY_NOT_FOUND


def _is_revoked(controls: Controls, key: str, domain: str, tool_name: str, when: When) -> bool:
    for decision in reversed(controls.key_acts_as_of(when)):
        if decision.fingerprint == key and (decision.act == "revoke" or decision.covers(domain, tool_name)):
            return decision.act == "revoke"
    return False


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

_UNITS_PER_ANSWER = 100

_OF_CHANGE = frozenset({Kind.TOOL_ADDED, Kind.TOOL_CHANGED, Kind.TOOL_RENAMED})


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
    question: tuple[Any, ...] | None = None
    if seen is not None and found is not None:  # Others are not kept: made-up names must not fill the memory.
        epoch, warning = server.controls.epoch(when), warning_at(server.controls, seen, tool_name, when)
        question = ("pins", seen.origin, tool_name, found.full, epoch, warning)
        known: PinEvaluation | None = server.answers.get(question)
        if known is not None:
            return known
    pin, signature = _evaluate(server, seen, found, tool_name, when)
    answer = PinEvaluation(
        pin=pin,
        signature=signature,
        pin_fragment=compact_copy(canonicalize(pin.as_json())),
        signature_fragment=None if signature is None else compact_copy(canonicalize(signature.as_json())),
    )
    if question is not None:
        server.answers.keep(question, answer)
    return answer


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
    if not server.controls or not server.in_force(seen, seen.time_us):
        return set()
    names = server.catalogue_of(seen).tools
    return {found for name in names for found in _findings_at(server, seen, name, seen.position, by_control=False)}


def _findings_at(
    server: ServerBindings, seen: Seen, name: str, position: Position, *, by_control: bool
) -> Iterator[Finding]:
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
            **(pin_fields(pin) if kind in PIN_KINDS else {}),
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
            pin = next((other for other in others if other.kind in PIN_KINDS), finding)
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
