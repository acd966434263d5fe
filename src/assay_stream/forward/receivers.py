"""Who alerts are sent to, and how the command line names a webhook or a syslog receiver.

A receiver gets one alert at a time and returns the result; it never raises for failures outside this process.
"""

import ipaddress
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from assay_stream.alerts.formats import AlertView
from assay_stream.errors import ConfigurationError
from assay_stream.files.secret_file import secret_of_file
from assay_stream.forward.delivery import AttemptResult

_TRANSPORTS = ("udp", "tcp", "tls")


class Receiver(Protocol):
    """Takes alerts."""

    @property
    def name(self) -> str:
        """What it is called in logs and dead letters; holds no secret."""

    async def send(self, view: AlertView, body: str) -> AttemptResult:
        """Deliver one alert, and say what became of it."""

    async def close(self) -> None:
        """Let go of connections."""


Writer = Callable[[dict[str, Any]], str]
"""Writes an alert as a receiver takes it."""


def every_alert(view: AlertView) -> bool:
    return True


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
    wants: Callable[[AlertView], bool] = every_alert
    from_now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTarget:
    """Where a webhook is.

    Args:
        url: its address; may hold a secret, so it is never printed.
    """

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyslogTarget:
    """Where a syslog receiver is.

    Args:
        transport: ``udp``, ``tcp`` or ``tls``.
    """

    host: str
    port: int
    transport: str


def parse_target(text: str) -> WebhookTarget | SyslogTarget:
    """Return the receiver that ``--to`` names.

    Args:
        text: ``webhook:URL`` or ``syslog:HOST:PORT[,udp|tcp|tls]``.

    Raises:
        ConfigurationError: ``bad_receiver``.
    """
    kind, _, rest = text.partition(":")
    if kind == "webhook":
        try:
            parts = urlsplit(rest)
            good = parts.scheme in ("http", "https") and is_host(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            good = False
        if good:
            return WebhookTarget(url=rest)
    if kind == "syslog":
        target = _syslog_target(rest)
        if target is not None:
            return target
    raise ConfigurationError(
        "bad_receiver", "--to is webhook:http(s)://HOST/PATH or syslog:HOST:PORT[,udp|tcp|tls] ([::1] for IPv6)"
    )


def is_host(name: str | None) -> bool:
    """Tell whether a text can name a host."""
    try:
        return bool(name and name.encode("idna"))
    except UnicodeError:
        return False


def _syslog_target(text: str) -> SyslogTarget | None:
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
