"""How the console knows who somebody is: users of its own, or the word of a proxy or of a provider."""

from __future__ import annotations

import asyncio
import hmac
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from aiohttp import web

from assay_stream.console.identity import Identity, Proxied
from assay_stream.console.operators import Operator
from assay_stream.console.throttle import Throttle
from assay_stream.console.users import UserRole, Users, is_password
from assay_stream.errors import InputError, OperatingError
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """Somebody who has just shown who they are.

    Args:
        proof: by what. A session ends once this is not what proves it any more.
    """

    operator: Operator
    proof: str = ""


class LocalWay:
    """Users with passwords.

    Args:
        by_user, by_source: count failed attempts.
        decides: whether anything can be decided in this console.
    """

    def __init__(
        self,
        users: Users,
        *,
        by_user: Throttle,
        by_source: Throttle,
        decides: bool,
        limits: ConsoleLimits = CONSOLE_LIMITS,
    ) -> None:
        self._users = users
        self._by_user = by_user
        self._by_source = by_source
        self._decides = decides
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.hashing_threads, "assay-stream sign-in")
        self._room = threading.BoundedSemaphore(limits.hashing_max)

    async def admit(self, name: str, password: str, source: str) -> Admitted:
        """Let a user in. Unknown ones cost the same time, and get the same answer.

        Args:
            source: the network that the attempt comes from.

        Raises:
            InputError: ``sign_in_refused``, ``sign_in_limited``.
            OperatingError: ``console_busy``.
        """
        if len(password) > self._limits.password_chars_max:
            raise _refused()
        if not (self._by_source.take(source) and self._by_user.take(name)):
            raise InputError(
                "sign_in_limited",
                f"too many attempts failed: try again in {self._limits.sign_in_window_s // 60} minutes",
            )
        user = self._users.get(name)
        hashed = self._users.nobodys_hash() if user is None else user.hash
        is_right = await self._is_password(hashed, password)
        if user is None or not is_right:
            raise _refused()
        self._by_source.forgive(source)
        self._by_user.forgive(name)
        return Admitted(operator=self._operator(name, user.role), proof=user.hash)

    def still_is(self, operator: Operator, proof: str) -> bool:
        """Tell whether a user who signed in is there still, with the same role and password."""
        name = operator.name.removeprefix("local:")
        user = self._users.get(name)
        return user is not None and user.hash == proof and self._operator(name, user.role) == operator

    def close(self) -> None:
        """Take no further attempts."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _operator(self, name: str, role: UserRole) -> Operator:
        return Operator(name=f"local:{name}", may_decide=role is UserRole.OPERATOR and self._decides)

    async def _is_password(self, hashed: str, password: str) -> bool:
        if not self._room.acquire(blocking=False):
            raise OperatingError("console_busy", "too many people sign in at once: try again in a few seconds")
        try:
            pending = self._pool.submit(is_password, hashed, password)
        except BaseException:
            self._room.release()
            raise
        pending.add_done_callback(lambda _: self._room.release())
        return await asyncio.wrap_future(pending)


class ProxyWay:
    """The word of a proxy, with each request.

    Args:
        secret: that the proxy sends along, if it was given one.
    """

    def __init__(
        self,
        identity: Identity,
        table: Proxied,
        *,
        secret: str | None,
        decides: bool,
        limits: ConsoleLimits = CONSOLE_LIMITS,
    ) -> None:
        self._identity = identity
        self._table = table
        self._secret = secret
        self._decides = decides
        self._limits = limits

    def operator_of(self, request: web.Request) -> Operator:
        """Return who a request is from.

        Raises:
            InputError: ``identity_refused``, ``may_not_look``.
        """
        if not self._is_from_proxy(request):
            raise InputError("identity_refused", "this did not come through the proxy that signs people in")
        name = self._one(request, self._table.user_header)
        groups = "" if self._table.groups_header is None else self._one(request, self._table.groups_header)
        if not name or not is_name(name, self._limits.identity_chars_max):
            raise InputError("identity_refused", "the proxy did not say who you are: sign in there")
        names = {each.strip() for each in groups.split(",")} - {""}
        operator = self._table.operator("proxy", name, names, decides=self._decides)
        if operator is None:
            raise may_not_look()
        return operator

    def _is_from_proxy(self, request: web.Request) -> bool:
        if self._identity.proxies and not self._identity.is_proxy(request.remote):
            return False
        if self._secret is None or self._table.secret_header is None:
            return bool(self._identity.proxies)
        sent = request.headers.getall(self._table.secret_header, [])
        return len(sent) == 1 and hmac.compare_digest(sent[0].encode("utf-8", "surrogateescape"), self._secret.encode())

    def _one(self, request: web.Request, header: str) -> str:
        """Return a header that must not be given twice: one of the two could be the client's."""
        sent = request.headers.getall(header, [])
        if len(sent) > 1:
            raise InputError("identity_refused", f"{header} is given twice: the proxy must remove what clients send")
        return sent[0] if sent else ""


def is_name(text: str, chars_max: int) -> bool:
    """Tell whether a text can name somebody in a record, and on a page."""
    return len(text) <= chars_max and text == text.strip() and text.isprintable()


def may_not_look() -> InputError:
    return InputError("may_not_look", "you are known, but not let in: ask who runs the console")


def _refused() -> InputError:
    return InputError("sign_in_refused", "wrong name or password")
