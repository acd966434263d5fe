"""A double of what takes the outputs of a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from assay_stream.model.record import Output


@dataclass
class Kept:
    """Keeps the outputs instead of writing them."""

    outputs: list[Output] = field(default_factory=list)

    def add(self, outputs: Sequence[Output]) -> None:
        """Take outputs in."""
        self.outputs += outputs
