"""Sessions, kept by the server: a browser holds an id that means nothing elsewhere."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from assay_stream.console.operators import Operator, Session
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits

_S = 1_000_000


@dataclass(slots=True, kw_only=True)
class _Kept:
    session: Session
    proof: str
    begun_us: int
    used_us: int


class Sessions:
    """All sessions. One that was not used for a while is over, and so is one that began long ago.

    They end with the process. Used from the event loop only.

    Args:
        clock: the time now, microseconds since the epoch.
        new_token: makes what nobody can guess.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        new_token: Callable[[], str] = secrets.token_urlsafe,
        limits: ConsoleLimits = CONSOLE_LIMITS,
    ) -> None:
        self._clock = clock
        self._new_token = new_token
        self._limits = limits
        # Found by a hash of the id: how long a look-up takes says nothing about an id. The least recently used first.
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    def begin(self, operator: Operator, proof: str = "") -> str:
        """Begin a session, always under a new id, and return that.

        Somebody who has too many loses the one that was used least recently; so does everybody where all have too many.

        Args:
            proof: what showed who it is.
        """
        own = [key for key, kept in self._kept.items() if kept.session.operator.name == operator.name]
        if len(own) >= self._limits.operator_sessions_max:
            del self._kept[own[0]]
        elif len(self._kept) >= self._limits.sessions_max:
            self._kept.popitem(last=False)
        session_id, now_us = self._new_token(), self._clock()
        session = Session(operator=operator, csrf_token=self._new_token())
        self._kept[_key(session_id)] = _Kept(session=session, proof=proof, begun_us=now_us, used_us=now_us)
        return session_id

    def find(
        self, session_id: str, *, is_used: bool = True, holds: Callable[[Operator, str], bool] = lambda *_: True
    ) -> Session | None:
        """Return a session that is not over.

        Args:
            holds: whether a proof still shows who it is.
            is_used: whether somebody uses it: a page that keeps itself up to date does not keep its session alive.
        """
        key, now_us = _key(session_id), self._clock()
        kept = self._kept.get(key)
        if kept is None:
            return None
        if (
            now_us - kept.begun_us >= self._limits.session_s * _S
            or now_us - kept.used_us >= self._limits.session_idle_s * _S
            or not holds(kept.session.operator, kept.proof)
        ):
            del self._kept[key]
            return None
        if is_used:
            kept.used_us = now_us
            self._kept.move_to_end(key)
        return kept.session

    def end(self, session_id: str) -> None:
        """End a session, if there is one."""
        self._kept.pop(_key(session_id), None)

    def __len__(self) -> int:
        return len(self._kept)


def _key(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).digest()
