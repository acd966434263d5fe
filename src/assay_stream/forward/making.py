"""Makes the receiver that an entry of the file describes, and what writes alerts as it takes them.

What carries a secret goes over HTTPS, or stays on this machine.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay_stream.alerts.formats import CONTENT_TYPES, AlertFormat, render
from assay_stream.alerts.formats.hec import to_hec
from assay_stream.alerts.formats.messages import to_pagerduty, to_slack, to_teams
from assay_stream.errors import ConfigurationError
from assay_stream.files.secret_file import secret_of_file
from assay_stream.forward.posting import is_in_the_clear
from assay_stream.forward.receivers import (
    Receiver,
    SyslogTarget,
    WebhookTarget,
    Writer,
    is_host,
    parse_target,
    tls_context,
)
from assay_stream.forward.services import Judge, MessageService, SplunkHec, by_pagerduty, by_slack, by_teams
from assay_stream.forward.syslog import Syslog
from assay_stream.forward.webhook import Webhook
from assay_stream.text.escaping import json_text

PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"

_TIMEOUT_S = 10.0


def make_receiver(entry: dict[str, Any], place: str) -> tuple[Receiver, Writer]:
    """Return the receiver of an entry whose fields were checked, and what writes alerts for it.

    Args:
        place: where the entry stands, for messages.

    Raises:
        ConfigurationError: ``bad_receivers``, ``bad_secret_file``, ``bad_tls_file``, ``bad_header``.
    """
    return _MADE[entry["type"]](entry, place)


def bad_entry(where: str, why: str) -> ConfigurationError:
    """Return the error about a file, or an entry of it."""
    return ConfigurationError("bad_receivers", f"{where}: {why}")


def _webhook(entry: dict[str, Any], place: str) -> tuple[Receiver, Writer]:
    if ("url" in entry) == ("url_file" in entry):
        raise bad_entry(place, "give either url or url_file")
    if ("header" in entry) != ("header_file" in entry):
        raise bad_entry(place, "header is the name of a further header, header_file the file with its value: give both")
    url = entry.get("url") or _secret(entry, "url_file")
    if not _is_one_word(url):
        raise bad_entry(place, "url must be one word of ASCII: write other characters as %XX")
    _target(f"webhook:{url}", place)
    if "url_file" in entry and is_in_the_clear(url):
        raise bad_entry(place, "an address in a file of its own is a secret: it must be https (http on loopback only)")
    chosen = _format(entry, AlertFormat.OCSF, place)
    receiver = Webhook(
        url,
        content_type=CONTENT_TYPES[chosen],
        header=(entry["header"], _secret(entry, "header_file")) if "header" in entry else None,
        secret=_secret(entry, "hmac_file").encode() if "hmac_file" in entry else None,
        **_http(entry),
    )
    return receiver, partial(render, target=chosen)


def _syslog(entry: dict[str, Any], place: str) -> tuple[Receiver, Writer]:
    target = _target(f"syslog:{entry['to']}", place)
    if isinstance(target, WebhookTarget):
        raise bad_entry(place, "to is HOST:PORT[,udp|tcp|tls]")
    receiver = Syslog(target, host=socket.gethostname(), **_http(entry))
    return receiver, partial(render, target=_format(entry, AlertFormat.CEF, place))


def _target(text: str, place: str) -> WebhookTarget | SyslogTarget:
    try:
        return parse_target(text)
    except ConfigurationError:
        raise bad_entry(place, "url is http(s)://HOST/PATH, to is HOST:PORT[,udp|tcp|tls] ([::1] for IPv6)") from None


def _splunk(entry: dict[str, Any], place: str) -> tuple[Receiver, Writer]:
    url, token = _safe_url(entry["url"], place), _secret(entry, "token_file")
    if "?" in url or "#" in url or "/services/collector" in url:
        raise bad_entry(place, "url is the collector's base address, https://HOST:8088: the rest is added")
    if not (token.isascii() and token.isprintable()):
        raise bad_entry(place, "the token must be one line of ASCII")
    metadata = {name: entry[name] for name in ("index", "sourcetype") if name in entry}
    receiver = SplunkHec(_label(entry), url, token=token, **_http(entry))
    return receiver, lambda alert: json_text(to_hec(alert, **metadata))


def _slack(entry: dict[str, Any], place: str) -> tuple[Receiver, Writer]:
    return _message(entry, place, by_slack), lambda alert: json_text(to_slack(alert))


def _teams(entry: dict[str, Any], place: str) -> tuple[Receiver, Writer]:
    return _message(entry, place, by_teams), lambda alert: json_text(to_teams(alert))


def _pagerduty(entry: dict[str, Any], place: str) -> tuple[Receiver, Writer]:
    url, key = _safe_url(entry.get("url", PAGERDUTY_URL), place), _secret(entry, "routing_key_file")
    receiver = MessageService(_label(entry), url, judge=by_pagerduty, **_http(entry))
    return receiver, lambda alert: json_text(to_pagerduty(alert, routing_key=key))


_MADE: dict[str, Callable[[dict[str, Any], str], tuple[Receiver, Writer]]] = {
    "webhook": _webhook,
    "syslog": _syslog,
    "splunk_hec": _splunk,
    "slack": _slack,
    "teams": _teams,
    "pagerduty": _pagerduty,
}


def _message(entry: dict[str, Any], place: str, judge: Judge) -> MessageService:
    return MessageService(_label(entry), _safe_url(_secret(entry, "url_file"), place), judge=judge, **_http(entry))


def _label(entry: dict[str, Any]) -> str:
    return f"{entry['type']}:{entry['name']}"


def _http(entry: dict[str, Any]) -> dict[str, Any]:
    tls: ssl.SSLContext = tls_context(Path(entry["ca_file"]) if "ca_file" in entry else None)
    return {"timeout_s": float(entry.get("timeout_s", _TIMEOUT_S)), "tls": tls}


def _safe_url(url: str, place: str) -> str:
    """Refuse what would carry a secret in the clear beyond this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        good = parts.scheme in ("http", "https") and not is_in_the_clear(url)
        good = good and is_host(host) and (parts.port or 1) > 0 and not parts.username
    except ValueError:
        good = False
    if not good or not _is_one_word(url):
        raise bad_entry(place, "the address must be https://HOST/..., as it goes with a secret (http on loopback only)")
    return url


def _is_one_word(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url


def _secret(entry: dict[str, Any], field: str) -> str:
    return secret_of_file(Path(entry[field]), variable=field)


def _format(entry: dict[str, Any], default: AlertFormat, place: str) -> AlertFormat:
    try:
        return AlertFormat(entry.get("format", default))
    except ValueError:
        raise bad_entry(place, f"format must be one of {', '.join(AlertFormat)}") from None
