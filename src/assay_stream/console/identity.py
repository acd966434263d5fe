"""Who may use the console: the identity file, its authentication backend, and local users with their passwords."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import re
import secrets
import threading
from base64 import b64encode
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

import argon2
import argon2.profiles
from argon2.exceptions import InvalidHashError, VerificationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from assay_stream.console.sessions import Operator, SignedIn, Throttle, with_room
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.local import Aside, read_toml, secret_of_file, stamp_of
from assay_stream.limits import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.text.urls import address_in, encrypted

_log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HEAD = "# Users of the console: name:role:hash. Written by `assay-stream console user`.\n"


class UserRole(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    name: str
    role: UserRole
    hash: str


def read_users(path: Path) -> dict[str, User]:
    """Read all users by name.

    Raises:
        ConfigurationError: ``bad_users``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            "bad_users", f"cannot read {path}: {error.strerror}. Create it with `assay-stream console user add`"
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError("bad_users", f"{path} is not UTF-8 text") from None
    users: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            user = _user(line, f"{path}, line {number}")
            if user.name in users:
                raise ConfigurationError("bad_users", f"{path}, line {number}: this user is there twice")
            users[user.name] = user
    return users


def _user(line: str, where: str) -> User:
    name, _, rest = line.partition(":")
    role, _, hashed = rest.partition(":")
    try:
        parameters = argon2.extract_parameters(hashed)
        is_hash = parameters.type is argon2.Type.ID and _cost(parameters) <= CONSOLE_LIMITS.hashing_kib_passes_max
    except InvalidHashError:
        is_hash = False
    if not _NAME.fullmatch(name) or role not in set(UserRole) or not is_hash:
        raise ConfigurationError(
            "bad_users",
            f"{where}: not name:role:hash, with a role of viewer or operator and an argon2id hash. "
            "Create the line with `assay-stream console user add`",
        )
    return User(name=name, role=UserRole(role), hash=hashed)


def _cost(parameters: argon2.Parameters) -> int:
    return parameters.memory_cost * parameters.time_cost


@contextmanager
def changing_users(path: Path) -> Iterator[dict[str, User]]:
    """Give all users by name, to be changed, and replace the file at the end, readable only by its owner.

    Raises:
        ConfigurationError: ``bad_users``, or ``output_in_use`` while somebody else changes it.
    """
    try:
        with Aside() as aside:
            part = aside.path(path, mode=0o600)
            users = read_users(path) if path.exists() else {}
            yield users
            lines = "".join(f"{each.name}:{each.role}:{each.hash}\n" for each in users.values())
            part.write_text(_HEAD + lines, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError("bad_users", f"cannot write {path}: {error.strerror}") from None


def new_user(name: str, role: UserRole, password: str) -> User:
    """Create a user with a hashed password.

    Raises:
        InputError: ``bad_user``.
    """
    if not _NAME.fullmatch(name):
        raise InputError("bad_user", "a name has up to 64 letters, digits, dots, hyphens, underscores and @")
    least, most = CONSOLE_LIMITS.password_chars_min, CONSOLE_LIMITS.password_chars_max
    if not least <= len(password) <= most:
        raise InputError("bad_user", f"a password has {least} to {most} characters")
    return User(name=name, role=role, hash=argon2.PasswordHasher().hash(password))


class LocalUsers:
    """The users of a file, reread when it changes. While it cannot be read, there are none."""

    def __init__(
        self, path: Path, throttle: Throttle, *, decides: bool, limits: ConsoleLimits = CONSOLE_LIMITS
    ) -> None:
        self._path = path
        self._seen = stamp_of(self._path)
        self._users = read_users(path)
        self._throttle = throttle
        self._decides = decides
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.hashing_threads, "assay-stream sign-in")
        self._room = threading.BoundedSemaphore(limits.hashing_max)

    async def sign_in(self, name: str, password: str, source: str, device: str) -> SignedIn:
        """Check a password. Unknown users take the same time and get the same error."""
        refused = InputError("sign_in_refused", "wrong name or password")
        if len(password) > self._limits.password_chars_max:
            raise refused
        user, limits = self.get(name), self._limits
        hashed = self.dummy_hash() if user is None else user.hash
        own = _device(hashed, device.partition(".")[0])
        is_known = hmac.compare_digest(device.encode(errors="replace"), own.encode())
        counted = {device: limits.user_attempts_max}
        if not is_known:
            device = _device(hashed, secrets.token_urlsafe(16))
            counted = {
                f"{source} {name}": limits.user_attempts_max,
                source: limits.source_attempts_max,
                f"user {name}": limits.strangers_attempts_max,
            }
        with self._throttle.attempt(counted, is_known=is_known):
            busy = "too many people sign in at once: try again in a few seconds"
            is_right = await with_room(self._room, self._pool, partial(is_password, hashed, password), busy)
            if user is None or not is_right:
                raise refused
        return SignedIn(operator=self._operator(user), proof=user.hash, device=device)

    def is_valid(self, operator: Operator, proof: str) -> bool:
        """Return True if a signed-in user still exists, with the same role and password."""
        user = self.get(operator.name.removeprefix("local:"))
        return user is not None and user.hash == proof and self._operator(user) == operator

    def get(self, name: str) -> User | None:
        return self._now().get(name)

    def dummy_hash(self) -> str:
        """Return a hash that matches no password and takes as long to check as a real one."""
        costs = [argon2.extract_parameters(user.hash) for user in self._now().values()]
        most = max(costs, key=_cost, default=argon2.profiles.RFC_9106_LOW_MEMORY)
        salt, digest = (b64encode(secrets.token_bytes(size)).decode().rstrip("=") for size in (16, most.hash_len))
        return (
            f"$argon2id$v={most.version}$m={most.memory_cost},t={most.time_cost},p={most.parallelism}${salt}${digest}"
        )

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _operator(self, user: User) -> Operator:
        return Operator(name=f"local:{user.name}", may_decide=user.role is UserRole.OPERATOR and self._decides)

    def _now(self) -> dict[str, User]:
        seen = stamp_of(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                self._users = read_users(self._path)
            except ConfigurationError as error:
                self._users = {}
                _log.error("nobody can sign in: %s", error)
        return self._users


def is_password(hashed: str, password: str) -> bool:
    """Check a password against its hash; takes tens of milliseconds and 64 MiB."""
    try:
        return argon2.PasswordHasher().verify(hashed, password)
    except VerificationError:
        return False


def _device(hashed: str, number: str) -> str:
    """Return the device token: it cannot be made without the user's hash, and a new password invalidates it."""
    return f"{number}.{hmac.digest(hashed.encode(), b'device ' + number.encode(), 'sha256').hex()}"


EVERYBODY = "*"


def _named(names: frozenset[str]) -> frozenset[str]:
    if EVERYBODY in names:
        raise ValueError('"*" stands for everybody among viewers only: name who may do more')
    return names


def _for_identity(scopes: tuple[str, ...]) -> tuple[str, ...]:
    if "openid" not in scopes:
        raise ValueError('"openid" is missing')
    return scopes


def _origin(address: str) -> str:
    parts = urlsplit(address)
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        raise ValueError("give scheme and host only, such as https://console.example")
    return address.rstrip("/")


_Header = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
_Encrypted = Annotated[str, AfterValidator(encrypted)]
_Named = Annotated[frozenset[str], AfterValidator(_named)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Members(_Table):
    """Names and groups that may use the console; ``*`` among viewers is everybody."""

    operators: _Named = frozenset()
    operator_groups: _Named = frozenset()
    viewers: frozenset[str] = frozenset()
    viewer_groups: _Named = frozenset()

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not (self.operators or self.operator_groups or self.viewers or self.viewer_groups):
            raise ValueError(
                "nobody may come in: give operators, operator_groups, viewers or viewer_groups "
                '(viewers = ["*"] for everybody)'
            )
        return self

    def operator(self, way: str, name: str, groups: Collection[str], *, decides: bool) -> Operator:
        """Return the operator for an authenticated name."""
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

    issuer: _Encrypted
    client_id: Annotated[str, Field(min_length=1)]
    client_secret_file: Path | None = None
    client_secret_env: str | None = None
    ca_file: Path | None = None
    scopes: Annotated[tuple[str, ...], AfterValidator(_for_identity)] = ("openid", "email", "profile")
    name_claim: str = "email"
    groups_claim: str = "groups"


class Identity(_Table):
    """The file.

    Args:
        address: URL of the console as seen by browsers; ``None`` if it is served over HTTP on loopback only.
        proxies: networks whose forwarding headers are trusted.
    """

    address: Annotated[_Encrypted, AfterValidator(_origin)] | None = None
    proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    local: Local | None = None
    proxy: Proxied | None = None
    oidc: Oidc | None = None

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
        known = {"extra_forbidden": "no such setting", "missing": "is missing"}
        sentences = []
        for each in error.errors():  # without the values, which may be secrets
            why = known.get(each["type"]) or each["msg"].removeprefix("Value error, ")
            sentences.append(f"{'.'.join(map(str, each['loc']))}: {why}")
        raise ConfigurationError("bad_identity", f"{path}: {'; '.join(sentences)}") from None


def secret_of(file: Path | None, variable: str | None, *, name: str) -> str | None:
    """Read a secret from a file or an environment variable, ``None`` if neither is named."""
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
