"""The connections of all clients with one server, told apart by session or authorisation context.

A list may vary by authorisation, so lists are kept apart by it. What is published is a keyed hash of the issuer, the
subject and the scopes that an access token states (RFC 9068), stable across token refresh; nothing is known of
opaque credentials, which share one published context. That is a claim: tokens are not verified here, and anyone can
forge one. So clients are distinguished by the whole credential, hashed under a key that lives only as long as the
process.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.limits import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.messages import Body, Opaque
from assay_stream.observe.observation import Observation, Vantage
from assay_stream.observe.session import Session, to_evict
from assay_stream.observe.wire import RequestKey, WireStats

OPAQUE = "opaque"
_HASH_CHARS = 32


@dataclass(frozen=True, slots=True)
class Context:
    """The authorisation context of a request.

    Args:
        label: the published context; ``None`` if the request has no credentials and nothing was configured.
        client: distinguishes credentials, whatever they claim; never published. Empty without one.
    """

    label: str | None
    client: bytes = b""


@dataclass(eq=False, repr=False)
class Contexts:
    """Derive contexts from requests.

    Args:
        key: for published labels: the same in every tap whose contexts are to be comparable.
        process_key: for unpublished client hashes; random.
        default: the label of requests without credentials.
    """

    key: bytes
    process_key: bytes
    _: KW_ONLY
    default: str | None = None

    def of(self, authorization: str | None) -> Context:
        if authorization is None:
            return Context(self.default)
        client = hmac.digest(self.process_key, authorization.encode("utf-8", "backslashreplace"), "sha256")
        scheme, _, credential = authorization.partition(" ")
        claims = _claims(credential.strip()) if scheme.lower() in ("bearer", "dpop") else None
        if claims is not None and (rights := _rights(claims)):
            return Context("oauth:" + hmac.digest(self.key, rights, "sha256").hex()[:_HASH_CHARS], client)
        return Context(self.default or OPAQUE, client)


def _claims(token: str) -> Mapping[str, Any] | None:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > HTTP_LIMITS.token_chars_max:
        return None
    try:
        payload = base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), altchars=b"-_", validate=True)
        claims = decode_json(payload)
    except (binascii.Error, ValueError, InputError):
        return None
    return claims if isinstance(claims, dict) else None


def _rights(claims: Mapping[str, Any]) -> bytes:
    """Return issuer, subject and scopes, unambiguously encoded; empty if the token has neither issuer nor subject."""
    names = [claims.get(name) if isinstance(claims.get(name), str) else None for name in ("iss", "sub")]
    if names == [None, None]:
        return b""
    scopes: set[str] = set()
    for stated in (claims.get("scope"), claims.get("scp")):
        each = stated.split() if isinstance(stated, str) else stated if isinstance(stated, list) else []
        scopes |= {scope for scope in each if isinstance(scope, str)}
    texts = [*("" if name is None else f"={name}" for name in names), *sorted(scopes)]
    return b"".join(len(part).to_bytes(4, "big") + part for part in (text.encode() for text in texts))


_EXPIRE_EVERY = timedelta(minutes=1)
_Key = tuple[str | None, str | None, bytes]

_OK = range(200, 300)
Ending = Literal["complete", "client_left", "upstream_failed"]


class Connection(NamedTuple):
    """A session under one authorisation context; without a session, all traffic with one credential, or with none."""

    key: _Key
    session: Session


@dataclass(eq=False, repr=False)
class Connections:
    """The connections of one server."""

    vantage: Vantage
    _: KW_ONLY
    new_id: Callable[[], str]
    session: Callable[..., Session]
    limits: HttpLimits

    def __post_init__(self) -> None:
        self.evicted = 0
        self._confirmed: OrderedDict[_Key, Session] = OrderedDict()
        self._unconfirmed: OrderedDict[_Key, Session] = OrderedDict()
        """Those without a response yet: made-up sessions displace no others."""
        self._expired_at: datetime | None = None
        self._ended = WireStats()
        """Totals of connections no longer followed."""

    @property
    def stats(self) -> WireStats:
        sessions = (*self._confirmed.values(), *self._unconfirmed.values())
        return sum((session.stats for session in sessions), self._ended)

    def of(self, context: Context, session_id: str | None, at: datetime) -> tuple[Connection, list[Observation]]:
        """Return the connection of a request, and the observations of one that ends for it."""
        # A session goes on when a credential is refreshed.
        key = (session_id, context.label, b"" if session_id is not None else context.client)
        for known in (self._confirmed, self._unconfirmed):
            if key in known:
                known.move_to_end(key)
                return Connection(key, known[key]), []
        vantage = replace(self.vantage, auth_context=context.label)
        session = self._unconfirmed[key] = self.session(vantage, session_id=self.new_id(), new_id=self.new_id)
        return Connection(key, session), self._bounded(self._unconfirmed, at)

    def confirm(self, connection: Connection, at: datetime) -> list[Observation]:
        """Record that the server answered on a connection."""
        key, session = connection
        if self._unconfirmed.get(key) is not session:
            return []
        self._confirmed[key] = self._unconfirmed.pop(key)
        return self._bounded(self._confirmed, at)

    def expire(self, at: datetime) -> list[Observation]:
        """End the calls that exceeded the time limit on idle connections: all are looked at, at most once a minute."""
        if self._expired_at is not None and at - self._expired_at < _EXPIRE_EVERY:
            return []
        self._expired_at = at
        sessions = (*self._confirmed.values(), *self._unconfirmed.values())
        return [each for session in sessions for each in session.expire(at)]

    def end(self, connection: Connection, at: datetime) -> list[Observation]:
        key, session = connection
        observations = session.close(at)
        for known in (self._confirmed, self._unconfirmed):
            if known.get(key) is session:
                del known[key]
                self._ended += session.stats
        return observations

    def close(self, at: datetime) -> list[Observation]:
        connections = [*self._confirmed.items(), *self._unconfirmed.items()]
        return [each for key, session in connections for each in self.end(Connection(key, session), at)]

    def _bounded(self, sessions: OrderedDict[_Key, Session], at: datetime) -> list[Observation]:
        key = to_evict(sessions, self.limits.connections_max)
        if key is None:
            return []
        self.evicted += 1
        return self.end(Connection(key, sessions[key]), at)


@dataclass(slots=True)
class Exchange:
    """One request and its response. Exchanges are numbered from 1 in the process."""

    number: int
    method: str
    context: Context
    session_id: str | None
    version: str | None
    connection: Connection
    request: Body
    response: Body = field(default_factory=Opaque)
    status: int | None = None
    is_mislabelled: bool = False
    """Whether the request's headers state something other than JSON in UTF-8."""
    is_unread: bool = False
    """Whether the request may hold more than was read of it."""
    asked: list[RequestKey] = field(default_factory=list)
    """Requests that this exchange has to answer."""
    waiting: tuple[bytes, datetime] | None = None
    """A message about other requests, held until the server accepts it."""

    @property
    def is_successful(self) -> bool:
        return self.status in _OK

    @property
    def is_refused(self) -> bool:
        return self.status is not None and self.status not in _OK

    @property
    def session(self) -> Session:
        return self.connection.session

    def let_go(self) -> int:
        """Drop its buffered bytes, and return how many there were."""
        kept_bytes = self.request.kept_bytes + self.response.kept_bytes
        if self.waiting is not None:
            kept_bytes += len(self.waiting[0])
            self.waiting = None
        self.request = self.response = Opaque()
        return kept_bytes
