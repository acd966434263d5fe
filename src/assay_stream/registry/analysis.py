"""What one record may cost beyond decoding and fingerprints, what is left out then, and findings in a snapshot.

A record whose budget is used up is applied all the same: facts, definitions, verdicts and the pins of what it
shows are never left out. What could not be compared must not look harmless, so a finding lists what was left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from assay_stream.model.control_facts import ControlDecision
from assay_stream.model.facts import Announcement, Rejection, Seen
from assay_stream.model.fields import LeftOut
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.work import Work, WorkExhaustedError

_Item = TypeVar("_Item")


class CutReason(StrEnum):
    """Why an analysis was cut short: stable codes."""

    BUDGET = "budget"
    RATIONED = "rationed"


class Analysis:
    """The budget of one record, and what it did not suffice for.

    Args:
        units_max: the budget, in units of work.
        is_rationed: whether the budget is the rest of its server's allowance rather than the limit of a record. A
            rationed server gets one finding: its tools do not stand out one by one.
    """

    __slots__ = ("is_rationed", "kept_units", "left_out", "work")

    def __init__(self, units_max: int, *, is_rationed: bool = False) -> None:
        self.is_rationed = is_rationed
        self.work = Work(units_max)
        self.kept_units = 0
        """Units of kept answers, which the next list with the same change does not have to spend."""
        self.left_out: set[LeftOut] = set()

    def keep(self, units: int) -> None:
        self.kept_units += units

    def paid(self, items: Iterable[_Item], units_each: int, what: LeftOut) -> Iterator[_Item]:
        """Yield items as long as the budget pays for them."""
        for item in items:
            try:
                self.work.spend(units_each)
            except WorkExhaustedError:
                self.left_out.add(what)
                return
            yield item

    def finding(
        self, by: Seen | Rejection | ControlDecision, cut: CutReason, counted: Mapping[Kind, int] = MappingProxyType({})
    ) -> Iterator[Finding]:
        """Yield the finding that lists what was left out, if anything was.

        A rationed server gets one finding, not one per list.
        """
        if self.left_out:
            yield Finding(
                kind=Kind.ANALYSIS_CUT_SHORT,
                server_id=by.server_id,
                time_us=by.time_us,
                origin=by.origin,
                after=by.catalogue if isinstance(by, Seen) and cut is CutReason.BUDGET else None,
                reason=cut.value,
                left_out=tuple(sorted(part.value for part in self.left_out)),
                counted=tuple(sorted((kind.value, number) for kind, number in counted.items())),
            )


def finding_in(fact: Seen | Announcement | Rejection, kind: Kind, **more: Any) -> Finding:
    """Return a finding by an observer's record, at its time if no other is given."""
    more = {"time_us": fact.time_us, "snapshot_id": fact.snapshot_id if isinstance(fact, Seen) else None} | more
    return Finding(kind=kind, server_id=fact.server_id, observer_id=fact.observer_id, origin=fact.origin, **more)
