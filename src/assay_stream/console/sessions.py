"""Server-side sessions: a browser holds an id that is meaningless elsewhere."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A person who signed in.

    Args:
        name: prefixed with the authentication method, such as ``oidc:alice@example.com``; the author of decisions.
    """

    name: str
    may_decide: bool


def is_name(text: str, limits: ConsoleLimits) -> bool:
    """Return True for a valid operator name."""
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
    """All sessions of this process, each bounded in age and idle time. Not thread-safe.

    Args:
        clock: current time, microseconds since the epoch.
    """

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
