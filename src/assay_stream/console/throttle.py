"""How often somebody may try to sign in."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits

_BUCKETS = 4_096


@dataclass(slots=True)
class _Bucket:
    window: int = -1
    count: int = 0


class Throttle:
    """Counts attempts by name, in windows of time.

    Names share a fixed number of counters by a keyed hash: a flood of names takes no memory, and makes no counter
    forgotten. Two names that share one are only refused sooner.

    Args:
        most: attempts of one name in a window.
        clock: the time now, microseconds since the epoch.
        key: of the hash, secret and random.
    """

    def __init__(
        self, most: int, clock: Callable[[], int], key: bytes, *, limits: ConsoleLimits = CONSOLE_LIMITS
    ) -> None:
        self._most = most
        self._clock = clock
        self._key = key
        self._window_us = limits.sign_in_window_s * 1_000_000
        self._buckets = [_Bucket() for _ in range(_BUCKETS)]

    def take(self, name: str) -> bool:
        """Count an attempt, and return whether it may be made."""
        bucket, window = self._bucket(name), self._clock() // self._window_us
        if bucket.window != window:
            bucket.window, bucket.count = window, 0
        if bucket.count >= self._most:
            return False
        bucket.count += 1
        return True

    def forgive(self, name: str) -> None:
        """Take an attempt back that succeeded."""
        bucket = self._bucket(name)
        bucket.count = max(bucket.count - 1, 0)

    def _bucket(self, name: str) -> _Bucket:
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8).digest()
        return self._buckets[int.from_bytes(digest) % _BUCKETS]


def network_of(address: str | None) -> str:
    """Return the source that an address counts as: one IPv4 address, or the network that an IPv6 customer has."""
    try:
        found = ipaddress.ip_address(address or "")
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
    return str(found)
