"""Who a request is from, whether a page of ours sent it, and the pages by which somebody signs in and out."""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlencode, urlsplit

from aiohttp import web

from assay_stream.console.answers import Answer, elsewhere, status_of
from assay_stream.console.forms import CSRF_FIELD, Fields
from assay_stream.console.identity import Identity, secret_of
from assay_stream.console.oidc import OidcWay
from assay_stream.console.operators import Operator, Session
from assay_stream.console.pages import PAGES
from assay_stream.console.posting import posted_fields
from assay_stream.console.rendering import url
from assay_stream.console.sessions import Sessions
from assay_stream.console.throttle import Throttle, network_of
from assay_stream.console.users import Users
from assay_stream.console.ways import Admitted, LocalWay, ProxyWay
from assay_stream.errors import AssayStreamError, InputError
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits

_log = logging.getLogger(__name__)

SIGN_IN = "/sign-in"
SIGN_OUT = "/sign-out"
START = "/sign-in/start"
CALLBACK = "/sign-in/callback"

_COOKIE = "assay-stream"
_PENDING = "assay-stream-pending"
_DEVICE = "assay-stream-device"

Way = LocalWay | ProxyWay | OidcWay


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Who a request is from.

    Args:
        session: ``None`` where nobody signed in.
        session_id: of one that has just begun, for the browser to keep.
    """

    session: Session | None
    session_id: str | None = None


class Door:
    """Knows who asks, and lets people in.

    Args:
        way: how it knows people; without one only sessions that there are.
        identity: where the console is reached.
        is_tls: whether the console itself speaks TLS.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        way: Way | None = None,
        identity: Identity | None = None,
        is_tls: bool = False,
        limits: ConsoleLimits = CONSOLE_LIMITS,
    ) -> None:
        self.sessions = sessions
        self._way = way
        self._identity = identity
        self._limits = limits
        self._is_secure = is_tls or (identity is not None and identity.is_secure)

    async def aclose(self) -> None:
        """Let nobody in any more."""
        if isinstance(self._way, LocalWay):
            self._way.close()
        elif isinstance(self._way, OidcWay):
            await self._way.aclose()

    def visit(self, request: web.Request) -> Visit:
        """Return who a request is from.

        Raises:
            InputError: ``identity_refused``, ``may_not_look``.
        """
        session_id = request.cookies.get(self._name(_COOKIE))
        session = None
        if session_id is not None:
            is_used = request.headers.get("Sec-Fetch-Dest") != "empty"
            session = self.sessions.find(session_id, is_used=is_used, holds=self._holds)
        if not isinstance(self._way, ProxyWay):
            return Visit(session=session)
        operator = self._way.operator_of(request)
        if session is not None and session.operator == operator:
            return Visit(session=replace(session, can_sign_out=False))
        if session_id is not None:
            self.sessions.end(session_id)
        new_id = self.sessions.begin(operator)
        session = self.sessions.find(new_id)
        return Visit(session=None if session is None else replace(session, can_sign_out=False), session_id=new_id)

    async def answer(self, request: web.Request, visit: Visit) -> Answer | web.Response | None:
        """Return what signing in or out shows, ``None`` where a request is about something else."""
        target = (request.method.replace("HEAD", "GET"), request.path)
        if isinstance(self._way, ProxyWay):
            return None
        if target == ("POST", SIGN_OUT):
            return await self._sign_out(request, visit.session)
        if self._way is None or not request.path.startswith(SIGN_IN):
            return None
        address = own_address(request.query.get("next"))
        name, device = "", request.cookies.get(self._name(_DEVICE), "")
        try:
            if target == ("GET", SIGN_IN):
                return self._page(address)
            if isinstance(self._way, OidcWay):
                if target == ("GET", START):
                    provider, note = await self._way.begin(address)
                    response = elsewhere(provider)
                    self._keep(response, _PENDING, note, max_age=self._limits.pending_s)
                    return response
                if target == ("GET", CALLBACK):
                    note = request.cookies.get(self._name(_PENDING), "")
                    admitted, address = await self._way.finish(request.query, note, self._source(request), device)
                    return self._admitted(request, admitted, address)
            elif target == ("POST", SIGN_IN):
                if not self.is_own_form(request):
                    raise InputError("sign_in_refused", f"this form is not a page's of {self._own(request)}: open that")
                fields = await posted_fields(request, self._limits)
                address = own_address(_first(fields, "next"))
                name = _first(fields, "user").strip()
                admitted = await self._way.admit(name, _first(fields, "password"), self._source(request), device)
                return self._admitted(request, admitted, address)
        except AssayStreamError as error:
            if error.code in ("sign_in_refused", "may_not_look"):
                # Without the name: people type passwords there.
                _log.warning("a sign-in from %s was refused: %s", self._source(request), error.code)
            return self._page(address, error, name)
        return None

    def refusal(self, request: web.Request) -> web.Response | None:
        """Return where somebody goes who asks for a page without a session; ``None`` where there is nowhere to go."""
        if self._way is None or isinstance(self._way, ProxyWay) or request.path == "/events":
            return None
        return elsewhere(url(SIGN_IN, next=own_address(request.path_qs)))

    def admit(self, response: web.StreamResponse, session_id: str) -> None:
        """Hand a session to the browser."""
        self._keep(response, _COOKIE, session_id)

    def is_own_form(self, request: web.Request) -> bool:
        """Tell whether a page of ours posted this. A browser that does not say is not believed."""
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return False
        origins = request.headers.getall("Origin", [])
        if not origins:
            return "Sec-Fetch-Site" in request.headers
        return len(origins) == 1 and _origin(self._own(request)) == _origin(origins[0]) is not None

    def _own(self, request: web.Request) -> str:
        own = None if self._identity is None else self._identity.address
        return own or f"{request.scheme}://{request.headers.get('Host', '')}"

    def _holds(self, operator: Operator, proof: str) -> bool:
        return not isinstance(self._way, LocalWay) or self._way.still_is(operator, proof)

    def _admitted(self, request: web.Request, admitted: Admitted, address: str) -> web.Response:
        """Begin a session under a new id; the one that the browser had is over."""
        before = request.cookies.get(self._name(_COOKIE))
        if before is not None:
            self.sessions.end(before)
        _log.info("%s signed in from %s", admitted.operator.name, self._source(request))
        response = elsewhere(address)
        self.admit(response, self.sessions.begin(admitted.operator, admitted.proof))
        if admitted.device:
            self._keep(response, _DEVICE, admitted.device, max_age=self._limits.device_s)
        response.del_cookie(self._name(_PENDING), path="/", secure=self._is_secure, httponly=True, samesite="Lax")
        return response

    async def _sign_out(self, request: web.Request, session: Session | None) -> Answer | web.Response:
        session_id = request.cookies.get(self._name(_COOKIE))
        fields: Fields = {}
        with suppress(InputError):
            fields = await posted_fields(request, self._limits)
        # Of another site too where there is no session: its browser does not send the cookie, but would drop it.
        if not self.is_own_form(request) or (session is not None and not has_token(fields, session)):
            data = {"what": "You are still signed in.", "advice": "Load the page again to sign out.", "code": None}
            return Answer(template="problem.html", data=data, status=403)
        if session_id is not None:
            self.sessions.end(session_id)
        response = elsewhere(SIGN_IN)
        response.del_cookie(self._name(_COOKIE), path="/", secure=self._is_secure, httponly=True, samesite="Lax")
        return response

    def _page(self, address: str, error: AssayStreamError | None = None, name: str = "") -> Answer:
        data = {
            "has_password": isinstance(self._way, LocalWay),
            "start": url(START, next=address),
            "next": address,
            "error": error,
            "user": name,
        }
        return Answer(template="sign_in.html", data=data, status=200 if error is None else status_of(error))

    def _source(self, request: web.Request) -> str:
        """Return the network that a request comes from, by the word of a proxy where there is one to believe."""
        forwarded = ",".join(request.headers.getall("X-Forwarded-For", []))
        hops = [*map(str.strip, forwarded.split(",")), request.remote]
        is_proxy = (lambda _: False) if self._identity is None else self._identity.is_proxy
        return network_of(next((hop for hop in reversed(hops) if not is_proxy(hop)), request.remote))

    def _name(self, cookie: str) -> str:
        # Only this host can set such a cookie, over TLS; another host of its domain cannot plant one.
        return f"__Host-{cookie}" if self._is_secure else cookie

    def _keep(self, response: web.StreamResponse, cookie: str, value: str, max_age: int | None = None) -> None:
        response.set_cookie(
            self._name(cookie), value, path="/", secure=self._is_secure, httponly=True, samesite="Lax", max_age=max_age
        )


def now_us() -> int:
    """Return the time now, microseconds since the epoch."""
    return time.time_ns() // 1_000


def open_door(
    identity: Identity,
    *,
    decides: bool,
    is_tls: bool = False,
    clock: Callable[[], int] = now_us,
    limits: ConsoleLimits = CONSOLE_LIMITS,
) -> Door:
    """Return the door.

    Args:
        decides: whether anything can be decided in this console.
        is_tls: whether the console itself speaks TLS.

    Raises:
        ConfigurationError: ``bad_identity``, ``bad_users``, ``bad_secret_file``, ``bad_tls_file``.
    """
    throttle, known = (Throttle(clock, secrets.token_bytes(32), limits=limits) for _ in range(2))
    way: Way
    if identity.local is not None:
        way = LocalWay(Users(identity.local.users), throttle, known, limits, decides=decides)
    elif identity.proxy is not None:
        secret = secret_of(identity.proxy.secret_file, identity.proxy.secret_env, name="proxy.secret")
        way = ProxyWay(identity, identity.proxy, secret=secret, decides=decides, limits=limits)
    else:
        oidc, redirect = identity.oidc, f"{identity.address}{CALLBACK}"
        assert oidc is not None  # noqa: S101 -- the file has one way
        secret = secret_of(oidc.client_secret_file, oidc.client_secret_env, name="oidc.client_secret")
        way = OidcWay(
            oidc, throttle, known, redirect=redirect, secret=secret, decides=decides, clock=clock, limits=limits
        )
    return Door(Sessions(clock, limits=limits), way=way, identity=identity, is_tls=is_tls, limits=limits)


def has_token(fields: Fields, session: Session) -> bool:
    """Tell whether a form was made for this session, in a time that says nothing about its token."""
    given = fields.get(CSRF_FIELD, ())
    return len(given) == 1 and hmac.compare_digest(given[0].encode(), session.csrf_token.encode())


def own_address(text: str | None) -> str:
    """Return the address of a page of ours that a text is; anything else is the overview: nobody is led away."""
    try:
        parts = urlsplit(text or "/")
        query = urlencode(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=100), errors="replace")
    except ValueError:
        return "/"
    if parts.scheme or parts.netloc or parts.path not in PAGES:
        return "/"
    return f"{parts.path}?{query}" if query else parts.path


def _first(fields: Fields, name: str) -> str:
    return next(iter(fields.get(name, ())), "")


def _origin(text: str) -> tuple[str, str | None, int | None] | None:
    try:
        parts = urlsplit(text)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        return parts.scheme, parts.hostname, port
    except ValueError:
        return None
