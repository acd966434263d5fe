"""A snapshot, or the announcement of one: facts, definitions, findings, resolutions, claims and verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

from assay_stream.bindings.as_of import start_of
from assay_stream.bindings.checks import with_reasons
from assay_stream.bindings.offers import ItemOffer, Offer, pack
from assay_stream.bindings.server import ServerBindings
from assay_stream.canonical.digest import Canonicalized, jcs_digest
from assay_stream.errors import InputError
from assay_stream.model.cloudevents import check_observer, event_time_us
from assay_stream.model.control import Signatures
from assay_stream.model.facts import Catalogue, Seen, ToolFact, definition_record
from assay_stream.model.fields import Subject
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import RELEASE_KINDS, Kind
from assay_stream.model.observation import SnapshotEvent
from assay_stream.model.record import Record, murmur2_partition
from assay_stream.registry.allowance import Ration, change_of
from assay_stream.registry.baselines import Baseline, baselines_for, finding_in
from assay_stream.registry.ledger import Registry, Step
from assay_stream.registry.list_drift import compare, compare_items, first_look
from assay_stream.registry.list_health import cached_long, late_finding, never_complete, resolved_by_complete_list
from assay_stream.registry.name_claims import offers_the_same
from assay_stream.registry.resolution import approved_before, resolutions, resolved_by_signature, resolved_by_snapshot
from assay_stream.registry.retention import fold, pack_repeats
from assay_stream.registry.transition import Transition, signatures_of


def apply_snapshot(step: Step, event: SnapshotEvent) -> None:
    """Apply a snapshot; one that was published before changes nothing.

    Raises:
        InputError: if a definition is beyond the limits, a hidden tool is not in the list, or the observer is not
            the one that the header names.
    """
    registry, record = step.registry, step.record
    data, limits = event.data, registry.limits
    attributed = check_observer(record, data.observer_id, limits=limits)
    offer, lists = registry.offers.of(data), registry.offers.items_of(data)
    signatures = signatures_of(data, offer, limits)
    server = registry.bindings.server(data.server_id)
    seen = _observation(record, event, offer, lists, signatures, attributed=attributed)
    if _is_repetition(server, seen):
        return
    catalogue = Catalogue(
        server_id=data.server_id,
        digest=offer.digest,
        server_scoped=data.server_scoped,
        tools=offer.tools,
        ambiguous=offer.ambiguous,
    )
    # Before: what differs from earlier lists, which alerts that resolves, and how pins, offers and verdicts are.
    baseline, analysed = baselines_for(server, seen)
    findings, ration = _compare(step, server, analysed, catalogue, seen, offer, lists.values())
    findings += cached_long(seen, data.ttl_ms, limits)
    seen = replace(seen, rationed=ration.is_cut_short)
    ended = [
        *resolved_by_snapshot(server, baseline, catalogue, seen, ration.analysis),
        *resolved_by_complete_list(server, seen, limits),
    ]
    is_same = offers_the_same(server, catalogue, seen)
    observer_id = None if _concerns_others(server, seen) else seen.observer_id
    transition = Transition(step, server, seen, ration.analysis, observer_id=observer_id)
    # Apply: in the order in which facts refer to each other.
    _publish_offer(step, server, catalogue, offer)
    for items in lists.values():
        _publish_items(step, server, seen.server_id, items)
    if signatures is not None and signatures.digest not in server.controls.signatures:
        step.publish(signatures)
        transition.check_signatures([signatures])
    step.publish(seen)
    transition.revise_first_uses()
    # After: the findings that are new.
    wrong = transition.findings()
    # Before folding, so that a list that is folded now does not seem to be in a run.
    pack_repeats(step, server.observers[seen.observer_id], seen)
    fold(step, server, seen)
    findings = with_reasons(findings, transition.found)
    step.outputs += [
        finding.output() for finding in (findings if baseline is None else _of_one_release(findings, seen))
    ]
    step.outputs += wrong
    ended += resolutions(approved_before(server, baseline, catalogue), "decided", seen, None)
    ended += resolved_by_signature(server, catalogue, seen, ration.analysis)
    step.outputs += [resolution.output() for resolution in ended]
    if not is_same:
        step.outputs += transition.claims(had_complete=baseline is not None and baseline.complete)
    transition.publish_verdicts()
    step.outputs += [finding.output() for finding in ration.findings()]
    left = ration.charge()
    if left is not None:
        step.publish(left)


def _observation(
    record: Record,
    event: SnapshotEvent,
    offer: Offer,
    lists: Mapping[Subject, ItemOffer],
    signatures: Signatures | None,
    *,
    attributed: bool,
) -> Seen:
    data = event.data
    stated = {subject: items.digest for subject, items in lists.items()}
    return Seen(
        server_id=data.server_id,
        observer_id=data.observer_id,
        origin=record.origin,
        time_us=event_time_us(event),
        snapshot_id=data.snapshot_id,
        catalogue=offer.digest,
        completeness=data.completeness,
        auth_context=None if data.auth_context is None else jcs_digest(data.auth_context).hex,
        signatures=None if signatures is None else signatures.digest,
        prompts=stated.get(Subject.PROMPT),
        templates=stated.get(Subject.TEMPLATE),
        instructions=stated.get(Subject.INSTRUCTIONS),
        hidden=_hidden(event, offer),
        attributed=attributed,
    )


def _hidden(event: SnapshotEvent, offer: Offer) -> tuple[tuple[str, str], ...]:
    """Return the tools hidden from the client, each of which the server must have offered under that name."""
    for index, tool in enumerate(event.data.hidden or ()):
        named = offer.definitions[tool.digest].get("name") if tool.digest in offer.definitions else None
        if tool.digest not in offer.definitions or (named if isinstance(named, str) else "") != tool.name:
            raise InputError(
                "hidden_not_offered", "no tool of the list has this name and digest", path=f"$.data.hidden[{index}]"
            )
    return tuple(sorted({(tool.name, tool.digest) for tool in event.data.hidden or ()}))


def _compare(
    step: Step,
    server: ServerBindings,
    analysed: Baseline | None,
    catalogue: Catalogue,
    seen: Seen,
    offer: Offer,
    lists: Iterable[ItemOffer],
) -> tuple[list[Finding], Ration]:
    """Return the findings that were not analysed before, and what they cost."""
    limits = step.limits
    change = change_of(server, analysed, catalogue, seen, lists)
    ration = Ration(server, seen, step.record.timestamp_ms, change, limits)
    compared = chain(
        compare(server, analysed, catalogue, seen, offer, ration.analysis),
        *(compare_items(server, items, seen, ration.analysis, _named_beside(offer, lists)) for items in lists),
    )
    findings = [*first_look(server, catalogue, seen, lists), *_misrouted(step.registry, seen)]
    findings += [*never_complete(server, seen, limits), *ration.reported(compared)]
    ration.compared()
    late = late_finding(server, seen, limits)
    return findings if late is None else [*findings, late], ration


def _of_one_release(findings: list[Finding], seen: Seen) -> list[Finding]:
    """Return the findings; if they are about several definitions, with the list that makes them one release."""
    if len({(each.tool_name, each.item_name) for each in findings if each.kind in RELEASE_KINDS}) < 2:
        return findings
    release = jcs_digest([seen.catalogue, seen.prompts, seen.templates, seen.instructions]).hex
    return [replace(each, release=release) if each.kind in RELEASE_KINDS else each for each in findings]


def _named_beside(offer: Offer, lists: Iterable[ItemOffer]) -> Iterable[str]:
    """Return the names that prompts, templates and instructions may mention as their server's own."""
    beside = (item.get("name") for listed in lists for item in listed.definitions.values())
    return chain(offer.tools, (name for name in beside if isinstance(name, str)))


def _publish_offer(step: Step, server: ServerBindings, catalogue: Catalogue, offer: Offer) -> None:
    for full, print_ in offer.fingerprints.items():
        if (catalogue.server_scoped, full) not in server.tools:
            definition = Canonicalized(offer.definitions[full])
            fact = ToolFact.of(
                server_id=catalogue.server_id,
                server_scoped=catalogue.server_scoped,
                fingerprint=print_,
                packed=pack(definition),
            )
            step.publish(fact)
            step.outputs.append(definition_record(step.record, full, definition))
    if catalogue.digest not in server.catalogues:
        step.outputs += [definition_record(step.record, full, tool) for full, tool in offer.nameless.items()]
        step.publish(catalogue)


def _publish_items(step: Step, server: ServerBindings, server_id: str, items: ItemOffer) -> None:
    if (items.subject, items.digest) in server.item_lists:
        return
    for fact in items.item_facts(server_id):
        if (fact.subject, fact.full) not in server.items:
            step.publish(fact)
            if fact.packed is not None:
                step.outputs.append(definition_record(step.record, fact.full, items.definitions[fact.full]))
    step.publish(items.as_fact(server_id))


def _misrouted(registry: Registry, seen: Seen) -> Iterable[Finding]:
    if registry.partitions is None:
        return
    if murmur2_partition(seen.server_id.encode(), registry.partitions) != seen.origin.partition:
        yield finding_in(seen, Kind.SERVER_MISROUTED)


def _concerns_others(server: ServerBindings, seen: Seen) -> bool:
    """Return True if an observation can change what is found elsewhere: by a first use, or by being late."""
    return bool(server.controls.discoveries or server.controls.positions_between(start_of(seen.time_us), None))


def _is_repetition(server: ServerBindings, seen: Seen) -> bool:
    """Return True if a snapshot was published before: same observer, id, time and content.

    It counts again where an announcement of the same time was published again before it.
    """
    own = server.observers.get(seen.observer_id)
    return own is not None and any(
        replace(old, origin=seen.origin, rationed=False) == seen
        and server.endings.announced(seen.observer_id, old, old.time_us) is None
        for old in own.at(seen.time_us)
    )
