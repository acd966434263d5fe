"""Who a request is from, and whether a page of ours sent it."""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from aiohttp import web

from assay_stream.console.forms import CSRF_FIELD, Fields
from assay_stream.console.operators import Session
from assay_stream.console.sessions import Sessions

_COOKIE = "assay-stream"


class Door:
    """Knows who asks.

    Args:
        origin: the console's own, such as ``https://console.example``; ``None`` where it is served over HTTP to this
            machine only, by whatever name that has.
    """

    def __init__(self, sessions: Sessions, *, origin: str | None = None) -> None:
        self.sessions = sessions
        self._origin = origin
        self._is_secure = origin is not None and origin.startswith("https:")
        self._cookie = f"__Host-{_COOKIE}" if self._is_secure else _COOKIE

    def session_of(self, request: web.Request) -> Session | None:
        """Return the session of a request, ``None`` where there is none, or it is over."""
        session_id = request.cookies.get(self._cookie)
        if session_id is None:
            return None
        return self.sessions.find(session_id, is_used=request.headers.get("Sec-Fetch-Dest") != "empty")

    def admit(self, response: web.Response, session_id: str) -> None:
        """Hand a session to the browser."""
        response.set_cookie(self._cookie, session_id, path="/", secure=self._is_secure, httponly=True, samesite="Lax")

    def is_own_form(self, request: web.Request) -> bool:
        """Tell whether a page of ours posted this. A browser that does not say is not believed."""
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return False
        origins = request.headers.getall("Origin", [])
        if not origins:
            return "Sec-Fetch-Site" in request.headers
        own = self._origin or f"{request.scheme}://{request.headers.get('Host', '')}"
        return len(origins) == 1 and _origin(own) == _origin(origins[0]) is not None


def has_token(fields: Fields, session: Session) -> bool:
    """Tell whether a form was made for this session, in a time that says nothing about its token."""
    given = fields.get(CSRF_FIELD, ())
    return len(given) == 1 and hmac.compare_digest(given[0].encode(), session.csrf_token.encode())


def _origin(text: str) -> tuple[str, str | None, int | None] | None:
    try:
        parts = urlsplit(text)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        return parts.scheme, parts.hostname, port
    except ValueError:
        return None
