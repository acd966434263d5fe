"""A snapshot, or the announcement of one: facts, definitions, findings, resolutions, claims and verdicts.

Never complete, so that nothing can be called removed (by counts of kept observations alone):

1. An observer's lists count as never complete after ``incomplete_lists_max`` of them in a row, or after as many as are
   kept if older ones were folded away.
2. A server's do after as many lists by any observers if none was ever complete: proxies may change their ids with
   every session.
3. A complete list resolves it: for its observer, or for the fleet if it is the first one.

Late, compared with what the registry had applied before, not with a clock: see ``late_finding``.

Announced:

1. Between two lists of an observer the earliest announcement is a fact. Further ones change no answer.
2. A further one is not kept: a list dated between the two that is published after both keeps its force.
3. Announcements that go on for too long, or come too often, without a list that lasts are found once, until a list
   lasts (``Announcement.overdue``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any

from assay_stream.bindings.as_of import is_overdue, start_of
from assay_stream.bindings.checks import with_reasons
from assay_stream.bindings.offers import ItemOffer, Offer, pack
from assay_stream.bindings.server import ServerBindings
from assay_stream.canonical.digest import Canonicalized, jcs_digest
from assay_stream.errors import InputError
from assay_stream.limits import Limits
from assay_stream.model.cloudevents import check_observer, event_time_us
from assay_stream.model.control import Signatures
from assay_stream.model.facts import Announcement, Catalogue, Seen, ToolFact, definition_record
from assay_stream.model.fields import Subject
from assay_stream.model.finding import Finding, Resolution, uid_of
from assay_stream.model.kinds import RELEASE_KINDS, Kind
from assay_stream.model.observation import ListChangedEvent, SnapshotEvent
from assay_stream.model.record import Position, Record, murmur2_partition
from assay_stream.registry.analysis import Baseline, Ration, baselines_for, change_of, finding_in
from assay_stream.registry.list_drift import ToolDrift, compare_items, first_look
from assay_stream.registry.name_claims import offers_the_same
from assay_stream.registry.resolution import approved_before, resolutions, resolved_by_signature, resolved_by_snapshot
from assay_stream.registry.retention import fold, fold_unlisted, pack_repeats
from assay_stream.registry.step import Step, Transition, signatures_of


def never_complete(server: ServerBindings, seen: Seen, limits: Limits) -> Iterator[Finding]:
    if seen.completeness == "complete":
        return
    others = limits.incomplete_lists_max - 1
    if _is_run(server, seen, others) or _is_fleets(server, others):
        yield finding_in(seen, Kind.LISTS_NEVER_COMPLETE)


def resolved_by_complete_list(server: ServerBindings, seen: Seen, limits: Limits) -> list[Resolution]:
    if seen.completeness != "complete":
        return []
    for_all = _is_fleets(server, limits.incomplete_lists_max)
    if not for_all and not _is_run(server, seen, limits.incomplete_lists_max):
        return []
    ended = uid_of(Kind.LISTS_NEVER_COMPLETE, seen.server_id, None, None, None)
    return resolutions([ended], "list_completed", seen, None if for_all else seen.observer_id)


def _is_run(server: ServerBindings, seen: Seen, length: int) -> bool:
    timeline = server.observers.get(seen.observer_id)
    if timeline is None:
        return False
    run = 0
    for old in timeline.back_from(seen.position):
        if old.completeness == "complete":
            return False
        run += 1
        if run >= length:
            return True
    return run > 0 and timeline.horizon_us is not None


def _is_fleets(server: ServerBindings, length: int) -> bool:
    return not server.observations.any_complete and len(server.observations) >= length


def cached_long(seen: Seen, ttl_ms: int | None, limits: Limits) -> Iterator[Finding]:
    """Yield a finding if a list may be cached for longer than the bound (``ttlMs``, MCP 2026-07-28, SEP-2549)."""
    if ttl_ms is not None and ttl_ms > limits.list_ttl_ms_max:
        yield finding_in(seen, Kind.LIST_CACHED_LONG)


def late_finding(server: ServerBindings, seen: Seen, limits: Limits) -> Iterator[Finding]:
    """Yield a finding if a list was late and changed something.

    A list is late where its event time is further than the bound before the latest applied for its server by any
    observer. It changes nothing where its observer's timeline gave the same tools for its time. The finding is dated by
    that latest time, at which the lateness showed: a backlog is found at one time.
    """
    own = server.observers.get(seen.observer_id)
    in_force = None if own is None else own.as_of(seen.time_us)
    if in_force is not None and in_force.catalogue == seen.catalogue:
        return
    latest_us = server.observations.latest_us
    late_ms = (latest_us - seen.time_us) // 1_000
    if late_ms > limits.late_limit_ms:
        yield finding_in(seen, Kind.SNAPSHOT_LATE, time_us=latest_us, late_ms=late_ms)


def apply_announcement(step: Step, event: ListChangedEvent) -> None:
    """Apply the announcement of a changed list.

    Raises:
        InputError: if the observer is not the one that the header names.
    """
    data, origin, limits = event.data, step.record.origin, step.limits
    check_observer(step.record, data.observer_id, limits=limits)
    server = step.bindings.server(data.server_id)
    announcement = Announcement(
        server_id=data.server_id, observer_id=data.observer_id, origin=origin, time_us=event_time_us(event)
    )
    announced = server.endings.announcements_of(data.observer_id)
    index = bisect_right(announced, announcement.position, key=attrgetter("position"))
    earlier, later = (announced[index - 1] if index else None), next(iter(announced[index:]), None)
    if earlier is not None and not _lists_between(server, earlier, announcement.position):
        if not earlier.overdue and is_overdue(server, earlier, announcement.time_us, limits):
            step.publish(replace(earlier, overdue=True))
            step.outputs.append(finding_in(announcement, Kind.LIST_CHANGE_UNANSWERED).output())
        return
    overdue = is_overdue(server, announcement, announcement.time_us, limits)
    step.publish(replace(announcement, overdue=overdue))
    if later is not None and not _lists_between(server, announcement, later.position):
        step.retract(later.key())
    fold_unlisted(step, server)
    if overdue and not (earlier is not None and earlier.overdue):
        step.outputs.append(finding_in(announcement, Kind.LIST_CHANGE_UNANSWERED).output())


def _lists_between(server: ServerBindings, earlier: Announcement, until: Position) -> bool:
    timeline = server.observers.get(earlier.observer_id)
    answer = None if timeline is None else timeline.first_after(earlier.position)
    return answer is not None and answer.position < until


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
        nameless=tuple(sorted(offer.nameless)),
    )
    # Before: what differs from earlier lists, which alerts that resolves, and how pins, offers and verdicts are.
    baseline, analysed = baselines_for(server, seen)
    findings, ration = _compare(step, server, analysed, catalogue, seen, offer, lists.values())
    findings += cached_long(seen, data.ttl_ms, limits)
    seen = replace(seen, rationed=ration.is_cut_short)
    ended = [
        *resolved_by_snapshot(server, baseline, catalogue, seen, ration),
        *resolved_by_complete_list(server, seen, limits),
    ]
    is_same = offers_the_same(server, catalogue, seen)
    # By a first use, or by being late, it can change what is found elsewhere.
    concerns_others = server.controls.discoveries or server.controls.positions_between(start_of(seen.time_us), None)
    observer_id = None if concerns_others else seen.observer_id
    transition = Transition(step, server, seen, ration, observer_id=observer_id)
    # Apply: in the order in which facts refer to each other.
    _publish_offer(step, server, catalogue, offer)
    for items in lists.values():
        if (items.subject, items.digest) not in server.item_lists:
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
    ended += resolved_by_signature(server, catalogue, seen, ration)
    step.outputs += [resolution.output() for resolution in ended]
    if not is_same:
        step.outputs += transition.claims(had_complete=baseline is not None and baseline.complete)
    transition.publish_verdicts()
    transition.publish_cut()
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
    listed: dict[str, Any] = {subject.plural: items.digest for subject, items in lists.items()}
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
        hidden=_hidden(event, offer),
        attributed=attributed,
        **listed,
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
    limits, partitions = step.limits, step.registry.partitions
    change = change_of(server, analysed, catalogue, seen, lists)
    ration = Ration(server, seen, step.record.timestamp_ms, change, limits)
    # Prompts, templates and instructions may mention all of these as their server's own.
    names = [*offer.tools, *(item.get("name") for listed in lists for item in listed.definitions.values())]
    compared = chain(
        ToolDrift(server, analysed, catalogue, seen, offer, ration).findings(),
        *(compare_items(server, items, seen, ration, names) for items in lists),
    )
    findings = list(first_look(server, catalogue, seen, lists))
    if partitions is not None and murmur2_partition(seen.server_id.encode(), partitions) != seen.origin.partition:
        findings.append(finding_in(seen, Kind.SERVER_MISROUTED))
    findings += [*never_complete(server, seen, limits), *ration.reported(compared)]
    return [*findings, *late_finding(server, seen, limits)], ration


def _of_one_release(findings: list[Finding], seen: Seen) -> list[Finding]:
    subjects = {
        (each.tool_name, each.item_name or each.tool_name or each.after)
        for each in findings
        if each.kind in RELEASE_KINDS
    }
    if len(subjects) < 2:
        return findings
    release = jcs_digest([seen.catalogue, seen.prompts, seen.templates, seen.instructions]).hex
    return [replace(each, release=release) if each.kind in RELEASE_KINDS else each for each in findings]


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
    known = server.catalogues.get(catalogue.digest)
    if known is None or known.nameless != catalogue.nameless:
        step.outputs += [definition_record(step.record, full, tool) for full, tool in offer.nameless.items()]
        step.publish(catalogue)


def _publish_items(step: Step, server: ServerBindings, server_id: str, items: ItemOffer) -> None:
    for fact in items.item_facts(server_id):
        if (fact.subject, fact.full) not in server.items:
            step.publish(fact)
            if fact.packed is not None:
                step.outputs.append(definition_record(step.record, fact.full, items.definitions[fact.full]))
    step.publish(items.as_fact(server_id))


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
