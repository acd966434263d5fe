"""What one of several processes does of a job that each call can be done of by itself."""

from __future__ import annotations

from typing import NamedTuple

from assay_stream.model.record import Origin


class Share(NamedTuple):
    """One of several equal parts of all calls.

    Args:
        number: which part, from 0.
        of: how many there are.
    """

    number: int
    of: int

    @property
    def is_first(self) -> bool:
        """Whether it is the part that what belongs to no call falls to."""
        return self.number == 0

    def has(self, call: Origin) -> bool:
        """Tell whether a call is in this part.

        Args:
            call: where the call stands. One partition is shared among all as well as many are.
        """
        return (call[1] + call[2]) % self.of == self.number


WHOLE = Share(0, 1)
