"""The protocol of receivers, and how the file of receivers and the command line name one.

1. A receiver gets one alert at a time and returns the result; it never raises for failures outside this process.
2. Taken: the alert is done. Refused for good: it goes to the dead letters, and is done. Anything else is the
   receiver's problem, not the alert's: the alert waits for as long as it takes.
3. Each type of receiver is a ``Plugin``. What carries a secret goes over HTTPS, or stays on this machine.
"""

import ipaddress
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from assay_stream.alerts.formats import AlertFormat, AlertView
from assay_stream.errors import ConfigurationError
from assay_stream.files.local import secret_of_file

_TRANSPORTS = ("udp", "tcp", "tls")
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


class Receiver(Protocol):
    @property
    def name(self) -> str:
        """What it is called in logs and dead letters; holds no secret."""

    async def send(self, view: AlertView, body: str) -> AttemptResult:
        """Deliver one alert and return the outcome."""

    async def close(self) -> None:
        pass


Writer = Callable[[dict[str, Any]], str]
"""Writes an alert as a receiver takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A receiver, and what it is sent.

    Args:
        name: of the part of the process that serves it, and of its metrics.
        group: consumer group that holds its position.
        write: an alert as it is sent.
        wants: whether an alert is sent.
        from_now: whether a group without a position starts at the end and not at the oldest alert.
    """

    name: str
    receiver: Receiver
    group: str
    write: Writer
    wants: Callable[[AlertView], bool] = lambda _view: True
    from_now: bool = False


class Entry(dict[str, Any]):
    """One entry of the file, whose fields are known and of the right type."""

    def __init__(self, fields: dict[str, Any], place: str) -> None:
        super().__init__(fields)
        self.place = place

    @property
    def label(self) -> str:
        return f"{self['type']}:{self['name']}"

    def refuse(self, why: str) -> ConfigurationError:
        return ConfigurationError("bad_receivers", f"{self.place}: {why}")

    def secret(self, field: str) -> str:
        return secret_of_file(Path(self[field]), variable=field)

    def format(self, default: AlertFormat) -> AlertFormat:
        try:
            return AlertFormat(self.get("format", default))
        except ValueError:
            raise self.refuse(f"format must be one of {', '.join(AlertFormat)}") from None

    def connection(self) -> dict[str, Any]:
        tls = tls_context(Path(self["ca_file"]) if "ca_file" in self else None)
        return {"timeout_s": float(self.get("timeout_s", _TIMEOUT_S)), "tls": tls}

    def safe_url(self, url: str) -> str:
        """Return an address, unless it would carry a secret in the clear beyond this machine."""
        good = is_address(url) and not is_in_the_clear(url) and not urlsplit(url).username
        if not good or not is_one_word(url):
            raise self.refuse("the address must be https://HOST/..., as it goes with a secret (http on loopback only)")
        return url


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A type of receiver.

    Args:
        make: returns the receiver of an entry, and what writes alerts for it.
        fields: that entries may have beside the common ones.
        required: those they must have.
        is_for_people: people are not sent alerts that were over before the receiver was set up.
    """

    make: Callable[[Entry], tuple[Receiver, Writer]]
    fields: frozenset[str]
    required: frozenset[str]
    is_for_people: bool = False


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


class SyslogTarget(NamedTuple):
    """Where a syslog receiver is; ``transport`` is ``udp``, ``tcp`` or ``tls``."""

    host: str
    port: int
    transport: str


def parse_target(text: str) -> SyslogTarget | None:
    """Return what ``HOST:PORT[,udp|tcp|tls]`` names, ``None`` where it names nothing."""
    place, comma, transport = text.partition(",")
    transport = transport if comma else "tcp"
    host, _, port = place.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return None
    elif ":" in host:
        return None
    if not is_host(host) or not (port.isascii() and port.isdigit()) or transport not in _TRANSPORTS:
        return None
    number = int(port[:6])
    return SyslogTarget(host=host, port=number, transport=transport) if 0 < number <= 65_535 else None


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


def is_one_word(url: str) -> bool:
    """Return True if an address needs no further escaping."""
    return url.isascii() and url.isprintable() and " " not in url
