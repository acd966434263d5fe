"""How calls are placed in partitions: by server, but for some that are misplaced on purpose."""

import random
import zlib
from dataclasses import dataclass

from assay_stream.model.record import murmur2_partition

BINDINGS, CALLS = 2, 6
"""Partitions: a hot server may have three of them."""


@dataclass
class Placing:
    """Where calls go: most to a hot server, spread over its partitions, and some to a wrong partition."""

    servers: int
    seed: int
    hot: int = 0
    spread: int = 1

    def __post_init__(self) -> None:
        self._choose = random.Random(self.seed)

    def move(self) -> None:
        """Make another server the hot one, and spread calls over another number of partitions."""
        self.hot = (self.hot + self._choose.randrange(1, self.servers)) % self.servers
        self.spread = self._choose.choice([count for count in range(1, CALLS // BINDINGS + 1) if count != self.spread])

    def is_left_out(self, server_id: bytes) -> bool:
        """Tell whether a call is not published, so that most of those that are go to the hot server."""
        return server_id != b"server-%d" % self.hot and self._choose.random() < _LEFT_OUT

    def partition(self, server_id: bytes, value: bytes) -> int:
        """Return the partition of a call, as ``ASSAY_STREAM_CALL_SPREAD`` has it, or any."""
        if self._choose.random() < _MISPLACED:
            return self._choose.randrange(CALLS)
        home = murmur2_partition(server_id, CALLS)
        rows = CALLS // BINDINGS
        row = (home // BINDINGS + zlib.crc32(value) % self.spread) % rows
        return home % BINDINGS + row * BINDINGS


_LEFT_OUT = 0.7
_MISPLACED = 0.2
