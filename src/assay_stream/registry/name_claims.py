"""Name claims: which server offers which tool name, in the partition of all look-alikes of the name.

No registry task has every server. So each writes what its servers offer into the finding topic, under the skeleton of
the tool name: all claims to names that look alike are in one partition, in one order.

A claim holds for a server as a whole. It is written when the first observer sees a definition, when the last one no
longer does, and when an operator's approval of it comes or goes; a repeated snapshot writes none.

A claim carries a sketch of the server's names, to estimate how much two servers have in common. It holds the least
digests of the names: of two sketches, the least digests of both together are a fair sample of all names of both, and
the share of the sample that is in both sketches estimates the share of common names. Source: A. Broder, On the
resemblance and containment of documents, 1997.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256

from assay_stream.bindings.server import ServerBindings
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.facts import Catalogue, Seen
from assay_stream.model.fields import LeftOut
from assay_stream.model.finding import NameClaim
from assay_stream.model.record import Origin
from assay_stream.registry.analysis import Analysis
from assay_stream.work import WorkExhaustedError

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
    if before or after:
        names = server.fleet.names_offered_before()
        try:
            analysis.work.spend(_UNITS_PER_NAME * max(0, len(names) - _NAMES_FREE))
        except WorkExhaustedError:
            analysis.left_out.add(LeftOut.NAME_CLAIMS)
            return
        yield from claims_between(
            before,
            after,
            seen.server_id,
            time_us=seen.time_us,
            origin=seen.origin,
            had_complete=had_complete,
            names=names,
        )


def claims_between(
    before: OfferedClaims,
    after: OfferedClaims,
    server_id: str,
    *,
    time_us: int,
    origin: Origin,
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
            time_us=time_us,
            origin=origin,
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
