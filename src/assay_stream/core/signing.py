"""Signatures held against keys: SchemaPin 1.1 over what was observed, as of any time.

What was signed and what it was held against are facts, so that the answer for a call needs no cryptography. In
order, and the first that applies is the answer:

1. The tool came without a signature: ``signature_missing`` where its domain's key or an earlier signed use is
   known, else there is nothing to say.
2. The domain: the one that came with the signature, else the only one discovered for the server. A domain that is
   not the server's is ``domain_mismatch``.
3. The key document in force: what was last observed at the domain. None: ``key_not_found``, or
   ``discovery_fetch_failed`` where only failures were observed; not a document: ``discovery_invalid``. After a
   failure the one observed last stays in force, and the answer says so.
4. A key revoked by its document or by an operator: ``key_revoked``.
5. The key differs from the one the operator accepted for the tool, or else from the one first used:
   ``key_pin_mismatch``.
6. The signature matches in one of the two hashing modes, or it is ``signature_invalid``. A tool that has no
   canonical form is ``schema_canonicalization_failed``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from assay_stream.core.bindings import ServerBindings
from assay_stream.core.control_facts import Discovery, FirstUse
from assay_stream.core.controls import Controls
from assay_stream.core.facts import Seen
from assay_stream.core.moments import moments
from assay_stream.core.record import Position
from assay_stream.schemes.schemapin import ErrorCode

MISSING = "signature_missing"
"""Our own code: the tool is expected to be signed and is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureResult:
    """What evidence says of a tool's signature. ``valid`` is about the signature, and says nothing of the tool.

    Args:
        valid: whether the signature matches under a key that is in force.
        error_code: why not.
        mode: the hashing mode found: ``double_sha256`` or ``single_sha256``.
        key_fingerprint: the key it was held against.
        domain: whose key that is.
        discovery: where the key document was observed.
        last_observed: the domain could not be read since; the document is the one observed last.
    """

    valid: bool
    error_code: str | None = None
    mode: str | None = None
    key_fingerprint: str | None = None
    domain: str | None = None
    discovery: Discovery | None = None
    last_observed: bool = False

    def as_json(self) -> dict[str, object]:
        """Return the result as it stands in evidence, without what is absent."""
        fields: dict[str, object] = {
            "scheme": "schemapin.v1",
            "valid": self.valid,
            "error_code": self.error_code,
            "mode": self.mode,
            "key_fingerprint": self.key_fingerprint,
            "domain": self.domain,
        }
        if self.discovery is not None:
            fields["discovery"] = {
                "origin": self.discovery.origin.as_json(),
                "status": "last_observed" if self.last_observed else "observed",
            }
        return {name: value for name, value in fields.items() if value is not None}


def check_signature(
    controls: Controls, seen: Seen, tool_name: str, time_us: int, *, pinned: bool = True
) -> SignatureResult | None:
    """Return what is to be said of a tool's signature at a time, ``None`` where there is nothing.

    Args:
        controls: the control facts of the server.
        seen: the observation that the tool came with.
        tool_name: the tool.
        time_us: event time, microseconds since the epoch.
        pinned: whether the key must be the one used first or accepted; not where that is being found out.
    """
    signatures = controls.signatures.get(seen.signatures) if seen.signatures else None
    entry = signatures.tools.get(tool_name) if signatures else None
    if signatures is None or entry is None:
        return _missing(controls, tool_name, time_us)
    domain, _, schema_digest = entry
    known = sorted(name for name in controls.discoveries if controls.discoveries_as_of(name, time_us))
    if domain is None:
        if len(known) != 1:
            return SignatureResult(valid=False, error_code=ErrorCode.KEY_NOT_FOUND)
        domain = known[0]
    if known and domain not in known:
        return SignatureResult(valid=False, error_code=ErrorCode.DOMAIN_MISMATCH, domain=domain)
    document, last_observed = _document_as_of(controls, domain, time_us)
    if document is None or document.status != "observed":
        return SignatureResult(valid=False, error_code=_undiscovered(document, last_observed), domain=domain)
    key = str(document.fingerprint)
    mode = _mode(controls, seen, key, tool_name)
    error: str | None = None
    if key in document.revoked or _is_revoked(controls, key, time_us):
        error = ErrorCode.KEY_REVOKED
    elif pinned and (wanted := pinned_key(controls, domain, tool_name, time_us)) is not None and wanted != key:
        error = ErrorCode.KEY_PIN_MISMATCH
    elif schema_digest is None:
        error = ErrorCode.SCHEMA_CANONICALIZATION_FAILED
    elif mode is None:
        error = ErrorCode.SIGNATURE_INVALID
    return SignatureResult(
        valid=error is None,
        error_code=error,
        mode=mode,
        key_fingerprint=key,
        domain=domain,
        discovery=document,
        last_observed=last_observed,
    )


def pinned_key(controls: Controls, domain: str, tool_name: str, time_us: int) -> str | None:
    """Return the key that a tool of a domain is pinned to at a time: the accepted one, else the first one used.

    Args:
        controls: the control facts of the server.
        domain: the domain.
        tool_name: the tool.
        time_us: event time, microseconds since the epoch.
    """
    for decision in reversed(controls.key_acts_as_of(time_us)):
        is_ours = decision.domain == domain and decision.tool_name in (None, tool_name)
        if decision.act == "accept" and is_ours:
            return decision.fingerprint
    first = controls.first_uses.get((domain, tool_name))
    return first.fingerprint if first is not None and first.time_us <= time_us else None


def first_uses_since(server: ServerBindings, since: Position) -> dict[tuple[str, str], FirstUse]:
    """Return the first matching use of a key for each tool and domain, of those made at or after a position.

    Args:
        server: everything known of the server.
        since: uses before it stand already.
    """
    found: dict[tuple[str, str], FirstUse] = {}
    for seen, position, _ in moments(server, since):
        signatures = server.controls.signatures.get(seen.signatures) if seen.signatures else None
        for tool_name in signatures.tools if signatures else ():
            result = check_signature(server.controls, seen, tool_name, position[0], pinned=False)
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


def revised_first_uses(server: ServerBindings, since: Position) -> Iterator[FirstUse]:
    """Yield the first uses that a change at a position makes new or other than they stood, in a fixed order.

    Args:
        server: everything known of the server, the change included.
        since: where the change stands.
    """
    standing = server.controls.first_uses
    for place, use in sorted(first_uses_since(server, since).items()):
        known = standing.get(place)
        if known is None or (known.position >= since and known != use):
            yield use


def _missing(controls: Controls, tool_name: str, time_us: int) -> SignatureResult | None:
    for domain in sorted(controls.discoveries):
        if pinned_key(controls, domain, tool_name, time_us) is not None:
            return SignatureResult(valid=False, error_code=MISSING, domain=domain)
    return None


def _document_as_of(controls: Controls, domain: str, time_us: int) -> tuple[Discovery | None, bool]:
    """Return the document in force at a domain, and whether there was a failure to read it since."""
    failed = False
    for found in reversed(controls.discoveries_as_of(domain, time_us)):
        if found.status != "fetch_failed":
            return found, failed
        failed = True
    return None, failed


_UNUSABLE = {
    "invalid": ErrorCode.DISCOVERY_INVALID,
    "no_key": ErrorCode.KEY_NOT_FOUND,
    "other_domain": ErrorCode.DOMAIN_MISMATCH,
}


def _undiscovered(document: Discovery | None, failed: bool) -> ErrorCode:
    if document is not None:
        return _UNUSABLE[document.status]
    return ErrorCode.DISCOVERY_FETCH_FAILED if failed else ErrorCode.KEY_NOT_FOUND


def _is_revoked(controls: Controls, key: str, time_us: int) -> bool:
    for decision in reversed(controls.key_acts_as_of(time_us)):
        if decision.fingerprint == key:
            return decision.act == "revoke"
    return False


def _mode(controls: Controls, seen: Seen, key: str, tool_name: str) -> str | None:
    checked = controls.checked.get((str(seen.signatures), key))
    return checked.modes.get(tool_name) if checked else None
