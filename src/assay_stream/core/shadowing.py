"""Shadowing: which of the claims to look-alike names take a name that another holds.

Rules:

1. Who claimed a name first, by event time, holds it; of equal times the lesser server id and name. A server that
   changes a definition keeps its place.
2. What stands in the state of a skeleton follows from each server's claims in their order. How those of several
   servers are mixed in the log changes nothing.
3. Two servers with one definition under one name are one product, deployed twice.
4. Two names of one server are told of where the newer came after a complete list without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assay_stream.core.finding import Finding
from assay_stream.core.kinds import Kind
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.name_claim import NameClaim

CONFUSABLE_NAME = "confusable_name"
SAME_NAME = "same_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """One definition under a name that another server, or another name, held before.

    Args:
        server_id: the newcomer.
        tool_name: its name.
        full: full digest of its definition.
        reason: ``confusable_name`` or ``same_name``.
    """

    server_id: str
    tool_name: str
    full: str
    reason: str

    def finding(self, holder_id: str, claim: NameClaim) -> Finding:
        """Return what is found, in the record of the claim that showed it.

        Args:
            holder_id: the server that held the name before.
            claim: the claim.
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


def with_claim(state: Mapping[str, Any], claim: NameClaim) -> dict[str, Any]:
    """Return the state of a skeleton with one claim more.

    Args:
        state: ``names`` (server, name, since when, and its definitions) and ``left_out``, claims beyond the bound.
        claim: the claim.
    """
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
                "definitions": {},
            }
        entry["since_us"] = min(entry["since_us"], claim.time_us)
        entry["definitions"][claim.full] = claim.approved
    return {"names": [names[name] for name in sorted(names)], "left_out": left_out}


def shadows(state: Mapping[str, Any]) -> dict[Shadow, str]:
    """Return what takes the name of another, each with the server that held it first.

    Args:
        state: the state of a skeleton.
    """
    found: dict[Shadow, str] = {}
    entries = sorted(
        state.get("names", ()), key=lambda entry: (entry["since_us"], entry["server_id"], entry["tool_name"])
    )
    for place, newcomer in enumerate(entries):
        for holder in entries[:place]:
            for shadow in _of_pair(newcomer, holder):
                found.setdefault(shadow, holder["server_id"])
    return found


def _of_pair(newcomer: Mapping[str, Any], holder: Mapping[str, Any]) -> Iterator[Shadow]:
    is_same_name = newcomer["tool_name"] == holder["tool_name"]
    if newcomer["server_id"] == holder["server_id"] and not newcomer["added"]:
        return
    for full, approved in sorted(newcomer["definitions"].items()):
        if approved or (is_same_name and full in holder["definitions"]):
            continue
        yield Shadow(
            server_id=newcomer["server_id"],
            tool_name=newcomer["tool_name"],
            full=full,
            reason=SAME_NAME if is_same_name else CONFUSABLE_NAME,
        )
