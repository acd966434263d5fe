"""Shadowing: which claims to look-alike names take a name that another server, or another name, holds.

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
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.finding import Finding, NameClaim, uid_of
from assay_stream.model.kinds import CONFUSABLE_NAME, SAME_NAME, SHADOWING_REASONS, TAKEN_NAME, Kind
from assay_stream.registry.name_claims import share_names

_Entry = Mapping[str, Any]


class Shadow(NamedTuple):
    """One definition under a name that another server, or another name, held before.

    Args:
        server_id: the newcomer.
        full: full digest of its definition.
        reason: one of ``REASONS``.
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
    key = (claim.server_id, claim.tool_name)
    entry = names.get(key)
    known = entry is not None and claim.full in entry["definitions"]
    if not claim.is_offered:
        if entry is not None:
            entry["definitions"].pop(claim.full, None)
            if not entry["definitions"]:
                del names[key]
    elif not known and sum(len(one["definitions"]) for one in names.values()) >= DEFAULT_LIMITS.name_claims_max:
        left_out += 1
    else:
        if entry is None:
            entry = names[key] = {
                "server_id": claim.server_id,
                "tool_name": claim.tool_name,
                "since_us": claim.time_us,
                "added": claim.added,
                "sketch": list(claim.sketch),
                "definitions": {},
            }
        if not known:
            # An approval may be dated before the list that it is about: it makes no name older.
            entry["since_us"] = min(entry["since_us"], claim.time_us)
        entry["definitions"][claim.full] = claim.approved
    return {"names": [names[name] for name in sorted(names)], "left_out": left_out}


def is_claimed(state: Mapping[str, Any]) -> bool:
    return bool(state["names"] or state["left_out"])


def shadows(state: Mapping[str, Any]) -> dict[Shadow, str]:
    """Return the claims that take another's name, each with the server that held it first."""
    found: dict[Shadow, str] = {}
    holders: list[_Entry] = []
    by_name: dict[str, list[_Entry]] = defaultdict(list)
    known: Counter[tuple[Any, ...]] = Counter()
    for newcomer in _in_order(state):
        found.update(_of(newcomer, holders, by_name[newcomer["tool_name"]]))
        # Of deployments that are alike in all, two are enough: of whatever server the next one is, one is another.
        alike = (newcomer["tool_name"], *sorted(newcomer["definitions"]), *newcomer["sketch"])
        known[alike] += 1
        if known[alike] <= 2:
            holders.append(newcomer)
            by_name[newcomer["tool_name"]].append(newcomer)
    return found


def shadows_beyond(state: Mapping[str, Any], claim: NameClaim) -> dict[Shadow, str]:
    """Return the shadows caused by a claim that was left out, each with the server that held it first."""
    newcomer: _Entry = {
        "server_id": claim.server_id,
        "tool_name": claim.tool_name,
        "added": claim.added,
        "sketch": list(claim.sketch),
    }
    holders: list[_Entry] = []
    for entry in _in_order(state):
        if (entry["server_id"], entry["tool_name"]) == (claim.server_id, claim.tool_name):
            newcomer = entry
            break
        holders.append(entry)
    namesakes = [one for one in holders if one["tool_name"] == claim.tool_name]
    return dict(_of({**newcomer, "definitions": {claim.full: claim.approved}}, holders, namesakes))


def _in_order(state: Mapping[str, Any]) -> list[_Entry]:
    return sorted(state.get("names", ()), key=lambda entry: (entry["since_us"], entry["server_id"], entry["tool_name"]))


def _of(newcomer: _Entry, holders: Iterable[_Entry], of_its_name: Iterable[_Entry]) -> Iterator[tuple[Shadow, str]]:
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
