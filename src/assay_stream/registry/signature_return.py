"""What a sound signature puts an end to: that a definition came without one, or with one that did not hold."""

from __future__ import annotations

from collections.abc import Iterator

from assay_stream.model.facts import Catalogue, Seen
from assay_stream.model.fields import LeftOut
from assay_stream.model.finding_topic import Resolution
from assay_stream.registry.analysis import Analysis
from assay_stream.registry.change_points import start_of
from assay_stream.registry.controls import When
from assay_stream.registry.resolution import latest_observations, told, uids_of_signature
from assay_stream.registry.signatures import check_signature
from assay_stream.registry.state import ServerBindings
from assay_stream.registry.timeline import AFTER_ALL_US

_UNITS_PER_OBSERVER = 2


def resolved_by_signature(
    server: ServerBindings, catalogue: Catalogue, seen: Seen, analysis: Analysis
) -> list[Resolution]:
    """Return the end of what was found about signatures that are sound now, for the observer who saw it.

    Each observer ends it for itself; one whose list is late ends nothing.
    """
    if seen.signatures is None or not server.controls:
        return []
    *earlier, latest = server.observers[seen.observer_id]
    if latest != seen or not earlier:
        return []
    if (earlier[-1].catalogue, earlier[-1].signatures) == (seen.catalogue, seen.signatures):
        return []
    ended: dict[bool, list[str]] = {False: [], True: []}
    others = latest_observations(server)
    sound = _sound_again(server, catalogue, seen, earlier)
    for name, full in analysis.paid(sound, _UNITS_PER_OBSERVER * len(others), LeftOut.RESOLUTIONS):
        everywhere = not any(
            other.observer_id != seen.observer_id
            and server.catalogue_of(other).tools.get(name) == full
            and _fault(server, other, name, AFTER_ALL_US)
            for other in others
        )
        ended[everywhere] += uids_of_signature(server, seen.server_id, name, full)
    return [
        resolution
        for everywhere, uids in ended.items()
        for resolution in told(
            seen.server_id, uids, "signature_returned", seen, seen.observer_id, everywhere=everywhere
        )
    ]


def _sound_again(
    server: ServerBindings, catalogue: Catalogue, seen: Seen, earlier: list[Seen]
) -> Iterator[tuple[str, str]]:
    """Yield the definitions that are well signed, and were not when this observer saw them last."""
    before = start_of(seen.time_us)
    for name, full in sorted(catalogue.tools.items()):
        if full is None or _fault(server, seen, name, seen.time_us):
            continue
        last = next((old for old in reversed(earlier) if name in server.catalogue_of(old).tools), None)
        if last is None or server.catalogue_of(last).tools[name] != full:
            continue
        if _fault(server, last, name, before):
            yield name, full


def _fault(server: ServerBindings, seen: Seen, name: str, when: When) -> str | None:
    result = check_signature(server.controls, seen, name, when)
    return None if result is None else result.error_code
