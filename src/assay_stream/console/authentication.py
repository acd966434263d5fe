"""Authentication of requests, protection against cross-site requests, and the pages for signing in and out."""

from __future__ import annotations

import hmac
import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from aiohttp import web

from assay_stream.canonical.decode import decode_json
from assay_stream.console.deciding import CSRF_FIELD, Fields, posted_fields
from assay_stream.console.identity import Identity, LocalUsers, Proxied, secret_of
from assay_stream.console.oidc import OidcProvider
from assay_stream.console.pages import PAGES
from assay_stream.console.rendering import Answer, Handler, elsewhere, problem, status_of, url
from assay_stream.console.sessions import Operator, Session, Sessions, SignedIn, Throttle, is_name
from assay_stream.errors import AssayStreamError, InputError
from assay_stream.limits import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.text.urls import network_of

_log = logging.getLogger(__name__)

SIGN_IN = "/sign-in"
SIGN_OUT = "/sign-out"
START = "/sign-in/start"
CALLBACK = "/sign-in/callback"
SIGN_IN_PAGES = frozenset((SIGN_IN, START, CALLBACK))
"""Shown to those who are not signed in."""

_SESSION = "assay-stream"
_PENDING = "assay-stream-pending"
_DEVICE = "assay-stream-device"


@dataclass(frozen=True, slots=True)
class ProxyHeaders:
    identity: Identity
    table: Proxied
    secret: str | None
    decides: bool
    limits: ConsoleLimits

    def operator_of(self, request: web.Request) -> Operator:
        if not self._is_from_proxy(request):
            raise InputError("identity_refused", "this did not come through the proxy that signs people in")
        name = self._one(request, self.table.user_header)
        if not is_name(name, self.limits):
            raise InputError("identity_refused", "the proxy did not say who you are: sign in there")
        return self.table.operator("proxy", name, self._groups(request), decides=self.decides)

    def _is_from_proxy(self, request: web.Request) -> bool:
        if self.identity.proxies and not self.identity.is_proxy(request.remote):
            return False
        if self.secret is None or self.table.secret_header is None:
            return bool(self.identity.proxies)
        sent = request.headers.getall(self.table.secret_header, [])
        return len(sent) == 1 and hmac.compare_digest(sent[0].encode("utf-8", "surrogateescape"), self.secret.encode())

    def _groups(self, request: web.Request) -> set[str]:
        header, form = self.table.groups_header, self.table.groups_format
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
        """Return a header that must not occur twice: one of the two could be the client's."""
        sent = request.headers.getall(header, [])
        if len(sent) > 1:
            raise InputError("identity_refused", f"{header} is given twice: the proxy must remove what clients send")
        return sent[0] if sent else ""


@dataclass(eq=False, repr=False)
class Authenticator:
    sessions: Sessions
    _: KW_ONLY
    backend: LocalUsers | ProxyHeaders | OidcProvider | None = None
    identity: Identity | None = None
    is_tls: bool = False
    limits: ConsoleLimits = CONSOLE_LIMITS

    def __post_init__(self) -> None:
        self._is_secure = self.is_tls or (self.identity is not None and self.identity.is_secure)

    async def aclose(self) -> None:
        if isinstance(self.backend, LocalUsers):
            self.backend.close()
        elif isinstance(self.backend, OidcProvider):
            await self.backend.aclose()

    def routes(self) -> list[web.RouteDef]:
        backend = self.backend
        if isinstance(backend, ProxyHeaders):
            return []
        found: list[tuple[Callable[..., web.RouteDef], str, Handler]] = [(web.post, SIGN_OUT, self._sign_out)]
        if backend is not None:
            found.append((web.get, SIGN_IN, self._form))
        if isinstance(backend, OidcProvider):
            found.append((web.get, START, partial(self._start, backend)))
            found.append((web.get, CALLBACK, partial(self._come_back, backend)))
        elif backend is not None:
            found.append((web.post, SIGN_IN, partial(self._sign_in, backend)))
        return [route(path, self._shown(handler)) for route, path, handler in found]

    def _shown(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> Any:
            try:
                return await handler(request)
            except AssayStreamError as error:
                if error.code in ("sign_in_refused", "may_not_look"):
                    # Without the name: people type passwords there.
                    _log.warning("a sign-in from %s was refused: %s", self._source(request), error.code)
                return self._page(request, error)

        return handle

    async def _form(self, request: web.Request) -> Answer:
        return self._page(request)

    def session_of(self, request: web.Request) -> Session | None:
        """Return the session of a request; a proxy's headers may start one."""
        session_id = request.cookies.get(self._name(_SESSION), "")
        is_used = request.headers.get("Sec-Fetch-Dest") != "empty"  # a page that updates itself keeps nothing alive
        session = self.sessions.find(session_id, is_used=is_used)
        backend = self.backend
        if isinstance(backend, LocalUsers) and session and not backend.is_valid(session.operator, session.proof):
            self.sessions.end(session_id)
            return None
        if not isinstance(backend, ProxyHeaders):
            return session
        operator = backend.operator_of(request)
        if session is None or session.operator != operator:
            self.sessions.end(session_id)
            request["new_session_id"] = self.sessions.begin(operator, can_sign_out=False)
            session = self.sessions.find(request["new_session_id"])
        return session

    def keep_session(self, request: web.Request, response: web.StreamResponse) -> None:
        """Set the cookie of a session that the request started, if any."""
        if "new_session_id" in request:
            self._set_cookie(response, _SESSION, request["new_session_id"])

    def refusal(self, request: web.Request) -> web.Response | None:
        """Redirect a request without a session to the sign-in page; ``None`` if there is none."""
        if self.backend is None or isinstance(self.backend, ProxyHeaders) or request.path == "/events":
            return None
        return elsewhere(url(SIGN_IN, next=own_address(request.path_qs)))

    def is_own_form(self, request: web.Request) -> bool:
        """Return True if one of our pages posted this. A browser that sends no such header is not trusted."""
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return False
        origins = request.headers.getall("Origin", [])
        if not origins:
            return "Sec-Fetch-Site" in request.headers
        return len(origins) == 1 and _origin(self._address(request)) == _origin(origins[0]) is not None

    def _address(self, request: web.Request) -> str:
        own = None if self.identity is None else self.identity.address
        return own or f"{request.scheme}://{request.headers.get('Host', '')}"

    async def _sign_in(self, users: LocalUsers, request: web.Request) -> web.Response:
        if not self.is_own_form(request):
            own = self._address(request)
            raise InputError("sign_in_refused", f"this form is not a page's of {own}: open that")
        fields = await posted_fields(request, self.limits)
        user, password, address = (next(iter(fields.get(name, ())), "") for name in ("user", "password", "next"))
        request["next"], request["user"] = own_address(address), user.strip()
        device = request.cookies.get(self._name(_DEVICE), "")
        return self._begin(request, await users.sign_in(request["user"], password, self._source(request), device))

    async def _start(self, provider: OidcProvider, request: web.Request) -> web.Response:
        location, held = await provider.begin(own_address(request.query.get("next")))
        response = elsewhere(location)
        self._set_cookie(response, _PENDING, held, max_age=self.limits.pending_s)
        return response

    async def _come_back(self, provider: OidcProvider, request: web.Request) -> web.Response:
        held, device = (request.cookies.get(self._name(cookie), "") for cookie in (_PENDING, _DEVICE))
        signed_in, request["next"] = await provider.finish(request.query, held, self._source(request), device)
        return self._begin(request, signed_in)

    def _begin(self, request: web.Request, signed_in: SignedIn) -> web.Response:
        """Start a session under a new id; the browser's previous one ends."""
        self.sessions.end(request.cookies.get(self._name(_SESSION), ""))
        _log.info("%s signed in from %s", signed_in.operator.name, self._source(request))
        response = elsewhere(request["next"])
        self._set_cookie(response, _SESSION, self.sessions.begin(signed_in.operator, signed_in.proof))
        self._set_cookie(response, _DEVICE, signed_in.device, max_age=self.limits.device_s)
        self._delete_cookie(response, _PENDING)
        return response

    async def _sign_out(self, request: web.Request) -> Answer | web.Response:
        session, fields = request["session"], {}
        with suppress(InputError):
            fields = dict(await posted_fields(request, self.limits))
        # Of another site too where there is no session: its browser does not send the cookie, but would drop it.
        if not self.is_own_form(request) or (session is not None and not has_token(fields, session)):
            return problem(403, "You are still signed in.", "Load the page again to sign out.")
        self.sessions.end(request.cookies.get(self._name(_SESSION), ""))
        response = elsewhere(SIGN_IN)
        self._delete_cookie(response, _SESSION)
        return response

    def _page(self, request: web.Request, error: AssayStreamError | None = None) -> Answer:
        address = request.get("next", own_address(request.query.get("next")))
        data = {
            "has_password": isinstance(self.backend, LocalUsers),
            "start": url(START, next=address),
            "next": address,
            "error": error,
            "user": request.get("user", ""),
        }
        return Answer(template="sign_in.html", data=data, status=200 if error is None else status_of(error))

    def _source(self, request: web.Request) -> str:
        """Return the network that a request comes from, as stated by a trusted proxy if there is one."""
        forwarded = ",".join(request.headers.getall("X-Forwarded-For", []))
        hops = [*map(str.strip, forwarded.split(",")), request.remote]
        is_proxy = (lambda _: False) if self.identity is None else self.identity.is_proxy
        return network_of(next((hop for hop in reversed(hops) if not is_proxy(hop)), request.remote))

    def _name(self, cookie: str) -> str:
        # Only this host can set such a cookie, over TLS; another host of its domain cannot plant one.
        return f"__Host-{cookie}" if self._is_secure else cookie

    def _set_cookie(self, response: web.StreamResponse, cookie: str, value: str, max_age: int | None = None) -> None:
        response.set_cookie(
            self._name(cookie), value, path="/", secure=self._is_secure, httponly=True, samesite="Lax", max_age=max_age
        )

    def _delete_cookie(self, response: web.StreamResponse, cookie: str) -> None:
        response.del_cookie(self._name(cookie), path="/", secure=self._is_secure, httponly=True, samesite="Lax")


def now_us() -> int:
    return time.time_ns() // 1_000


def open_authenticator(
    identity: Identity,
    *,
    decides: bool,
    is_tls: bool = False,
    clock: Callable[[], int] = now_us,
    limits: ConsoleLimits = CONSOLE_LIMITS,
) -> Authenticator:
    """Build the authenticator from the identity settings.

    Args:
        decides: whether this console records decisions.
        is_tls: whether the console itself terminates TLS.

    Raises:
        ConfigurationError: ``bad_identity``, ``bad_users``, ``bad_secret_file``, ``bad_tls_file``.
    """
    throttle = Throttle(clock, limits)
    backend: LocalUsers | ProxyHeaders | OidcProvider
    if identity.local is not None:
        backend = LocalUsers(identity.local.users, throttle, decides=decides, limits=limits)
    elif identity.proxy is not None:
        secret = secret_of(identity.proxy.secret_file, identity.proxy.secret_env, name="proxy.secret")
        backend = ProxyHeaders(identity, identity.proxy, secret=secret, decides=decides, limits=limits)
    else:
        oidc = identity.oidc
        assert oidc is not None  # noqa: S101 -- the file has one way
        secret = secret_of(oidc.client_secret_file, oidc.client_secret_env, name="oidc.client_secret")
        redirect = f"{identity.address}{CALLBACK}"
        backend = OidcProvider(
            oidc, throttle, redirect=redirect, secret=secret, decides=decides, clock=clock, limits=limits
        )
    sessions = Sessions(clock, limits=limits)
    return Authenticator(sessions, backend=backend, identity=identity, is_tls=is_tls, limits=limits)


def has_token(fields: Fields, session: Session) -> bool:
    """Return True if a form has this session's CSRF token; constant time."""
    given = fields.get(CSRF_FIELD, ())
    return len(given) == 1 and hmac.compare_digest(given[0].encode(), session.csrf_token.encode())


def own_address(text: str | None) -> str:
    """Return ``text`` if it is an address of our own, otherwise the overview: no open redirect.

    A link can name it, which must not ask for a decision or report one. What a browser requests after signing in looks
    like a request of our own page.
    """
    try:
        parts = urlsplit(text or "/")
        fields = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=100)
        query = urlencode([each for each in fields if each[0] != "recorded"], errors="replace")
    except ValueError:
        return "/"
    if parts.scheme or parts.netloc or parts.path not in PAGES:
        return "/"
    if parts.path == "/confirm":
        return "/reviews"
    return f"{parts.path}?{query}" if query else parts.path


def _origin(text: str) -> tuple[str, str | None, int | None] | None:
    try:
        parts = urlsplit(text)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        return parts.scheme, parts.hostname, port
    except ValueError:
        return None
