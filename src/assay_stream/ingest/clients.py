"""Client credentials of ``ingest``: a file that holds hashes of tokens, never a token.

    [[clients]]
    observer_id = "gateway-1"
    servers = ["time", "github-*"]
    token = "sha256:9f86d0..."            # made by: assay-stream ingest token
    expires = 2027-01-31T00:00:00Z

    [[clients]]
    observer_id = "gateway-2"
    servers = ["*"]
    certificate = "DNS:gateway-2.internal"

A token has 256 random bits, so its plain hash cannot be turned back; nothing that is not made so counts as a token.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.local import decode_toml
from assay_stream.limits import INGEST_LIMITS
from assay_stream.model.fields import compile_glob
from assay_stream.observe.observation import Vantage
from assay_stream.text.times import time_us_of

TOKEN_PREFIX = "asi_"  # noqa: S105 - what every token begins with
"""So that scanners for secrets find one that got out."""

_TOKEN = re.compile(TOKEN_PREFIX + "[A-Za-z0-9_-]{43}")
_TOKEN_HASH = re.compile("sha256:[0-9a-f]{64}")
_CERTIFICATE = re.compile(r"(?:DNS|URI):\S+")
_REQUIRED = {"observer_id", "servers"}
_FIELDS = _REQUIRED | {"token", "certificate", "expires"}
_SHAPE = "observer_id, servers (a list), either token or certificate, and if you like expires"


class RequestRefused(Exception):  # noqa: N818 - an answer, not an error of ours
    """A request that is not taken, with the status and the code of its answer. The text quotes nothing of it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Unauthorized(RequestRefused):
    """No known client matches the request."""

    def __init__(self, message: str) -> None:
        super().__init__(401, "unauthorized", message)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClient:
    """An authorised client.

    Args:
        vantage: the observer that it is; its server is of no matter.
        servers: globs over the servers that it may report on.
        expires_us: when its token ends, microseconds since the epoch.
    """

    vantage: Vantage
    servers: tuple[re.Pattern[str], ...]
    expires_us: int | None = None

    @property
    def observer_id(self) -> str:
        return self.vantage.observer_id

    def may_report_on(self, server_id: str) -> bool:
        return any(each.match(server_id) for each in self.servers)


class KnownClients:
    """All authorised clients."""

    def __init__(self, entries: Mapping[str, KnownClient]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, authorization: Sequence[str], names: Sequence[str], *, now_us: int) -> KnownClient:
        if len(authorization) > 1:
            raise Unauthorized("there are two Authorization fields: send one")
        found = [self._entries[name] for name in dict.fromkeys(names) if name in self._entries]
        if authorization:
            found.append(self._of_token(authorization[0]))
        if not found:
            raise Unauthorized("send Authorization: Bearer and a token, or a client certificate that is listed")
        if any(each.observer_id != found[0].observer_id for each in found):
            raise Unauthorized("token and certificate belong to different clients")
        client = found[-1]
        if client.expires_us is not None and now_us >= client.expires_us:
            raise Unauthorized("this client's entry has expired: make a new token with assay-stream ingest token")
        return client

    def _of_token(self, authorization: str) -> KnownClient:
        scheme, _, token = authorization.partition(" ")
        token = token.strip(" ")
        if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token):
            raise Unauthorized("the Authorization field must be Bearer and a token of assay-stream ingest token")
        try:
            return self._entries[hash_of(token)]
        except KeyError:
            raise Unauthorized("this token is not known: it may have been withdrawn") from None


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    return f"sha256:{sha256(token.encode()).hexdigest()}"


def read_clients(raw: bytes, where: str) -> KnownClients:
    """Return the clients that a file lists.

    Args:
        raw: its bytes, TOML.
        where: its name, for messages.

    Raises:
        ConfigurationError: ``bad_clients``, naming the entry and quoting nothing of it.
    """
    try:
        content = decode_toml(raw)
    except InputError as error:
        raise _bad(where, error.message) from None
    listed = content.get("clients") if set(content) == {"clients"} else None
    if not isinstance(listed, list) or not 1 <= len(listed) <= INGEST_LIMITS.clients_max:
        raise _bad(where, f"it must hold a list named clients, with 1 to {INGEST_LIMITS.clients_max} entries")
    entries: dict[str, KnownClient] = {}
    for number, entry in enumerate(listed, 1):
        key, client = _entry(entry, f"{where}, entry {number}")
        if key in entries:
            raise _bad(f"{where}, entry {number}", "an entry before has the same token or certificate")
        entries[key] = client
    return KnownClients(entries)


def _entry(entry: Any, where: str) -> tuple[str, KnownClient]:
    is_sound = isinstance(entry, dict) and _REQUIRED <= set(entry) <= _FIELDS
    servers = entry["servers"] if is_sound else None
    if not isinstance(servers, list) or not servers or not all(isinstance(name, str) and name for name in servers):
        raise _bad(where, f"give {_SHAPE}")
    if not all(isinstance(value, str) for name, value in entry.items() if name not in ("servers", "expires")):
        raise _bad(where, f"give {_SHAPE}")
    token, certificate = entry.get("token"), entry.get("certificate")
    if (token is None) == (certificate is None):
        raise _bad(where, "give either token or certificate")
    if token is not None and not _TOKEN_HASH.fullmatch(token):
        raise _bad(where, "token must be the hash of one, sha256: and 64 hexadecimal digits, and never the token")
    if certificate is not None and not _CERTIFICATE.fullmatch(certificate):
        raise _bad(where, "certificate must be DNS: or URI: and a subject alternative name")
    try:
        expires_us = time_us_of(str(entry["expires"])) if "expires" in entry else None
        patterns = tuple(compile_glob(name) for name in servers)
        # The name stands for the servers.
        vantage = Vantage(server_id="-", observer_id=entry["observer_id"])
    except (InputError, ConfigurationError) as error:
        raise _bad(where, error.message) from None
    except TypeError:
        raise _bad(where, "expires must be a time with its offset: 2027-01-31T00:00:00Z") from None
    return token or certificate or "", KnownClient(vantage=vantage, servers=patterns, expires_us=expires_us)


def _bad(where: str, why: str) -> ConfigurationError:
    return ConfigurationError("bad_clients", f"{where}: {why}")
