"""What receivers are made of: the settings of an entry, results of attempts, addresses, secrets.

1. A receiver gets one alert at a time and returns the result; it never raises for failures outside this process.
2. Taken: the alert is done. Refused for good: it goes to the dead letters, and is done. Anything else is the
   receiver's problem, not the alert's: the alert waits for as long as it takes.
3. Each type of receiver is a plug-in (``plugins.Receiver``). What carries a secret goes over HTTPS, or stays on this
   machine.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay_stream.alerts.formats import AlertView
from assay_stream.errors import ConfigurationError
from assay_stream.files.local import secret_of_file
from assay_stream.plugins import FORMATS, Receiver

_TIMEOUT_S = 10.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class DeliveryOutcome(StrEnum):
    """What one attempt came to."""

    DELIVERED = "delivered"
    UNAVAILABLE = "unavailable"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The result of one attempt.

    Args:
        retry_after_ms: how long the receiver asks to wait, milliseconds.
    """

    outcome: DeliveryOutcome
    code: str = ""
    retry_after_ms: int = 0


DELIVERED = AttemptResult(outcome=DeliveryOutcome.DELIVERED)


def waiting(code: str, retry_after_ms: int = 0) -> AttemptResult:
    return AttemptResult(outcome=DeliveryOutcome.UNAVAILABLE, code=code, retry_after_ms=retry_after_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A receiver, and what it is sent.

    Args:
        name: of the part of the process that serves it, and of its metrics.
        group: consumer group that holds its position.
        wants: whether an alert is sent.
        from_now: whether a group without a position starts at the end and not at the oldest alert.
    """

    name: str
    receiver: Receiver
    group: str
    wants: Callable[[AlertView], bool] = lambda _view: True
    from_now: bool = False


def _is_line(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of an entry: what it means (Markdown), and the values that it may have, in words and as a test."""

    meaning: str
    is_required: bool = False
    must_be: str = "one text, on one line"
    is_good: Callable[[Any], bool] = _is_line


class Entry(dict[str, Any]):
    """One entry of the file, whose fields are known and of the right type.

    Args:
        place: where it stands, for messages.
        secrets: those that do not stand in files, by the field that would name the file.
        code: of the error if it cannot be used.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        place: str,
        *,
        secrets: Mapping[str, str] | None = None,
        code: str = "bad_receivers",
    ) -> None:
        super().__init__(fields)
        self._place = place
        self._secrets = secrets or {}
        self._code = code

    @property
    def label(self) -> str:
        return f"{self['type']}:{self['name']}"

    def refuse(self, why: str) -> ConfigurationError:
        return ConfigurationError(self._code, f"{self._place}: {why}")

    def secret(self, field: str) -> str:
        return self._secrets.get(field) or secret_of_file(Path(self[field]), variable=field)

    def format(self, default: str) -> str:
        name: str = self.get("format", default)
        if name not in FORMATS.names():
            raise self.refuse(f"format must be one of {', '.join(FORMATS.names())}")
        FORMATS.load(name)  # one that is broken is named now, not when an alert comes
        return name

    def connection(self) -> dict[str, Any]:
        tls = tls_context(Path(self["ca_file"]) if "ca_file" in self else None)
        return {"timeout_s": float(self.get("timeout_s", _TIMEOUT_S)), "tls": tls}

    def safe_url(self, url: str) -> str:
        """Return an address, unless it would carry a secret in the clear beyond this machine."""
        good = is_address(url) and not is_in_the_clear(url) and not urlsplit(url).username
        if not good or not is_one_word(url):
            raise self.refuse("the address must be https://HOST/..., as it goes with a secret (http on loopback only)")
        return url


def is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and is_host(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def is_host(name: str | None) -> bool:
    try:
        return bool(name and name.encode("idna"))
    except UnicodeError:
        return False


def secret_from(variable: str, environment: Mapping[str, str]) -> str:
    """Return a secret from an environment variable, or from the file that ``<variable>_FILE`` names.

    Raises:
        ConfigurationError: ``secret_missing`` where neither is set, or it is empty; ``bad_secret_file``.
    """
    value = environment.get(variable, "")
    path = environment.get(f"{variable}_FILE", "")
    if not value and path:
        return secret_of_file(Path(path), variable=f"{variable}_FILE")
    if not value:
        raise ConfigurationError(
            "secret_missing", f"the environment variable {variable} is not set, nor is {variable}_FILE"
        )
    return value


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return how receivers' certificates are checked.

    Raises:
        ConfigurationError: ``bad_tls_file``.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError):
        raise ConfigurationError("bad_tls_file", f"cannot use {ca_file} as a file of certificates") from None


def place_of(url: str) -> str:
    """Return scheme, host and port of an address: what may be logged of it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def is_in_the_clear(url: str) -> bool:
    """Return True if others could read what is posted there: plain HTTP beyond this machine."""
    parts = urlsplit(url)
    return parts.scheme != "https" and parts.hostname not in _LOOPBACK


def is_one_word(url: Any) -> bool:
    """Return True if an address needs no further escaping."""
    return isinstance(url, str) and url.isascii() and url.isprintable() and " " not in url
