"""Rate limits on sign-in attempts."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from assay_stream.console.sessions import Operator
from assay_stream.errors import InputError, OperatingError
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits

_COUNTERS = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """Result of a successful sign-in.

    Args:
        proof: credential; a session ends once it is no longer valid.
        device: token for the browser: others' attempts cannot lock out a browser that has it.
    """

    operator: Operator
    proof: str = ""
    device: str = ""


class Throttle:
    """Count failed attempts by name, in time windows.

    Names share a fixed number of counters by a keyed hash: a flood of names takes no memory and resets no counter.
    Names that collide are merely refused sooner.
    """

    def __init__(self, clock: Callable[[], int], limits: ConsoleLimits = CONSOLE_LIMITS) -> None:
        self._clock = clock
        self._window_s = limits.sign_in_window_s
        self._key = secrets.token_bytes(32)
        self._window = -1
        self._counts = [0] * _COUNTERS

    @contextmanager
    def attempt(self, most: Mapping[str, int]) -> Iterator[None]:
        """Count an attempt unless it succeeds or could not be made (``OperatingError``).

        Args:
            most: maximum attempts per name and window.

        Raises:
            InputError: ``sign_in_limited``.
        """
        if not all(self._take(*each) for each in most.items()):
            minutes = self._window_s // 60
            raise InputError("sign_in_limited", f"too many attempts failed: try again in {minutes} minutes")
        try:
            yield
        except OperatingError:
            self._forgive(most)
            raise
        self._forgive(most)

    def _take(self, name: str, most: int) -> bool:
        window = self._clock() // (self._window_s * 1_000_000)
        if window != self._window:
            self._window, self._counts = window, [0] * _COUNTERS
        counter = self._counter(name)
        if self._counts[counter] >= most:
            return False
        self._counts[counter] += 1
        return True

    def _forgive(self, names: Mapping[str, int]) -> None:
        for counter in map(self._counter, names):
            self._counts[counter] = max(self._counts[counter] - 1, 0)

    def _counter(self, name: str) -> int:
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8).digest()
        return int.from_bytes(digest) % _COUNTERS


class Throttles:
    """Separate throttles for strangers and for browsers that have signed in before, which strangers cannot exhaust."""

    def __init__(self, clock: Callable[[], int], limits: ConsoleLimits = CONSOLE_LIMITS) -> None:
        self.strangers, self.known = Throttle(clock, limits), Throttle(clock, limits)
