"""The receivers that a file lists (YAML), each with what it wants and a position of its own.

    receivers:
      - name: soc-channel
        type: slack
        url_file: /run/secrets/slack-url
        min_severity: high
        kinds: [tool_changed, pin_mismatch]
        servers: ["prod-*"]

Secrets stand in files that this one names, never in it.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay_stream.alerts.formats import CONTENT_TYPES, AlertFormat, AlertView, render
from assay_stream.alerts.formats.hec import to_hec
from assay_stream.alerts.formats.messages import to_pagerduty, to_slack, to_teams
from assay_stream.alerts.selection import AlertSelection, SeverityLevel
from assay_stream.config import secret_of_file
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.forward.posting import is_in_the_clear
from assay_stream.forward.receivers import (
    Receiver,
    Subscription,
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
from assay_stream.limits import DEFAULT_LIMITS, FORWARD_LIMITS
from assay_stream.model.glob import compile_glob
from assay_stream.model.kinds import Kind
from assay_stream.schemes.yaml_text import decode_yaml
from assay_stream.text.escaping import json_text

PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"

_NAME = re.compile("[a-z0-9][a-z0-9-]{0,62}")
_TAKEN = frozenset({"webhook", "syslog"})
"""The command line gives a receiver the group of this name: alerts would go to the one or to the other."""

_COMMON = {"name", "type", "min_severity", "kinds", "servers", "timeout_s", "ca_file", "start"}
_STARTS = ("oldest", "now")
_FOR_PEOPLE = {"slack", "teams", "pagerduty"}
"""Nobody is to be told of alerts that were over before the receiver was set up."""

_FIELDS = {
    "webhook": {"url", "url_file", "format", "header", "header_file", "hmac_file"},
    "syslog": {"to", "format"},
    "splunk_hec": {"url", "token_file", "index", "sourcetype"},
    "slack": {"url_file"},
    "teams": {"url_file"},
    "pagerduty": {"url", "routing_key_file"},
}
_REQUIRED = {
    "webhook": set[str](),
    "syslog": {"to"},
    "splunk_hec": {"url", "token_file"},
    "slack": {"url_file"},
    "teams": {"url_file"},
    "pagerduty": {"routing_key_file"},
}
_TIMEOUT_S = 10.0
_TIMEOUT_MIN_S, _TIMEOUT_MAX_S = 0.1, 300.0
_SECONDS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which alerts a receiver gets.

    Args:
        severity: of this severity or a higher one; one that is not known counts as higher.
        kinds: empty for all; an alert fits if any of its kinds does. One that stands for several alerts always fits:
            a server that raises many alerts must not hide among them the one that is asked for.
        servers: globs, empty for all.
    """

    severity: AlertSelection
    kinds: frozenset[str] = frozenset()
    servers: tuple[re.Pattern[str], ...] = ()

    def __call__(self, view: AlertView) -> bool:
        server_id = view.fact("mcp_server_id")
        return (
            self.severity.wants(view)
            and (
                not self.kinds or view.kind == Kind.ALERTS_FOLDED or not self.kinds.isdisjoint((view.kind, *view.kinds))
            )
            and (not self.servers or any(each.match(server_id) for each in self.servers))
        )


def read_receivers(raw: bytes, where: str, *, group_prefix: str) -> list[Subscription]:
    """Return the receivers that a file lists.

    Args:
        raw: its bytes, YAML.
        where: its name, for messages.
        group_prefix: what names of consumer groups begin with.

    Raises:
        ConfigurationError: ``bad_receivers``, naming the entry; ``bad_secret_file``, ``bad_tls_file``, ``bad_header``.
    """
    try:
        content = decode_yaml(raw, limits=DEFAULT_LIMITS)
    except InputError as error:
        raise _bad(where, error.message) from None
    listed = content.get("receivers") if isinstance(content, dict) and set(content) == {"receivers"} else None
    if not isinstance(listed, list) or not 1 <= len(listed) <= FORWARD_LIMITS.receivers_max:
        raise _bad(where, f"it must hold a list named receivers, with 1 to {FORWARD_LIMITS.receivers_max} entries")
    subscriptions: list[Subscription] = []
    for number, entry in enumerate(listed, 1):
        place = f"{where}, entry {number}"
        _checked(entry, place)
        name = f"forward-{entry['name']}"
        if any(each.name == name for each in subscriptions):
            raise _bad(place, "an entry before has the same name")
        receiver, write = _MADE[entry["type"]](entry, place)
        subscriptions.append(
            Subscription(
                name=name,
                receiver=receiver,
                group=f"{group_prefix}-{name}",
                write=write,
                wants=_wanted(entry, place),
                from_now=entry.get("start", "now" if entry["type"] in _FOR_PEOPLE else "oldest") == "now",
            )
        )
    return subscriptions


def _checked(entry: Any, place: str) -> None:
    kind = entry.get("type") if isinstance(entry, dict) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise _bad(place, f"type must be one of {', '.join(_FIELDS)}")
    if not isinstance(entry.get("name"), str) or not _NAME.fullmatch(entry["name"]):
        raise _bad(place, "name must be 1 to 63 of a-z, 0-9 and -: it names the consumer group that holds its position")
    if entry["name"] in _TAKEN:
        raise _bad(
            place, f"{entry['name']} names the group of `--to {entry['name']}:`: two receivers would share alerts"
        )
    unknown = sorted(str(field) for field in entry.keys() - _COMMON - _FIELDS[kind])
    missing = sorted(_REQUIRED[kind] - entry.keys())
    if unknown or missing:
        wrong = f"lacks {', '.join(missing)}" if missing else "has a field that it does not know"
        raise _bad(place, f"{kind} {wrong}; it takes {', '.join(sorted(_COMMON | _FIELDS[kind]))}")
    for field, value in entry.items():
        good, must = _judged(field, value)
        if not good:
            raise _bad(place, f"{field} must be {must}")


def _judged(field: str, value: Any) -> tuple[bool, str]:
    """Tell whether a field may have a value, and what it must be. YAML's scalars come as texts."""
    if field in ("kinds", "servers"):
        good = isinstance(value, list) and bool(value) and all(isinstance(each, str) and each for each in value)
        return good, "a list of texts, not an empty one: [one, another]"
    if field == "start":
        return value in _STARTS, f"one of {', '.join(_STARTS)}"
    good = isinstance(value, str) and bool(value) and value.isprintable()
    if field == "timeout_s":
        good = good and bool(_SECONDS.fullmatch(value)) and _TIMEOUT_MIN_S <= float(value) <= _TIMEOUT_MAX_S
        return good, f"seconds, {_TIMEOUT_MIN_S:g} to {_TIMEOUT_MAX_S:g}"
    return good, "one text, on one line"


def _wanted(entry: dict[str, Any], place: str) -> Wanted:
    unknown = set(entry.get("kinds", ())) - {kind.value for kind in Kind}
    if unknown:
        raise _bad(place, "kinds names a kind that does not exist: docs/alerts.md lists them")
    try:
        severity = SeverityLevel(entry["min_severity"]) if "min_severity" in entry else None
        servers = tuple(compile_glob(each) for each in entry.get("servers", ()))
    except ValueError:
        raise _bad(place, f"min_severity must be one of {', '.join(SeverityLevel)}") from None
    except InputError as error:
        raise _bad(place, error.message) from None
    return Wanted(severity=AlertSelection(severity=severity), kinds=frozenset(entry.get("kinds", ())), servers=servers)


def _webhook(entry: dict[str, Any], place: str) -> tuple[Receiver, Writer]:
    if ("url" in entry) == ("url_file" in entry):
        raise _bad(place, "give either url or url_file")
    if ("header" in entry) != ("header_file" in entry):
        raise _bad(place, "header is the name of a further header, header_file the file with its value: give both")
    url = entry.get("url") or _secret(entry, "url_file")
    if not _is_one_word(url):
        raise _bad(place, "url must be one word of ASCII: write other characters as %XX")
    _target(f"webhook:{url}", place)
    if "url_file" in entry and is_in_the_clear(url):
        raise _bad(place, "an address in a file of its own is a secret: it must be https (http on loopback only)")
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
        raise _bad(place, "to is HOST:PORT[,udp|tcp|tls]")
    receiver = Syslog(target, host=socket.gethostname(), **_http(entry))
    return receiver, partial(render, target=_format(entry, AlertFormat.CEF, place))


def _target(text: str, place: str) -> WebhookTarget | SyslogTarget:
    try:
        return parse_target(text)
    except ConfigurationError:
        raise _bad(place, "url is http(s)://HOST/PATH, to is HOST:PORT[,udp|tcp|tls] ([::1] for IPv6)") from None


def _splunk(entry: dict[str, Any], place: str) -> tuple[Receiver, Writer]:
    url, token = _safe_url(entry["url"], place), _secret(entry, "token_file")
    if "?" in url or "#" in url or "/services/collector" in url:
        raise _bad(place, "url is the collector's base address, https://HOST:8088: the rest is added")
    if not (token.isascii() and token.isprintable()):
        raise _bad(place, "the token must be one line of ASCII")
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
        raise _bad(place, "the address must be https://HOST/..., as it goes with a secret (http on loopback only)")
    return url


def _is_one_word(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url


def _secret(entry: dict[str, Any], field: str) -> str:
    return secret_of_file(Path(entry[field]), variable=field)


def _format(entry: dict[str, Any], default: AlertFormat, place: str) -> AlertFormat:
    try:
        return AlertFormat(entry.get("format", default))
    except ValueError:
        raise _bad(place, f"format must be one of {', '.join(AlertFormat)}") from None


def _bad(where: str, why: str) -> ConfigurationError:
    return ConfigurationError("bad_receivers", f"{where}: {why}")
