"""What a page is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from assay_stream.errors import AssayStreamError, InputError
from assay_stream.limits.console import CONSOLE_LIMITS
from assay_stream.readmodel.rows import Paging

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without one, browsers leave the origin of a form out
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "assay-stream",
}
"""Of every answer."""

_STATUS = {
    "unknown_uid": 404,
    "not_signed_in": 401,
    "sign_in_refused": 401,
    "sign_in_limited": 429,
    "identity_refused": 403,
    "may_not_look": 403,
    "may_not_decide": 403,
    "form_outdated": 403,
    "console_failed": 500,
}

FEW = Paging(limit=CONSOLE_LIMITS.few_rows)
"""Rows of a table that is not what its page is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A page to be rendered.

    Args:
        status: HTTP status.
    """

    template: str
    data: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


def absent(what: str, advice: str) -> Answer:
    """Return the page for something that is not in the store; ``advice`` suggests what to do."""
    return Answer(template="problem.html", data={"what": what, "advice": advice, "code": None}, status=404)


def status_of(error: AssayStreamError) -> int:
    """Return the HTTP status for an error."""
    found = _STATUS.get(error.code)
    if found is not None:
        return found
    return 400 if isinstance(error, InputError) and not error.code.startswith("store_") else 503


def elsewhere(address: str) -> web.Response:
    """Redirect to another page."""
    return web.Response(status=303, headers=HEADERS | {"Location": address})
