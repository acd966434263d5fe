"""The file that says who may use the console, and how it knows them."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from assay_stream.console.operators import Operator
from assay_stream.console.throttle import address_in
from assay_stream.errors import ConfigurationError
from assay_stream.files.secret_file import secret_of_file
from assay_stream.files.toml_file import read_toml
from assay_stream.observe.http.headers import is_loopback

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

EVERYBODY = "*"

_HEADER = r"^[A-Za-z0-9-]{1,64}$"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Members(_Table):
    """Whom a table of the file lets in: by name or by group, or (among viewers) everybody, as ``*``."""

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
    def _lets_somebody_in(self) -> Self:
        if not (self.operators or self.operator_groups or self.viewers or self.viewer_groups):
            raise ValueError(
                "nobody may come in: give operators, operator_groups, viewers or viewer_groups "
                '(viewers = ["*"] for everybody)'
            )
        return self

    def operator(self, way: str, name: str, groups: Collection[str], *, decides: bool) -> Operator | None:
        """Return who this is, ``None`` where the table does not let them in.

        Args:
            way: how the name is known; it starts the author of what they decide.
            decides: whether anything can be decided in this console.
        """
        may_decide = name in self.operators or not self.operator_groups.isdisjoint(groups)
        if may_decide or not self.viewers.isdisjoint((name, EVERYBODY)) or not self.viewer_groups.isdisjoint(groups):
            return Operator(name=f"{way}:{name}", may_decide=may_decide and decides)
        return None


class Local(_Table):
    """Users with passwords, in a file that ``console user`` writes."""

    users: Path


class Proxied(Members):
    """A proxy says who it is, in a header."""

    user_header: Annotated[str, Field(pattern=_HEADER)]
    groups_header: Annotated[str, Field(pattern=_HEADER)] | None = None
    groups_format: Annotated[str, Field(pattern=r"^(headers|json|[^A-Za-z0-9\\]{1,3})$")] = "json"
    """How it lists groups: ``json``; ``headers``, one in each; or what stands between them."""
    secret_header: Annotated[str, Field(pattern=_HEADER)] | None = None
    secret_file: Path | None = None
    secret_env: str | None = None


class Oidc(Members):
    """A provider says who it is (OpenID Connect, authorization code with PKCE)."""

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
    def _isencrypted(cls, issuer: str) -> str:
        return encrypted(issuer)

    @field_validator("scopes")
    @classmethod
    def _asks_for_identity(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in scopes:
            raise ValueError('"openid" is missing')
        return scopes


class Identity(_Table):
    """The file: one way of identity, and where the console is reached.

    Args:
        address: as browsers see it; ``None`` where it is served over HTTP to this machine only.
        proxies: whose word about where a request comes from is believed.
    """

    address: str | None = None
    proxies: tuple[Network, ...] = ()
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
            secrets = self.proxy.secret_file, self.proxy.secret_env
            if (self.proxy.secret_header is None) != (secrets == (None, None)):
                raise ValueError("[proxy] secret_header goes with secret_file or secret_env")
            if not self.proxies and self.proxy.secret_header is None:
                raise ValueError(
                    "anybody could send the header of [proxy]: give proxies (addresses of the proxy), or secret_header"
                )
        return self

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the console over TLS."""
        return self.address is not None and self.address.startswith("https:")

    def is_proxy(self, address: str | None) -> bool:
        """Tell whether a peer is one of the proxies."""
        peer = address_in(address)
        return peer is not None and any(peer in network for network in self.proxies)


def read_identity(path: Path) -> Identity:
    """Return what the file says; paths in it are relative to it.

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
        raise ConfigurationError("bad_identity", f"{path}: {'; '.join(map(_sentence, error.errors()))}") from None


def secret_of(file: Path | None, variable: str | None, *, name: str) -> str | None:
    """Return a secret that a file or a variable of the environment holds, ``None`` where neither is named.

    Args:
        name: of the setting, without ``_file`` and ``_env``.

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
    """Return an address over which nobody can read along: https, or of this machine.

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


def _sentence(error: object) -> str:
    """Return what is wrong and where, without the value."""
    assert isinstance(error, dict)  # noqa: S101 -- pydantic's
    where = ".".join(str(each) for each in error["loc"])
    message = error["msg"].removeprefix("Value error, ")
    known = {"extra_forbidden": "no such setting", "missing": "is missing"}.get(error["type"], message)
    return f"{where}: {known}" if where else known
