"""Facts about repeated lists: one stands for many observations of an observer that differ in nothing but their rows.

A run takes the place of ``seen`` facts, which the registry takes back in the same transaction (``registry.packing``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from assay_stream.model.fields import BareHex, Completeness, DigestText, Identifier, Micros, Natural
from assay_stream.model.record import Origin
from assay_stream.model.wire import BaseFact, Wire, fact, rows, shared

SharedDigest = Annotated[DigestText, Wire(DigestText, read=shared)]
"""A digest that stands in many facts."""
SharedCompleteness = Annotated[Completeness, Wire(Completeness, read=shared)]
SharedRights = Annotated[BareHex | None, Wire(BareHex | None, read=shared)]


def _some_rows(given: list[Any]) -> list[Any]:
    if not given:
        raise ValueError("a run has rows")
    return given


@fact("seen_run", "server_id", "observer_id", "origin")
@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRun(BaseFact):
    """At each of these times this observer saw this catalogue on this server; the fields are those of ``seen``.

    Args:
        origin: of the first observation that the run ever had.
        time_us: event time of the first row.
        rows: microseconds since then, offsets counted from that of the origin, and snapshot id of each observation, in
            their order; times and offsets rise.
    """

    server_id: Identifier
    observer_id: Identifier
    origin: Origin
    time_us: Micros
    rows: Annotated[
        tuple[tuple[int, int, str], ...], rows(tuple[Natural, Natural, Identifier])._replace(read=_some_rows)
    ]
    catalogue: SharedDigest
    completeness: SharedCompleteness
    signatures: DigestText | None = None
    prompts: DigestText | None = None
    templates: DigestText | None = None
    instructions: DigestText | None = None
    auth_context: SharedRights = None
    hidden: Annotated[tuple[tuple[str, str], ...], rows(tuple[str, DigestText])] = ()
    attributed: bool = False
    rationed: bool = False


@fact("run_cut", "server_id", "observer_id", "origin")
@dataclass(frozen=True, slots=True, kw_only=True)
class RunCut(BaseFact):
    """Some observations of the run with the same origin were folded away.

    Args:
        gone: their offsets, counted from that of the origin, sorted.
    """

    server_id: Identifier
    observer_id: Identifier
    origin: Origin
    gone: tuple[Natural, ...]
