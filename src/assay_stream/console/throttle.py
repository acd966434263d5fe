"""How often somebody may try to sign in."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits

_BUCKETS = 16_384


@dataclass(slots=True)
class _Bucket:
    window: int = -1
    count: int = 0


class Throttle:
    """Counts attempts by name, in windows of time.

    Names share a fixed number of counters by a keyed hash: a flood of names takes no memory, and makes no counter
    forgotten. Two names that share one are only refused sooner.

    Args:
        clock: the time now, microseconds since the epoch.
        key: of the hash, secret and random.
    """

    def __init__(self, clock: Callable[[], int], key: bytes, *, limits: ConsoleLimits = CONSOLE_LIMITS) -> None:
        self._clock = clock
        self._key = key
        self._window_us = limits.sign_in_window_s * 1_000_000
        self._buckets = [_Bucket() for _ in range(_BUCKETS)]

    def take(self, name: str, most: int) -> bool:
        """Count an attempt, and return whether it may be made: there are that many in a window."""
        bucket, window = self._bucket(name), self._clock() // self._window_us
        if bucket.window != window:
            bucket.window, bucket.count = window, 0
        if bucket.count >= most:
            return False
        bucket.count += 1
        return True

    def forgive(self, *names: str) -> None:
        """Take an attempt back that succeeded, or was not made."""
        for bucket in map(self._bucket, names):
            bucket.count = max(bucket.count - 1, 0)

    def _bucket(self, name: str) -> _Bucket:
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8).digest()
        return self._buckets[int.from_bytes(digest) % _BUCKETS]


def address_in(hop: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address that may have a port, as in hops of some proxies: ``192.0.2.7:443``, ``[2001:db8::7]:443``."""
    text = hop or ""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return found if isinstance(found, ipaddress.IPv4Address) else found.ipv4_mapped or found


def network_of(hop: str | None) -> str:
    """Return the source that an address counts as: one IPv4 address, or the network that an IPv6 customer has."""
    found = address_in(hop)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, 64), strict=False))
    return "" if found is None else str(found)
