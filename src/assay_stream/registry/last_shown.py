"""The last definition that was shown under a name, for a tool that comes or comes back.

What the same observer was shown goes first, then what anybody was under the same rights, then what anybody was,
and last what is kept of lists that were folded away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from assay_stream.model.facts import Seen
from assay_stream.model.fields import LeftOut
from assay_stream.registry.analysis import Analysis
from assay_stream.registry.state import ServerBindings
from assay_stream.schemes.fingerprint import Fingerprint
from assay_stream.work import WorkExhaustedError


def last_shown(server: ServerBindings, seen: Seen, names: Iterable[str], analysis: Analysis) -> dict[str, Fingerprint]:
    """Return the last definition shown before an observation under each of these names, where there is one."""
    missing = {name for name in names if server.knows(name)}
    found: dict[str, Fingerprint] = {}
    looked_at: set[str] = set()
    try:
        for old in _newest_first(server, seen):
            if not missing:
                break
            analysis.work.spend(1)
            if old.catalogue in looked_at:
                continue
            looked_at.add(old.catalogue)
            analysis.work.spend(len(missing))
            catalogue = server.catalogue_of(old)
            for name in sorted(missing & catalogue.tools.keys()):
                for full in catalogue.definitions_of(name)[:1]:
                    found[name] = server.fingerprint_of(catalogue, full)
                    missing.discard(name)
    except WorkExhaustedError:
        analysis.left_out.add(LeftOut.HISTORY)
    for name in missing:
        former = server.formers.get(name)
        if former is not None:
            found[name] = server.tools[former.place]
    return found


def _newest_first(server: ServerBindings, seen: Seen) -> Iterator[Seen]:
    own = server.observers.get(seen.observer_id)
    under_rights = server.observations.back_under_rights(seen.position, seen.auth_context)
    everything = server.observations.back_from(seen.position)
    if own is None:
        return chain(under_rights, everything)
    same = (old for old in own.back_from(seen.position) if old.auth_context == seen.auth_context)
    return chain(same, under_rights, everything)
