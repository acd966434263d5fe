"""The MCP servers behind a tap, and the tap's path for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from assay_stream.errors import ConfigurationError
from assay_stream.limits.serving import HTTP_LIMITS
from assay_stream.observe.observation import Vantage

WELL_KNOWN = ("/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server")
"""Paths for authorisation discovery (RFC 9728, RFC 8414), each followed by the endpoint's path."""

_FIELDS = frozenset(("server_id", "url", "path", "auth_context"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """One server.

    Args:
        url: its MCP endpoint.
        path: the tap's path for it.

    Raises:
        ConfigurationError: ``bad_upstream``.
    """

    vantage: Vantage
    url: str
    path: str = ""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
        except ValueError:
            usable = False
        if not usable or parts.username is not None or parts.query or parts.fragment or not self.url.isascii():
            raise ConfigurationError(
                "bad_upstream",
                f"the upstream of {self.vantage.server_id!r} must be http(s)://host[:port]/path, without user name, "
                "query or fragment",
            )
        object.__setattr__(self, "path", self.path or parts.path or "/")
        if not self.path.startswith("/") or not self.path.isascii() or set(self.path) & set("?#% "):
            raise ConfigurationError(
                "bad_upstream", f"the path of {self.vantage.server_id!r} must begin with / and be plain: /name"
            )

    @property
    def origin(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def routes(upstreams: Sequence[Upstream]) -> dict[str, tuple[Upstream, str]]:
    """Return the server and URL behind each path of the tap.

    Raises:
        ConfigurationError: ``bad_upstream`` if two servers share a path.
    """
    found: dict[str, tuple[Upstream, str]] = {}
    for upstream in upstreams:
        if upstream.path in found:
            raise ConfigurationError("bad_upstream", f"two servers have the path {upstream.path}: give each its own")
        found[upstream.path] = upstream, upstream.url
        behind = urlsplit(upstream.url).path.rstrip("/")
        for place in WELL_KNOWN:
            found[place + upstream.path.rstrip("/")] = upstream, upstream.origin + place + behind
    if len(upstreams) == 1:
        for place in (*WELL_KNOWN, "/.well-known/openid-configuration"):
            found.setdefault(place, (upstreams[0], upstreams[0].origin + place))
    return found


def listed_upstreams(content: object, where: str, observer: Vantage) -> list[Upstream]:
    """Return the servers that a configuration file lists.

    Args:
        content: its decoded content.
        where: its name, for error messages.
        observer: the observer, and defaults for optional settings of each server.

    Raises:
        ConfigurationError: ``bad_upstream``.
    """
    listed = content.get("upstreams") if isinstance(content, dict) and set(content) == {"upstreams"} else None
    if not isinstance(listed, list) or not 1 <= len(listed) <= HTTP_LIMITS.upstreams_max:
        raise ConfigurationError(
            "bad_upstream", f"{where} must hold a list named upstreams, with 1 to {HTTP_LIMITS.upstreams_max} entries"
        )
    return [_upstream(entry, f"{where}, entry {number}", observer) for number, entry in enumerate(listed, 1)]


def _upstream(entry: Any, where: str, observer: Vantage) -> Upstream:
    is_sound = isinstance(entry, Mapping) and {"server_id", "url", "path"} <= set(entry) <= _FIELDS
    if not is_sound or not all(isinstance(value, str) for value in entry.values()):
        raise ConfigurationError(
            "bad_upstream", f"{where}: give server_id, url and path, and if you like auth_context, each as text"
        )
    vantage = Vantage(
        server_id=entry["server_id"],
        observer_id=observer.observer_id,
        server_scoped=observer.server_scoped,
        auth_context=entry.get("auth_context", observer.auth_context),
    )
    return Upstream(vantage=vantage, url=entry["url"], path=entry["path"])
