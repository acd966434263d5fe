"""How the console knows who somebody is: users of its own, or the word of a proxy or of a provider."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import web

from assay_stream.canonical.decode import decode_json
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
        device: for the browser to keep: attempts of others do not keep one out that has it.
    """

    operator: Operator
    proof: str = ""
    device: str = ""


class LocalWay:
    """Users with passwords.

    Args:
        throttle, known: count failed attempts, from browsers that have signed the user in before apart from others.
        decides: whether anything can be decided in this console.
    """

    def __init__(
        self, users: Users, throttle: Throttle, known: Throttle, limits: ConsoleLimits, *, decides: bool
    ) -> None:
        self._users = users
        self._throttle, self._known = throttle, known
        self._decides = decides
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.hashing_threads, "assay-stream sign-in")
        self._room = threading.BoundedSemaphore(limits.hashing_max)

    async def admit(self, name: str, password: str, source: str, device: str = "") -> Admitted:
        """Let a user in. Unknown ones cost the same time, and get the same answer.

        Args:
            source: the network that the attempt comes from.
            device: what the browser kept from an earlier sign-in, if it did.

        Raises:
            InputError: ``sign_in_refused``, ``sign_in_limited``.
            OperatingError: ``console_busy``.
        """
        if len(password) > self._limits.password_chars_max:
            raise _refused()
        user, limits = self._users.get(name), self._limits
        hashed = self._users.nobodys_hash() if user is None else user.hash
        if hmac.compare_digest(device.encode(errors="replace"), _device(hashed, device.partition(".")[0]).encode()):
            throttle, counted = self._known, {device: limits.user_attempts_max}
        else:
            throttle, device = self._throttle, _device(hashed, secrets.token_urlsafe(16))
            counted = {
                f"{source} {name}": limits.user_attempts_max,
                source: limits.source_attempts_max,
                f"user {name}": limits.strangers_attempts_max,
            }
        if not all(throttle.take(*each) for each in counted.items()):
            raise limited(limits)
        try:
            is_right = await self._is_password(hashed, password)
        except OperatingError:  # it was not looked at
            throttle.forgive(*counted)
            raise
        if user is None or not is_right:
            raise _refused()
        throttle.forgive(*counted)
        return Admitted(operator=self._operator(name, user.role), proof=user.hash, device=device)

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
        if not name or not is_name(name, self._limits.identity_chars_max):
            raise InputError("identity_refused", "the proxy did not say who you are: sign in there")
        operator = self._table.operator("proxy", name, self._groups(request), decides=self._decides)
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

    def _groups(self, request: web.Request) -> set[str]:
        header, form = self._table.groups_header, self._table.groups_format
        if header is None or not any(request.headers.getall(header, [])):
            return set()
        if form == "headers":
            return set(request.headers.getall(header))
        sent = self._one(request, header)
        if form != "json":
            # Proxies that escape what separates groups put a backslash before it.
            return set(re.split(rf"(?<!\\){re.escape(form)}", sent))
        with suppress(InputError):
            groups = decode_json(sent.encode("utf-8", "surrogateescape"))
            if isinstance(groups, list):
                return {each for each in groups if isinstance(each, str)}
        raise InputError("identity_refused", f"{header} is not a JSON array: set groups_format to what the proxy sends")

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


def limited(limits: ConsoleLimits) -> InputError:
    return InputError(
        "sign_in_limited", f"too many attempts failed: try again in {limits.sign_in_window_s // 60} minutes"
    )


def _device(hashed: str, number: str) -> str:
    """Return what a browser keeps: only who knows a user's hash can make it, and a new password ends it."""
    return f"{number}.{hmac.digest(hashed.encode(), b'device ' + number.encode(), 'sha256').hex()}"


def _refused() -> InputError:
    return InputError("sign_in_refused", "wrong name or password")
