"""Local users: a file of names, roles and argon2id hashes, one line each, and how their passwords are checked."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
import secrets
import threading
from base64 import b64encode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import argon2
import argon2.profiles
from argon2.exceptions import InvalidHashError, VerificationError

from assay_stream.console.sessions import Operator
from assay_stream.console.throttle import SignedIn, Throttles
from assay_stream.errors import ConfigurationError, InputError, OperatingError
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits

_log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HEAD = "# Users of the console: name:role:hash. Written by `assay-stream console user`.\n"


class UserRole(StrEnum):
    """What a local user may do."""

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
            "bad_users", f"cannot read {path}: {error.strerror}. Make it with `assay-stream console user add`"
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
            "Make the line with `assay-stream console user add`",
        )
    return User(name=name, role=UserRole(role), hash=hashed)


def _cost(parameters: argon2.Parameters) -> int:
    return parameters.memory_cost * parameters.time_cost


def write_users(path: Path, users: Mapping[str, User]) -> None:
    """Replace the file, readable only by its owner.

    Raises:
        ConfigurationError: ``bad_users``.
    """
    part = path.with_name(f".part.{path.name}")
    try:
        part.unlink(missing_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(_HEAD + "".join(f"{each.name}:{each.role}:{each.hash}\n" for each in users.values()))
        part.replace(path)
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
    """The users of a file, reread when it changes. While it cannot be read, there are none.

    Args:
        decides: whether this console records decisions.

    Raises:
        ConfigurationError: ``bad_users``, if the first read fails.
    """

    def __init__(
        self, path: Path, throttles: Throttles, *, decides: bool, limits: ConsoleLimits = CONSOLE_LIMITS
    ) -> None:
        self._path = path
        self._seen = self._state()
        self._users = read_users(path)
        self._throttles = throttles
        self._decides = decides
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.hashing_threads, "assay-stream sign-in")
        self._room = threading.BoundedSemaphore(limits.hashing_max)

    async def sign_in(self, name: str, password: str, source: str, device: str) -> SignedIn:
        """Check a password. Unknown users take the same time and get the same error.

        Args:
            source: network of the attempt.
            device: device token from an earlier sign-in, if any.

        Raises:
            InputError: ``sign_in_refused``, ``sign_in_limited``.
            OperatingError: ``console_busy``.
        """
        refused = InputError("sign_in_refused", "wrong name or password")
        if len(password) > self._limits.password_chars_max:
            raise refused
        user, limits = self.get(name), self._limits
        hashed = self.dummy_hash() if user is None else user.hash
        own = _device(hashed, device.partition(".")[0])
        if hmac.compare_digest(device.encode(errors="replace"), own.encode()):
            throttle, counted = self._throttles.known, {device: limits.user_attempts_max}
        else:
            throttle, device = self._throttles.strangers, _device(hashed, secrets.token_urlsafe(16))
            counted = {
                f"{source} {name}": limits.user_attempts_max,
                source: limits.source_attempts_max,
                f"user {name}": limits.strangers_attempts_max,
            }
        with throttle.attempt(counted):
            is_right = await self._is_password(hashed, password)
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

    async def _is_password(self, hashed: str, password: str) -> bool:
        if not self._room.acquire(blocking=False):
            raise OperatingError("console_busy", "too many people sign in at once: try again in a few seconds")
        try:
            pending = self._pool.submit(is_password, hashed, password)
        except BaseException:
            self._room.release()
            raise
        pending.add_done_callback(lambda _: self._room.release())
        return await asyncio.wrap_future(pending)

    def _now(self) -> dict[str, User]:
        seen = self._state()
        if seen != self._seen:
            self._seen = seen
            try:
                self._users = read_users(self._path)
            except ConfigurationError as error:
                self._users = {}
                _log.error("nobody can sign in: %s", error)
        return self._users

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def is_password(hashed: str, password: str) -> bool:
    """Check a password against its hash; takes tens of milliseconds and 64 MiB."""
    try:
        return argon2.PasswordHasher().verify(hashed, password)
    except VerificationError:
        return False


def _device(hashed: str, number: str) -> str:
    """Return the device token: it cannot be made without the user's hash, and a new password invalidates it."""
    return f"{number}.{hmac.digest(hashed.encode(), b'device ' + number.encode(), 'sha256').hex()}"
