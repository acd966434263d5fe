"""Parse and validate the servers of ``list-watch --config``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay_stream.errors import ConfigurationError
from assay_stream.limits.listing import LISTING_LIMITS
from assay_stream.observe.observation import Vantage

_TOP = frozenset(("servers", "interval_s"))
_FIELDS = frozenset(
    ("server_id", "url", "command", "token_file", "token_header", "env_files", "auth_context", "interval_s", "listen")
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_OF_TRANSPORT = frozenset(
    ("host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "accept")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedServer:
    """One server.

    Args:
        url: its MCP endpoint; ``None`` for a command.
        command: program and arguments; empty for a URL.
        token_file: holds the value for ``token_header``, reread for each listing.
        token_header: ``Authorization`` puts ``Bearer`` before it.
        env_files: environment variables, each from a file.
        interval_s: the longest time between two listings.
        listen: whether to stay connected for changes that the server announces.
    """

    vantage: Vantage
    url: str | None = None
    command: tuple[str, ...] = ()
    token_file: Path | None = None
    token_header: str = "Authorization"  # noqa: S105 - a name
    env_files: Mapping[str, Path] = field(default_factory=dict)
    interval_s: float
    listen: bool = True

    @property
    def host(self) -> str:
        """Key of the per-host limit: its host and port, or this machine."""
        return "" if self.url is None else urlsplit(self.url).netloc.lower()


def listed_servers(content: object, where: str, observer: Vantage) -> list[ListedServer]:
    """Return the servers in a configuration file.

    Args:
        content: its decoded content.
        where: its name, for error messages.
        observer: the observer, and defaults for optional settings of each server.

    Raises:
        ConfigurationError: ``bad_servers``, ``bad_identifier``.
    """
    entries = content.get("servers") if isinstance(content, dict) and set(content) <= _TOP else None
    if not isinstance(content, dict) or not isinstance(entries, list):
        raise _bad(where, "give a list named servers, and if you like interval_s")
    if not 1 <= len(entries) <= LISTING_LIMITS.servers_max:
        raise _bad(where, f"give 1 to {LISTING_LIMITS.servers_max} servers")
    interval_s = content.get("interval_s", LISTING_LIMITS.interval_default_s)
    found = [
        _server(entry, f"{where}, server {number}", observer, interval_s) for number, entry in enumerate(entries, 1)
    ]
    places = {(server.vantage.server_id, server.vantage.auth_context) for server in found}
    if len(places) < len(found):
        raise _bad(where, "two servers have one server_id: give each its own, or an auth_context of its own")
    return found


def _server(entry: Any, where: str, observer: Vantage, interval_s: Any) -> ListedServer:
    if not isinstance(entry, dict) or not set(entry) <= _FIELDS or not isinstance(entry.get("server_id"), str):
        raise _bad(where, f"give server_id, and of the other fields only {', '.join(sorted(_FIELDS))}")
    url, command = entry.get("url"), entry.get("command", [])
    if (url is None) == (not command):
        raise _bad(where, "give either url or command")
    if url is not None and not _is_endpoint(url):
        raise _bad(where, "url must be http(s)://host[:port]/path, without user name, query or fragment")
    if not isinstance(command, list) or not all(isinstance(part, str) and "\0" not in part for part in command):
        raise _bad(where, "command must be a list of texts: the program and its arguments")
    token_file, header = entry.get("token_file"), entry.get("token_header", "Authorization")
    if token_file is not None and (not isinstance(token_file, str) or url is None):
        raise _bad(where, "token_file must be a path, for a server with a url; a command takes env_files")
    if not isinstance(header, str) or not _HEADER_NAME.fullmatch(header) or header.lower() in _OF_TRANSPORT:
        raise _bad(where, "token_header must be the name of a header that carries credentials")
    files = entry.get("env_files", {})
    if not isinstance(files, dict) or not all(
        isinstance(name, str) and _VARIABLE.fullmatch(name) and isinstance(path, str) for name, path in files.items()
    ):
        raise _bad(where, "env_files must give the name of each variable the path of its file")
    if files and url is not None:
        raise _bad(where, "env_files are for a server with a command")
    interval_s = entry.get("interval_s", interval_s)
    is_number = isinstance(interval_s, int | float) and not isinstance(interval_s, bool)
    if not is_number or not LISTING_LIMITS.interval_min_s <= interval_s <= LISTING_LIMITS.interval_max_s:
        raise _bad(
            where, f"interval_s must be {LISTING_LIMITS.interval_min_s:g} to {LISTING_LIMITS.interval_max_s:g} seconds"
        )
    context, listen = entry.get("auth_context", observer.auth_context), entry.get("listen", True)
    if not isinstance(listen, bool) or not (context is None or isinstance(context, str)):
        raise _bad(where, "listen must be true or false, and auth_context a text")
    return ListedServer(
        vantage=Vantage(
            server_id=entry["server_id"],
            observer_id=observer.observer_id,
            server_scoped=observer.server_scoped,
            auth_context=context,
        ),
        url=url,
        command=tuple(command),
        token_file=None if token_file is None else Path(token_file),
        token_header=header,
        env_files={name: Path(path) for name, path in files.items()},
        interval_s=interval_s,
        listen=listen,
    )


def _is_endpoint(url: object) -> bool:
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        port_is_sound = parts.port is None or parts.port > 0
    except ValueError:
        return False
    is_plain = parts.username is None and not parts.query and not parts.fragment
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port_is_sound and is_plain


def _bad(where: str, why: str) -> ConfigurationError:
    return ConfigurationError("bad_servers", f"{where}: {why}")
