"""Sessions, kept by the server: a browser holds an id that means nothing elsewhere."""

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
        name: with how it is known, such as ``oidc:alice@example.com``: the author of what they decide.
    """

    name: str
    may_decide: bool


def is_name(text: str, limits: ConsoleLimits) -> bool:
    """Return True if a text can name somebody in a record, and on a page."""
    return 0 < len(text) <= limits.identity_chars_max and text == text.strip() and text.isprintable()


@dataclass(slots=True, kw_only=True)
class Session:
    """A session.

    Args:
        csrf_token: what each form of the session holds, in its field ``csrf``.
        proof: what showed who it is; the session ends once that no longer holds.
        can_sign_out: whether that is done here, and not at a proxy.
    """

    operator: Operator
    csrf_token: str
    proof: str = ""
    can_sign_out: bool = True
    begun_us: int = 0
    used_us: int = 0


class Sessions:
    """All sessions of this process, each bounded by its age and by how long it was idle. Not thread-safe.

    Args:
        clock: the time now, microseconds since the epoch.
    """

    def __init__(self, clock: Callable[[], int], *, limits: ConsoleLimits = CONSOLE_LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        # Found by a hash of the id: how long a look-up takes says nothing about an id. The least recently used first.
        self._kept: OrderedDict[bytes, Session] = OrderedDict()

    def begin(self, operator: Operator, proof: str = "", *, can_sign_out: bool = True) -> str:
        """Begin a session under a new id, and return that. The least recently used one makes room.

        That is one of the same operator where these have too many: nobody can end the sessions of others.
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
        """Return a session that is not over; only one that a person uses stays alive."""
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
