"""From where something is observed: the names that every observation carries."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from assay_stream.errors import ConfigurationError
from assay_stream.limits import DEFAULT_LIMITS

_SOURCE_CHARS_MAX = 2_048


@dataclass(frozen=True, slots=True, kw_only=True)
class Vantage:
    """Who observes which server.

    Args:
        server_id: the operator's name for the server; never what the server calls itself.
        observer_id: the proxy that observes.
        server_scoped: whether definitions are bound to this server's name.
        auth_context: a name (not a secret) for the rights under which the server was asked.

    Raises:
        ConfigurationError: ``bad_identifier`` for a name that no record may carry.
    """

    server_id: str
    observer_id: str
    server_scoped: bool = False
    auth_context: str | None = None

    def __post_init__(self) -> None:
        _check_name("server_id", self.server_id)
        _check_name("observer_id", self.observer_id)
        if self.auth_context is not None:
            _check_name("auth_context", self.auth_context)
        if len(self.source) > _SOURCE_CHARS_MAX:
            raise ConfigurationError("bad_identifier", "observer_id is too long for a URI: shorten it")

    @property
    def source(self) -> str:
        """The CloudEvents source of everything seen from here."""
        return f"urn:assay-stream:observer:{quote(self.observer_id, safe='')}"


def _check_name(what: str, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigurationError("bad_identifier", f"{what} is no Unicode text: mend it") from None
    if not name.strip() or len(name) > DEFAULT_LIMITS.identifier_chars_max:
        raise ConfigurationError(
            "bad_identifier",
            f"{what} must have 1 to {DEFAULT_LIMITS.identifier_chars_max} characters, not all blank",
        )
