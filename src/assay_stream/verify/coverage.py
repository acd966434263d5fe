"""Which calls must have evidence: one without is *missing* it, or *pending* where the join may not be there yet.

1. A call below an offset that the join has committed is due. So is one before another call of its partition that
   has evidence: the join takes each partition in its order.
2. Whoever says that the files are complete has every call due.
3. A call that the join refuses stands in the rejected records, and is never due.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from assay_stream.model.record import Origin
from assay_stream.replay.history import Place
from assay_stream.verify.waiting import Offsets


class Expect(StrEnum):
    """Which calls must have evidence."""

    JOINED = "joined"
    ALL = "all"
    NONE = "none"


class Coverage:
    """Tells which calls without evidence should have it.

    Args:
        expect: ``joined``: those of rule 1; ``all``: every one; ``none``: the evidence is an extract.
        joined: what is known of the join: the first offset of each partition that it has not committed.
    """

    def __init__(self, expect: Expect = Expect.JOINED, joined: Mapping[Place, int] | None = None) -> None:
        self.expect = expect
        self._due: dict[Place, int] = dict(joined or {})
        self._seen = Offsets()
        self.pending = 0
        """Calls without evidence that are not due."""

    @property
    def asks(self) -> bool:
        """Whether any call must have evidence."""
        return self.expect is not Expect.NONE

    def note(self, call: Origin | None, *, shared: bool = True) -> None:
        """Note that there is evidence of a call.

        Args:
            call: where the evidence says that its call stands.
            shared: whether the evidence is asked for, and its call one of those that are looked at here.
        """
        if call is None or not self.asks:
            return
        if call.offset >= self._due.get(call[:2], 0):
            self._due[call[:2]] = call.offset + 1
        if shared:
            self._seen.add(call)

    def lacks(self, call: Origin) -> bool:
        """Tell whether a call is looked at, and no evidence of it was noted so far.

        Args:
            call: where it stands.
        """
        return self.asks and call not in self._seen

    def is_missing(self, call: Origin) -> bool:
        """Tell whether a call without evidence should have it; one that need not yet is counted.

        Args:
            call: where it stands.
        """
        if self.expect is Expect.ALL or call.offset < self._due.get(call[:2], 0):
            return True
        self.pending += 1
        return False
