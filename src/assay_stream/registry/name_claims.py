"""Name claims: which server offers which tool name, and which claims take a name that another holds.

No registry task has every server. So each writes what its servers offer into the finding topic, under the skeleton of
the tool name: all claims to names that look alike are in one partition, in one order. The alert stage compares them.

A claim holds for a server as a whole. It is written when the first observer sees a definition, when the last one no
longer does, and when an operator's approval of it comes or goes; a repeated snapshot writes none.

A claim carries a sketch of the server's names, to estimate how much two servers have in common. It holds the least
digests of the names: of two sketches, the least digests of both together are a fair sample of all names of both, and
the share of the sample that is in both sketches estimates the share of common names. Source: A. Broder, On the
resemblance and containment of documents, 1997.

A claim that takes a name is a *shadow*:

1. The first claim to a name by event time holds it; of equal times the lesser server id and name. A server that
   changes a definition keeps its place.
2. The state of a skeleton follows from each server's claims in their order. Their interleaving with those of other
   servers in the log changes nothing.
3. Two servers with one definition under one name are one product, deployed twice.
4. Two names of one server are reported if the newer came after a complete list without it.
5. A server takes a name if it was known without it and has little else in common with any holder of it: mixed
   versions of one product have most of their names in common.
6. A claim beyond the bound is not kept. It is compared with those that are, as the newest of all, so that the bound
   hides nothing; findings about it end with a later claim of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from assay_stream.bindings.server import ServerBindings
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.facts import Catalogue, Seen
from assay_stream.model.fields import LeftOut
from assay_stream.model.finding import Finding, NameClaim, uid_of
from assay_stream.model.kinds import CONFUSABLE_NAME, SAME_NAME, SHADOWING_REASONS, TAKEN_NAME, Kind
from assay_stream.model.record import Position
from assay_stream.registry.analysis import Analysis

_UNITS_PER_NAME = 10
_NAMES_FREE = 1_000
"""Names of a server that cost nothing: sooner or later each observer's upgrade ends a claim."""

OfferedClaims = Mapping[tuple[str, str], bool]
"""Tool name and full digest of what any observer is offered, to whether an operator approved it."""


def offers_the_same(server: ServerBindings, catalogue: Catalogue, seen: Seen) -> bool:
    """Return True if a snapshot repeats what its observer last saw, so that there is nothing to compare."""
    own = server.observers.get(seen.observer_id)
    latest = None if own is None else own.latest
    if own is None or latest is None:
        return False
    if latest.position > seen.position:
        # A late list still counts where only incomplete ones came after it.
        return any(known.completeness == "complete" and known.position > seen.position for known in own)
    return latest.catalogue == catalogue.digest and latest.completeness in ("complete", seen.completeness)


def offered(server: ServerBindings, tool_name: str) -> OfferedClaims:
    return {(tool_name, full): server.is_approved(tool_name, full) for full in server.fleet.offers(tool_name)}


def claims_by_snapshot(
    server: ServerBindings, seen: Seen, analysis: Analysis, *, had_complete: bool
) -> Iterator[NameClaim]:
    before: dict[tuple[str, str], bool] = {}
    after: dict[tuple[str, str], bool] = {}
    for (name, full), is_offered in server.fleet.changes():
        (after if is_offered else before)[name, full] = server.is_approved(name, full)
    names = server.fleet.names_offered_before() if before or after else set[str]()
    if analysis.pays(_UNITS_PER_NAME * max(0, len(names) - _NAMES_FREE), LeftOut.NAME_CLAIMS):
        yield from claims_between(before, after, seen.server_id, seen.position, had_complete=had_complete, names=names)


def claims_between(
    before: OfferedClaims,
    after: OfferedClaims,
    server_id: str,
    position: Position,
    *,
    had_complete: bool = False,
    names: Collection[str] | None = None,
) -> Iterator[NameClaim]:
    """Yield the claims that differ: new ones before old ones of their name, so that it survives an upgrade.

    Names that are gone come first of all: a renamed tool is no rival of itself.
    """
    names = {name for name, _ in before} if names is None else names
    sketch: tuple[str, ...] | None = None
    kept = {name for name, _ in after}
    gone = sorted(before.keys() - after.keys(), key=lambda claim: (claim[0] in kept, claim))
    for name, full in [*gone[: (lost := sum(name not in kept for name, _ in gone))], *sorted(after), *gone[lost:]]:
        if before.get((name, full)) == after.get((name, full)):
            continue
        if sketch is None:
            sketch = name_sketch(names or {name for name, _ in after})
        yield NameClaim(
            server_id=server_id,
            tool_name=name,
            full=full,
            is_offered=(name, full) in after,
            approved=after.get((name, full), False),
            # Where there were no names, all of them come with the first list: none is an addition.
            added=had_complete and bool(names) and (name, full) in after and name not in names,
            sketch=sketch,
            time_us=position[0],
            origin=position[1],
        )


_DIGEST_CHARS = 8
_SHARED_PART = 4
"""Two servers share names if one in this many of all their names is in both. Versions of one product do; products
that both have a tool ``search`` do not."""


def name_sketch(names: Iterable[str]) -> tuple[str, ...]:
    digests = {sha256(name.encode()).hexdigest()[:_DIGEST_CHARS] for name in names}
    return tuple(sorted(digests)[: DEFAULT_LIMITS.name_sketch_max])


def share_names(one: Collection[str], other: Collection[str]) -> bool:
    """Return True if two servers have so many names in common that they may be versions of one product."""
    in_both = set(one).intersection(other)
    # Most servers have nothing in common: no more can be in the sample than there is in both.
    if len(in_both) * _SHARED_PART < max(len(one), len(other), 1):
        return False
    sample = sorted({*one, *other})[: DEFAULT_LIMITS.name_sketch_max]
    return len(in_both.intersection(sample)) * _SHARED_PART >= len(sample)


_ClaimedName = Mapping[str, Any]


class Shadow(NamedTuple):
    """One definition under a name that another server, or another name, held before.

    Args:
        server_id: the newcomer.
        full: full digest of its definition.
        reason: one of ``SHADOWING_REASONS``.
    """

    server_id: str
    tool_name: str
    full: str
    reason: str

    def uid(self) -> str:
        return uid_of(Kind.TOOL_SHADOWED, self.server_id, self.tool_name, self.full, self.reason)

    def finding(self, holder_id: str | None, claim: NameClaim) -> Finding:
        """Return the finding, in the record of the claim that showed it.

        Args:
            holder_id: the server that held the name before, ``None`` if unknown.
        """
        return Finding(
            kind=Kind.TOOL_SHADOWED,
            server_id=self.server_id,
            tool_name=self.tool_name,
            time_us=claim.time_us,
            origin=claim.origin,
            after=self.full,
            reason=self.reason,
            observed=holder_id,
        )


def shadow_of(claim: NameClaim, uid: str) -> Shadow | None:
    """Return what a claim takes that has this uid, ``None`` if none of it has."""
    shadows = (Shadow(claim.server_id, claim.tool_name, claim.full, reason) for reason in SHADOWING_REASONS)
    return next((shadow for shadow in shadows if shadow.uid() == uid), None)


def with_claim(state: Mapping[str, Any], claim: NameClaim) -> dict[str, Any]:
    names = {
        (entry["server_id"], entry["tool_name"]): entry | {"definitions": dict(entry["definitions"])}
        for entry in state.get("names", ())
    }
    left_out = state.get("left_out", 0)
    entry = names.setdefault((claim.server_id, claim.tool_name), _entry_of(claim))
    known = claim.full in entry["definitions"]
    if not claim.is_offered:
        entry["definitions"].pop(claim.full, None)
    elif not known and sum(len(one["definitions"]) for one in names.values()) >= DEFAULT_LIMITS.name_claims_max:
        left_out += 1
    else:
        if not known:
            # An approval may be dated before the list that it is about: it makes no name older.
            entry["since_us"] = min(entry["since_us"], claim.time_us)
        entry["definitions"][claim.full] = claim.approved
    offered = [names[name] for name in sorted(names) if names[name]["definitions"]]
    return {"names": offered, "left_out": left_out}


def _entry_of(claim: NameClaim) -> dict[str, Any]:
    return {
        "server_id": claim.server_id,
        "tool_name": claim.tool_name,
        "since_us": claim.time_us,
        "added": claim.added,
        "sketch": list(claim.sketch),
        "definitions": {},
    }


def shadows(state: Mapping[str, Any]) -> dict[Shadow, str]:
    """Return the claims that take another's name, each with the server that held it first."""
    found: dict[Shadow, str] = {}
    holders: list[_ClaimedName] = []
    by_name: dict[str, list[_ClaimedName]] = defaultdict(list)
    known: Counter[tuple[Any, ...]] = Counter()
    for newcomer in _claims_in_order(state):
        found.update(_taken_by(newcomer, holders, by_name[newcomer["tool_name"]]))
        # Of deployments that are alike in all, two are enough: of whatever server the next one is, one is another.
        alike = (newcomer["tool_name"], *sorted(newcomer["definitions"]), *newcomer["sketch"])
        known[alike] += 1
        if known[alike] <= 2:
            holders.append(newcomer)
            by_name[newcomer["tool_name"]].append(newcomer)
    return found


def shadows_beyond(state: Mapping[str, Any], claim: NameClaim) -> dict[Shadow, str]:
    """Return the shadows caused by a claim that was left out, each with the server that held it first."""
    newcomer: _ClaimedName = _entry_of(claim)
    holders: list[_ClaimedName] = []
    for entry in _claims_in_order(state):
        if (entry["server_id"], entry["tool_name"]) == (claim.server_id, claim.tool_name):
            newcomer = entry
            break
        holders.append(entry)
    namesakes = [one for one in holders if one["tool_name"] == claim.tool_name]
    return dict(_taken_by({**newcomer, "definitions": {claim.full: claim.approved}}, holders, namesakes))


def _claims_in_order(state: Mapping[str, Any]) -> list[_ClaimedName]:
    return sorted(state.get("names", ()), key=lambda entry: (entry["since_us"], entry["server_id"], entry["tool_name"]))


def _taken_by(
    newcomer: _ClaimedName, holders: Iterable[_ClaimedName], of_its_name: Iterable[_ClaimedName]
) -> Iterator[tuple[Shadow, str]]:
    """Yield what a newcomer takes from earlier holders of look-alike names, in order: all, and those of its very name.

    It is compared with few of them: the first look-alike that counts is enough.
    """
    server_id, name, is_added = newcomer["server_id"], newcomer["tool_name"], bool(newcomer["added"])
    namesakes = [one for one in of_its_name if is_added or one["server_id"] != server_id]
    others = (one for one in holders if one["tool_name"] != name and (is_added or one["server_id"] != server_id))
    look_alike = next(others, None)
    for full, approved in sorted(newcomer["definitions"].items()):
        if approved:
            continue
        if look_alike is not None:
            yield Shadow(server_id, name, full, CONFUSABLE_NAME), look_alike["server_id"]
        namesake = next((one for one in namesakes if full not in one["definitions"]), None)
        if namesake is not None:
            takes = is_added and not any(share_names(newcomer["sketch"], one["sketch"]) for one in namesakes)
            yield Shadow(server_id, name, full, TAKEN_NAME if takes else SAME_NAME), namesake["server_id"]
