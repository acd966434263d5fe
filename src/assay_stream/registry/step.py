"""What one record changes in a partition of the registry: facts, each applied as it is published, and what follows.

State changes by ``publish`` and ``retract`` of a ``Step`` alone: a restart restores what was there. Pins, signatures,
offers and verdicts are functions of the state. A step creates a ``Transition``, publishes its facts, and then asks what
is different. Nothing is evaluated that the record cannot change.

Verdicts: the stream cannot block a call that already happened. It keeps the current verdict per tool in a compacted
topic, with the pins it rests on, so that a proxy can also check the definition that it sees itself against them.

A signature arrives in the snapshot's ``signatures`` member, by tool (the base64 text, or an object with
``signature``, ``domain`` and the additions of SchemaPin 1.4), or within the tool itself, where its server put it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

import orjson

from assay_stream.bindings.as_of import start_of
from assay_stream.bindings.checks import evaluate_one, evaluate_pins, new_findings, revised_first_uses
from assay_stream.bindings.controls import ACTION_WEIGHT, STATUS_WEIGHT, PinsInForce, check_pins
from assay_stream.bindings.offers import Offer, Offers
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.state import Bindings
from assay_stream.bindings.timeline import AFTER_ALL_US
from assay_stream.canonical.digest import canonicalize, jcs_digest
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.control import (
    DOMAIN_PATTERN,
    Checked,
    ControlDecision,
    Discovery,
    DiscoveryStatus,
    Pin,
    PinResult,
    Policy,
    Signatures,
    Signed,
    signature_rows,
)
from assay_stream.model.evidence import Producer
from assay_stream.model.facts import Fact, Progress, Rejection, Seen, encode_key, encode_value
from assay_stream.model.fields import LeftOut
from assay_stream.model.finding import Finding
from assay_stream.model.observation import SnapshotData
from assay_stream.model.record import Output, Record, Role
from assay_stream.model.wire import FactKey
from assay_stream.registry.analysis import Analysis
from assay_stream.registry.name_claims import claims_between, claims_by_snapshot, offered
from assay_stream.schemes.fingerprint import Fingerprint
from assay_stream.schemes.hangar import Action, DigestPolicy
from assay_stream.schemes.schemapin import (
    PublicKey,
    claims_of,
    parse_revocations,
    parse_well_known,
    plain_domain,
    verify_digest,
)
from assay_stream.work import WorkExhaustedError

Verdicts = dict[str | None, bytes]
"""Value bytes by tool; ``None`` stands for the server's tools that have no verdict of their own."""


class Registry:
    """The state of one registry partition; it changes only by the facts that are published.

    Args:
        producer: the producer named in the evidence of changes.
        partitions: number of partitions of the snapshot topic, ``None`` if unknown.
    """

    def __init__(self, *, producer: Producer, limits: Limits = DEFAULT_LIMITS, partitions: int | None = None) -> None:
        self.producer = producer
        self.limits = limits
        self.partitions = partitions
        self.bindings = Bindings(keep_definitions=True)
        self.offers = Offers(limits)
        self._verdicts: dict[str, Verdicts] = {}
        """Content of the verdict topic for each server evaluated so far; it follows from the bindings."""

    def verdicts(self, server_id: str, server: ServerBindings) -> Verdicts:
        found = self._verdicts.get(server_id)
        return self.revised_verdicts(server_id, server) if found is None else found

    def forget(self, server_id: str) -> None:
        """Drop a server whose facts have all been retracted."""
        self.bindings.drop(server_id)
        self._verdicts.pop(server_id, None)

    def revised_verdicts(self, server_id: str, server: ServerBindings) -> Verdicts:
        """Return what the verdict topic must hold for a server now, and remember it as published."""
        found = self._verdicts[server_id] = verdicts_of(server_id, server)
        return found


class Step:
    """What one input record changes in a registry, in order: each fact is applied as it is published.

    Args:
        record: the input record.

    Attributes:
        outputs: what to publish for it.
    """

    def __init__(self, registry: Registry, record: Record) -> None:
        self.registry, self.record = registry, record
        self.bindings, self.limits = registry.bindings, registry.limits
        self.outputs: list[Output] = []

    def publish(self, fact: Fact) -> None:
        partition, timestamp_ms = self.record.origin.partition, self.record.timestamp_ms
        self.bindings.apply(fact, partition=partition)
        self.outputs.append(fact_output(fact, partition=partition, timestamp_ms=timestamp_ms))

    def retract(self, *keys: FactKey) -> None:
        partition = self.record.origin.partition
        for key in keys:
            self.bindings.forget(key, partition=partition)
            self.outputs.append(_binding(key, None, "retracted", partition, self.record.timestamp_ms))


def fact_output(fact: Fact, *, partition: int, timestamp_ms: int = 0) -> Output:
    return _binding(fact.key(), encode_value(fact), fact.fact_kind, partition, timestamp_ms)


def _binding(key: FactKey, value: bytes | None, what: str, partition: int, timestamp_ms: int) -> Output:
    return Output(Role.BINDINGS, encode_key(key), value, (), timestamp_ms, partition, f"fact:{what}")


def progress(*, topic: str, partition: int, position: int) -> Output:
    return fact_output(Progress(topic=topic, partition=partition, position=position), partition=partition)


def verdicts_of(server_id: str, server: ServerBindings) -> Verdicts:
    """Return the current verdict on every tool of a server that has a pin or a policy.

    Of several definitions in force, the most severe result counts for the tool.
    """
    controls = server.controls
    if not (controls.pins or controls.policies):
        return {}
    verdicts: Verdicts = {}
    in_force: dict[str, list[Fingerprint | None]] = {}
    for digest in sorted(server.fleet.catalogues_in_force()):
        catalogue = server.catalogues[digest]
        for name, full in catalogue.tools.items():
            in_force.setdefault(name, []).append(None if full is None else server.fingerprint_of(catalogue, full))
    general = controls.policy_as_of("", AFTER_ALL_US)
    names = {*in_force, *controls.pins, *filter(None, controls.policies)}
    for name in sorted(names):
        pins = controls.pins_as_of(name, AFTER_ALL_US)
        policy = controls.policy_as_of(name, AFTER_ALL_US)
        if not pins and policy is None:
            continue
        found = in_force.get(name, [None])
        results = [check_pins(pins, print_, listed=name in in_force, policy=policy) for print_ in found]
        worst = max(results, key=_gravity)
        verdicts[name] = _value(server_id, name, worst, pins, policy)
    if general is not None:
        unknown = check_pins(PinsInForce(approved={}, rejected={}), None, policy=general)
        verdicts[None] = _value(server_id, None, unknown, None, general)
    return verdicts


def changed_verdicts(record: Record, server_id: str, before: Verdicts, after: Verdicts) -> Iterator[Output]:
    for name in sorted(before.keys() | after.keys(), key=lambda name: (name is not None, name or "")):
        value = after.get(name)
        if value != before.get(name):
            yield Output(
                role=Role.VERDICTS,
                key=verdict_key(server_id, name),
                value=value,
                timestamp_ms=record.timestamp_ms,
                partition=record.origin.partition,
                label="verdict",
            )


def verdict_key(server_id: str, tool_name: str | None) -> bytes:
    return orjson.dumps([server_id, tool_name])


def _gravity(result: PinResult) -> tuple[int, int, str, str]:
    """Order results by action, then independently of the order of arrival."""
    action = -1 if result.action is None else ACTION_WEIGHT[result.action]
    return (action, STATUS_WEIGHT[result.status], result.scheme or "", result.observed or "")


def _value(
    server_id: str, tool_name: str | None, result: PinResult, pins: PinsInForce | None, policy: DigestPolicy | None
) -> bytes:
    content: dict[str, Any] = {"server_id": server_id, **result.as_json()}
    content["action"] = (result.action or Action.ALLOW).value
    if tool_name is not None:
        content["tool_name"] = tool_name
    if pins is not None:
        content["pins"] = dict(pins.approved)
        content["rejected"] = {scheme: list(values) for scheme, values in pins.rejected.items()}
    if policy is not None:
        content["policy"] = policy_text(policy)
    return canonicalize(content)


def policy_text(policy: DigestPolicy | None) -> dict[str, str] | None:
    return None if policy is None else {"enforcement": policy.enforcement, "unknown": policy.unknown}


SCHEME = "schemapin.v1"

_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")
_DOMAIN = re.compile(DOMAIN_PATTERN)

_UNREADABLE = ""
"""Stands for an invalid signature or domain: it is present, and matches nothing."""


def signatures_of(data: SnapshotData, offer: Offer, limits: Limits) -> Signatures | None:
    """Return the signatures that came with a snapshot, ``None`` where none did.

    A name with several definitions has no signature: it is unknown which of them it is for.
    """
    stated = data.signatures or {}
    tools: dict[str, Signed] = {}
    for name, full in offer.tools.items() if stated or offer.carried else ():
        if full is None:
            continue
        given: Any = stated.get(name)
        domain = None
        claims: dict[str, str] = {}
        if isinstance(given, dict):
            domain = given.get("domain")
            claims = claims_of(given)
            given = given.get("signature", _UNREADABLE)
        if given is None:
            given = offer.carried.get(name)
        if given is not None:
            is_readable = isinstance(given, str) and len(given) <= limits.signature_chars_max and given.isascii()
            digest = offer.fingerprints[full].schemes.get(SCHEME)
            tools[name] = Signed(_domain(domain), given if is_readable else _UNREADABLE, digest, claims)
    if not tools:
        return None
    covered = jcs_digest(signature_rows(tools))
    return Signatures(server_id=data.server_id, digest=str(covered), tools=tools)


def check_against(signatures: Signatures, document: Discovery) -> Checked:
    key = PublicKey.from_pem(str(document.public_key_pem))
    modes: dict[str, str] = {}
    for name, (_, signature, digest, _) in signatures.tools.items():
        if digest is None:
            continue
        mode = verify_digest(bytes.fromhex(digest.removeprefix("sha256:")), signature, key)
        if mode is not None:
            modes[name] = mode.value
    return Checked(
        server_id=signatures.server_id, signatures=signatures.digest, fingerprint=str(document.fingerprint), modes=modes
    )


def read_document(
    document: Mapping[str, Any] | None, domain: str, revocations: Mapping[str, Any] | None = None
) -> tuple[DiscoveryStatus, PublicKey | None, tuple[str, ...]]:
    """Return the status of a key document, its key, and the keys that it revokes."""
    revoked: frozenset[str] = frozenset()
    try:
        found = parse_well_known(document or {})
        claimed = [found.domain]
        if revocations is not None:
            listed = parse_revocations(revocations)
            revoked = listed.revoked_keys
            claimed.append(listed.domain)
    except InputError:
        return "invalid", None, ()
    if any(name is not None and plain_domain(name) != domain for name in claimed):
        return "other_domain", None, ()
    try:
        key = PublicKey.from_pem(found.public_key_pem)
    except InputError:
        return "no_key", None, ()
    # Anything else in the document is the domain's own text and names no key: it is not published.
    return "observed", key, tuple(sorted(filter(_FINGERPRINT.fullmatch, found.revoked_keys | revoked)))


def _domain(given: Any) -> str | None:
    if given is None:
        return None
    name = plain_domain(given) if isinstance(given, str) else _UNREADABLE
    return name if _DOMAIN.fullmatch(name) else _UNREADABLE


_UNITS_PER_SIGNATURE = 1_000
"""Units for checking a signature against a key."""


class Transition:
    """The state of one server before a record, to be compared with its state afterwards.

    Args:
        by: what the record states: an observation, a refusal, or a decision. One about a tool's pin or policy changes
            no other tool.
        analysis: the budget of the record. Faults in its own observation are always found; changes
            elsewhere are paid from the budget.
        observer_id: only what this observer saw can change, ``None`` for every observer.
    """

    def __init__(
        self,
        step: Step,
        server: ServerBindings,
        by: Seen | Rejection | ControlDecision,
        analysis: Analysis,
        *,
        observer_id: str | None = None,
    ) -> None:
        self._step, self._server, self._by, self._analysis = step, server, by, analysis
        # The first position at which the record can change a finding.
        self._since = start_of(by.time_us)
        self._own, self._observer_id = by if isinstance(by, Seen) else None, observer_id
        self._pin = by if isinstance(by, Pin) else None
        server.fleet.forget_changes()
        self._verdicts = step.registry.verdicts(by.server_id, server)
        self._in_force = server.fleet.catalogues_in_force()
        self._wrong = self._evaluate()
        self.found: set[Finding] = set()
        self._offered = {} if self._pin is None else offered(server, self._pin.tool_name)

    def findings(self) -> list[Output]:
        """Return the faults in pins and signatures that are new with the record, in the order of event time."""
        before, after = self._wrong, self._evaluate()
        if before is None or after is None:
            before, after = set(), set() if self._own is None else evaluate_one(self._server, self._own)
        self.found = after - before
        return new_findings(self.found)

    def claims(self, *, had_complete: bool = False) -> Iterable[Output]:
        if self._own is not None:
            claims = claims_by_snapshot(self._server, self._own, self._analysis, had_complete=had_complete)
        elif self._pin is not None:
            pin, after = self._pin, offered(self._server, self._pin.tool_name)
            claims = claims_between(self._offered, after, pin.server_id, pin.position)
        else:
            return ()
        return (claim.output() for claim in claims)

    def publish_verdicts(self) -> None:
        if isinstance(self._by, Pin | Policy) or self._server.fleet.catalogues_in_force() != self._in_force:
            after = self._step.registry.revised_verdicts(self._by.server_id, self._server)
            self._step.outputs += changed_verdicts(self._step.record, self._by.server_id, self._verdicts, after)

    def publish_cut(self) -> None:
        self._step.outputs += [finding.output() for finding in self._analysis.finding(self._by)]

    def check_signatures(self, signed: Iterable[Signatures]) -> None:
        """Check sets of signatures against every key of the server that they were not yet checked against."""
        documents = sorted(self._server.controls.key_documents().items())
        for signatures, (key, document) in product(list(signed), documents):
            if (signatures.digest, key) in self._server.controls.checked:
                continue
            # If the budget is too small, the next discovery continues from here.
            if not self._analysis.pays(_UNITS_PER_SIGNATURE * len(signatures.tools), LeftOut.SIGNATURES):
                return
            self._step.publish(check_against(signatures, document))

    def revise_first_uses(self) -> None:
        """Publish which keys were used first, where the record changes that."""
        if not self._server.controls.discoveries:
            return
        try:
            undone, revised = revised_first_uses(self._server, self._since, self._analysis.work, self._own)
        except WorkExhaustedError:
            self._analysis.left_out.add(LeftOut.SIGNATURES)
            return
        self._step.retract(*undone)
        for use in revised:
            self._step.publish(use)

    def _evaluate(self) -> set[Finding] | None:
        try:
            return evaluate_pins(
                self._server,
                self._since,
                observer_id=self._observer_id,
                tool_name=self._by.tool_name if isinstance(self._by, Pin | Policy) else None,
                work=self._analysis.work,
                own=self._own,
            )
        except WorkExhaustedError:
            self._analysis.left_out.add(LeftOut.HISTORY)
            return None
