"""One observation as it is published, and the vantage it was made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from assay_stream.canonical.decode import is_unicode
from assay_stream.errors import ConfigurationError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.record import Headers, Role

ObservationKind = Literal["list", "call", "control"]

_SOURCE_CHARS_MAX = 2_048
_ROLES: dict[ObservationKind, Role] = {"list": Role.SNAPSHOTS, "call": Role.CALLS, "control": Role.CONTROL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vantage:
    """Who observes which server.

    Args:
        server_id: the operator's name for the server; never what the server calls itself.
        observer_id: the proxy that observes.
        server_scoped: whether definitions are bound to this server's name.
        auth_context: a label (not a secret) for the permissions under which the server was queried.
        shown_prefix: what a gateway puts before the names of the server's tools; every name here is the server's own.

    Raises:
        ConfigurationError: ``bad_identifier`` for a name that no record may carry, ``bad_prefix``.
    """

    server_id: str
    observer_id: str
    server_scoped: bool = False
    auth_context: str | None = None
    shown_prefix: str = ""

    def __post_init__(self) -> None:
        if len(self.shown_prefix) > DEFAULT_LIMITS.prefix_chars_max or not is_unicode(self.shown_prefix):
            raise ConfigurationError(
                "bad_prefix", f"a prefix is valid Unicode and has at most {DEFAULT_LIMITS.prefix_chars_max} characters"
            )
        for what in ("server_id", "observer_id", "auth_context"):
            name = getattr(self, what)
            if name is not None:
                _check_name(what, name)
        if len(self.source) > _SOURCE_CHARS_MAX:
            raise ConfigurationError("bad_identifier", "observer_id is too long for a URI: shorten it")

    @property
    def source(self) -> str:
        return f"urn:assay-stream:observer:{quote(self.observer_id, safe='')}"


def _check_name(what: str, name: str) -> None:
    if not is_unicode(name):
        raise ConfigurationError("bad_identifier", f"{what} is not valid Unicode: remove the broken characters")
    if not name.strip() or len(name) > DEFAULT_LIMITS.identifier_chars_max:
        raise ConfigurationError(
            "bad_identifier", f"{what} must have 1 to {DEFAULT_LIMITS.identifier_chars_max} characters, not all blank"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One record to publish.

    Args:
        timestamp_ms: event time, milliseconds since the epoch.
    """

    kind: ObservationKind
    key: bytes
    value: bytes
    headers: Headers
    timestamp_ms: int

    @property
    def role(self) -> Role:
        return _ROLES[self.kind]

    @property
    def size_bytes(self) -> int:
        """Its size in a queue or a request, without Kafka's framing."""
        return len(self.key) + len(self.value) + sum(len(name) + len(value) for name, value in self.headers)
