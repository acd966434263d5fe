"""The identity file: who may use the console, and by which authentication backend."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from assay_stream.console.sessions import Operator
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.secret_file import secret_of_file
from assay_stream.files.toml_file import read_toml
from assay_stream.observe.http.headers import is_loopback

EVERYBODY = "*"

_Header = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Members(_Table):
    """Names and groups that may use the console; ``*`` among viewers is everybody."""

    operators: frozenset[str] = frozenset()
    operator_groups: frozenset[str] = frozenset()
    viewers: frozenset[str] = frozenset()
    viewer_groups: frozenset[str] = frozenset()

    @field_validator("operators", "operator_groups", "viewer_groups")
    @classmethod
    def _no_star(cls, names: frozenset[str]) -> frozenset[str]:
        if EVERYBODY in names:
            raise ValueError('"*" stands for everybody among viewers only: name who may do more')
        return names

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not (self.operators or self.operator_groups or self.viewers or self.viewer_groups):
            raise ValueError(
                "nobody may come in: give operators, operator_groups, viewers or viewer_groups "
                '(viewers = ["*"] for everybody)'
            )
        return self

    def operator(self, way: str, name: str, groups: Collection[str], *, decides: bool) -> Operator:
        """Return the operator for an authenticated name.

        Args:
            way: authentication method; prefix of the author in decisions.
            decides: whether this console records decisions.

        Raises:
            InputError: ``may_not_look``.
        """
        may_decide = name in self.operators or not self.operator_groups.isdisjoint(groups)
        if may_decide or not self.viewers.isdisjoint((name, EVERYBODY)) or not self.viewer_groups.isdisjoint(groups):
            return Operator(name=f"{way}:{name}", may_decide=may_decide and decides)
        raise InputError("may_not_look", "you are known, but not let in: ask who runs the console")


class Local(_Table):
    """Users with passwords, in a file that ``console user`` writes."""

    users: Path


class Proxied(Members):
    """A proxy states who it is, in a header."""

    user_header: _Header
    groups_header: _Header | None = None
    groups_format: Annotated[str, Field(pattern=r"^(headers|json|[^A-Za-z0-9\\]{1,3})$")] = "json"
    """How it lists groups: ``json``; ``headers``, one in each; or what separates them."""
    secret_header: _Header | None = None
    secret_file: Path | None = None
    secret_env: str | None = None


class Oidc(Members):
    """A provider states who it is (OpenID Connect, authorization code with PKCE)."""

    issuer: str
    client_id: Annotated[str, Field(min_length=1)]
    client_secret_file: Path | None = None
    client_secret_env: str | None = None
    ca_file: Path | None = None
    scopes: tuple[str, ...] = ("openid", "email", "profile")
    name_claim: str = "email"
    groups_claim: str = "groups"

    @field_validator("issuer")
    @classmethod
    def _is_encrypted(cls, issuer: str) -> str:
        return encrypted(issuer)

    @field_validator("scopes")
    @classmethod
    def _asks_for_identity(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in scopes:
            raise ValueError('"openid" is missing')
        return scopes


class Identity(_Table):
    """The file.

    Args:
        address: URL of the console as seen by browsers; ``None`` if it is served over HTTP on loopback only.
        proxies: networks whose forwarding headers are trusted.
    """

    address: str | None = None
    proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    local: Local | None = None
    proxy: Proxied | None = None
    oidc: Oidc | None = None

    @field_validator("address")
    @classmethod
    def _is_origin(cls, address: str | None) -> str | None:
        if address is None:
            return None
        parts = urlsplit(encrypted(address))
        if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
            raise ValueError("give scheme and host only, such as https://console.example")
        return address.rstrip("/")

    @model_validator(mode="after")
    def _has_one_way(self) -> Self:
        if sum(each is not None for each in (self.local, self.proxy, self.oidc)) != 1:
            raise ValueError("give one of the tables [local], [proxy] and [oidc]")
        if self.oidc is not None and self.address is None:
            raise ValueError("[oidc] needs address: the provider sends browsers back to it")
        if self.proxy is not None:
            has_secret = (self.proxy.secret_file, self.proxy.secret_env) != (None, None)
            if (self.proxy.secret_header is not None) != has_secret:
                raise ValueError("[proxy] secret_header goes with secret_file or secret_env")
            if not self.proxies and not has_secret:
                raise ValueError(
                    "anybody could send the header of [proxy]: give proxies (addresses of the proxy), or secret_header"
                )
        return self

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the console over TLS."""
        return self.address is not None and self.address.startswith("https:")

    def is_proxy(self, address: str | None) -> bool:
        peer = address_in(address)
        return peer is not None and any(peer in network for network in self.proxies)


def read_identity(path: Path) -> Identity:
    """Read the file; paths in it are relative to it.

    Raises:
        ConfigurationError: ``bad_identity``.
    """
    given = read_toml(path, "bad_identity")
    for table in given.values():
        if isinstance(table, dict):
            for name in ("users", "secret_file", "client_secret_file", "ca_file"):
                if isinstance(table.get(name), str):
                    table[name] = path.parent / table[name]
    try:
        return Identity.model_validate(given)
    except ValidationError as error:
        sentences = [": ".join((".".join(map(str, each["loc"])), _why(each))) for each in error.errors()]
        raise ConfigurationError("bad_identity", f"{path}: {'; '.join(sentences)}") from None


def _why(error: Any) -> str:
    """Describe an error without the value, which may be a secret."""
    known = {"extra_forbidden": "no such setting", "missing": "is missing"}
    return known.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")


def secret_of(file: Path | None, variable: str | None, *, name: str) -> str | None:
    """Read a secret from a file or an environment variable, ``None`` if neither is named.

    Args:
        name: name of the setting, without ``_file`` and ``_env``.

    Raises:
        ConfigurationError: ``bad_identity``, ``bad_secret_file``.
    """
    if file is not None and variable is not None:
        raise ConfigurationError("bad_identity", f"give {name}_file or {name}_env, not both")
    if file is not None:
        return secret_of_file(file, variable=f"{name}_file")
    if variable is None:
        return None
    secret = os.environ.get(variable)
    if not secret:
        raise ConfigurationError("bad_identity", f"{name}_env names a variable that is not set")
    return secret


def encrypted(address: str) -> str:
    """Return ``address`` if it is https or loopback, so that it cannot be eavesdropped on.

    Raises:
        ValueError: for any other.
    """
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise ValueError("give an address such as https://login.example")
    if parts.scheme == "http" and not is_loopback(host):
        raise ValueError("use https: only addresses of this machine may be http")
    return address


def address_in(hop: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an address with an optional port, as some proxies write hops: ``192.0.2.7:443``, ``[2001:db8::7]:443``."""
    text = hop or ""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return found if isinstance(found, ipaddress.IPv4Address) else found.ipv4_mapped or found


def network_of(hop: str | None) -> str:
    """Return the source that a hop counts as: a single IPv4 address, or a customer-sized IPv6 network."""
    found = address_in(hop)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, 64), strict=False))
    return "" if found is None else str(found)
