"""Server-side sessions, and what no client or user may take too much of: attempts to sign in, and shared capacity."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import TypeVar

from assay_stream.errors import InputError, OperatingError
from assay_stream.limits import CONSOLE_LIMITS, ConsoleLimits

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A person who signed in.

    Args:
        name: prefixed with the authentication method, such as ``oidc:alice@example.com``; the author of decisions.
    """

    name: str
    may_decide: bool


def is_name(text: str, limits: ConsoleLimits) -> bool:
    return 0 < len(text) <= limits.identity_chars_max and text == text.strip() and text.isprintable()


@dataclass(slots=True, kw_only=True)
class Session:
    """A session.

    Args:
        csrf_token: required in the field ``csrf`` of each form.
        proof: credential of the sign-in; the session ends once it is no longer valid.
        can_sign_out: whether sign-out happens here, not at a proxy.
    """

    operator: Operator
    csrf_token: str
    proof: str = ""
    can_sign_out: bool = True
    begun_us: int = 0
    used_us: int = 0


class Sessions:
    """All sessions of this process, each bounded in age and idle time. Not thread-safe."""

    def __init__(self, clock: Callable[[], int], *, limits: ConsoleLimits = CONSOLE_LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        # Found by a hash of the id: how long a look-up takes says nothing about an id. The least recently used first.
        self._kept: OrderedDict[bytes, Session] = OrderedDict()

    def begin(self, operator: Operator, proof: str = "", *, can_sign_out: bool = True) -> str:
        """Start a session and return its new id. The least recently used one is evicted if there are too many.

        An operator with too many sessions evicts their own first: nobody can end the sessions of others.
        """
        own = [key for key, session in self._kept.items() if session.operator.name == operator.name]
        if len(own) >= self._limits.operator_sessions_max:
            del self._kept[own[0]]
        elif len(self._kept) >= self._limits.sessions_max:
            self._kept.popitem(last=False)
        session_id, token, now_us = secrets.token_urlsafe(), secrets.token_urlsafe(), self._clock()
        self._kept[_key(session_id)] = Session(
            operator=operator, csrf_token=token, proof=proof, can_sign_out=can_sign_out, begun_us=now_us, used_us=now_us
        )
        return session_id

    def find(self, session_id: str, *, is_used: bool = True) -> Session | None:
        """Return an unexpired session; only use by a person (``is_used``) keeps it alive."""
        key, now_us = _key(session_id), self._clock()
        session = self._kept.get(key)
        if session is None:
            return None
        age_s, idle_s = (now_us - session.begun_us) / 1e6, (now_us - session.used_us) / 1e6
        if age_s >= self._limits.session_s or idle_s >= self._limits.session_idle_s:
            del self._kept[key]
            return None
        if is_used:
            session.used_us = now_us
            self._kept.move_to_end(key)
        return session

    def end(self, session_id: str) -> None:
        self._kept.pop(_key(session_id), None)

    def __len__(self) -> int:
        return len(self._kept)


def _key(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).digest()


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
    Names that collide are merely refused sooner. Browsers that have signed in before have counters of their own, which
    strangers cannot exhaust.
    """

    def __init__(self, clock: Callable[[], int], limits: ConsoleLimits = CONSOLE_LIMITS) -> None:
        self._clock = clock
        self._window_s = limits.sign_in_window_s
        self._key = secrets.token_bytes(32)
        self._window = -1
        self._counts = [0] * 2 * _COUNTERS

    @contextmanager
    def attempt(self, most: Mapping[str, int], *, is_known: bool = False) -> Iterator[None]:
        """Count an attempt unless it is refused here, succeeds, or could not be made (``OperatingError``)."""
        window = self._clock() // (self._window_s * 1_000_000)
        if window != self._window:
            self._window, self._counts = window, [0] * 2 * _COUNTERS
        counters = [self._counter(name, is_known=is_known) for name in most]
        if any(self._counts[counter] >= limit for counter, limit in zip(counters, most.values(), strict=True)):
            minutes = self._window_s // 60
            raise InputError("sign_in_limited", f"too many attempts failed: try again in {minutes} minutes")
        for counter in counters:
            self._counts[counter] += 1
        try:
            yield
        except OperatingError:
            self._forgive(counters)
            raise
        self._forgive(counters)

    def _forgive(self, counters: Iterable[int]) -> None:
        for counter in counters:
            self._counts[counter] = max(self._counts[counter] - 1, 0)

    def _counter(self, name: str, *, is_known: bool) -> int:
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8).digest()
        return int.from_bytes(digest) % _COUNTERS + is_known * _COUNTERS


async def with_room(room: BoundedSemaphore, pool: Executor, work: Callable[[], _T], busy: str) -> _T:
    """Run ``work`` on a thread; without room raise ``console_busy`` with the message."""
    if not room.acquire(blocking=False):
        raise OperatingError("console_busy", busy)
    try:
        pending = pool.submit(work)
    except BaseException:
        room.release()
        raise
    # Not when the client goes: its work is still done.
    pending.add_done_callback(lambda _: room.release())
    return await asyncio.wrap_future(pending)


class Shares:
    """Concurrent use by each operator; ``refusal`` says what there is too much of. Event loop only."""

    def __init__(self, most: int, refusal: str) -> None:
        self._most, self._refusal = most, refusal
        self._used: Counter[str] = Counter()

    @contextmanager
    def by(self, session: Session | None) -> Iterator[None]:
        """Hold a place while the block runs."""
        if session is None:
            yield
            return
        name = session.operator.name
        if self._used[name] >= self._most:
            raise OperatingError("console_busy", self._refusal)
        self._used[name] += 1
        try:
            yield
        finally:
            self._used[name] -= 1
            self._used += Counter()  # keeps no zeros
