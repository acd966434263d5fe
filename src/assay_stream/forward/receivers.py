"""What receivers are made of, and those that a file lists (TOML), each with what it wants and a position of its own.

1. A receiver gets one alert at a time and returns the result; it never raises for failures outside this process.
2. Taken: the alert is done. Refused for good: it goes to the dead letters, and is done. Anything else is the
   receiver's problem, not the alert's: the alert waits for as long as it takes.
3. Each type of receiver is a plug-in (``plugins.Receiver``). What carries a secret goes over HTTPS, or stays on this
   machine.

    [[receivers]]
    name = "soc-channel"
    type = "slack"
    url_file = "/run/secrets/slack-url"
    min_severity = "high"
    kinds = ["tool_changed", "pin_mismatch"]
    servers = ["prod-*"]

Secrets stand in files that this one names, never in it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay_stream.alerts.formats import AlertView
from assay_stream.alerts.view import AlertSelection, SeverityLevel
from assay_stream.errors import AssayStreamError, ConfigurationError, InputError
from assay_stream.files.local import config_of, entries_of, secret_of_file
from assay_stream.limits import FORWARD_LIMITS
from assay_stream.model.fields import compile_glob
from assay_stream.model.kinds import Kind
from assay_stream.plugins import FORMATS, RECEIVERS, Receiver
from assay_stream.text.urls import is_address, is_in_the_clear, is_one_word

_TIMEOUT_S = 10.0


class DeliveryOutcome(StrEnum):
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


_NAME = re.compile("[a-z0-9][a-z0-9-]{0,62}")
EXAMPLE_ENTERPRISE = 32473
"""The enterprise number reserved for documentation (RFC 5612), in syslog messages; set your own where it matters."""
TO = {"webhook": "url", "syslog": "to"}
"""Receivers that the command line can name in place of a file, and the setting that it gives. It gives them the group
of this name: with an entry of the same name, alerts would go to the one or to the other."""

_STARTS = ("oldest", "now")
_OF_ANY_KIND = (Kind.ALERTS_FOLDED, Kind.SERVER_CHANGED)
_TIMEOUT_MIN_S, _TIMEOUT_MAX_S = 0.1, 300.0


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) and each for each in value)


def _is_timeout(value: Any) -> bool:
    return type(value) in (int, float) and _TIMEOUT_MIN_S <= value <= _TIMEOUT_MAX_S


_TEXTS = Setting("", False, "a list of texts, not an empty one: [one, another]", _is_list)
_COMMON = {
    **dict.fromkeys(("name", "type", "min_severity", "ca_file"), Setting("")),
    **dict.fromkeys(("kinds", "servers"), _TEXTS),
    "timeout_s": Setting("", False, f"seconds, {_TIMEOUT_MIN_S:g} to {_TIMEOUT_MAX_S:g}", _is_timeout),
    "start": Setting("", False, f"one of {', '.join(_STARTS)}", lambda value: value in _STARTS),
}


def read_receivers(raw: bytes, where: str, *, group_prefix: str) -> list[Subscription]:
    """Return the receivers that a file lists.

    Args:
        raw: its bytes, TOML.
        where: its name, for messages.

    Raises:
        ConfigurationError: ``bad_receivers``, naming the entry; ``bad_secret_file``, ``bad_tls_file``, ``bad_header``.
    """
    content = config_of(raw, where, "bad_receivers")
    listed = entries_of(content, "receivers", where, "bad_receivers", entries_max=FORWARD_LIMITS.receivers_max)
    subscriptions: list[Subscription] = []
    for number, fields in enumerate(listed, 1):
        entry = Entry(fields if isinstance(fields, dict) else {}, f"{where}, entry {number}")
        try:
            receiver = _made(entry)
        except AssayStreamError:
            raise
        except Exception as error:
            # A stranger's code, whose words may quote a secret.
            raise entry.refuse(f"{RECEIVERS.described(entry['type'])} fails: {type(error).__name__}") from error
        name = f"forward-{entry['name']}"
        if any(each.name == name for each in subscriptions):
            raise entry.refuse("an entry before has the same name")
        subscriptions.append(
            Subscription(
                name=name,
                receiver=receiver,
                group=f"{group_prefix}-{name}",
                wants=_wanted(entry),
                from_now=entry.get("start", "now" if receiver.is_for_people else "oldest") == "now",
            )
        )
    return subscriptions


def _made(entry: Entry) -> Receiver:
    kind, name = entry.get("type"), entry.get("name")
    if kind not in RECEIVERS.names():
        raise entry.refuse(f"type must be one of {', '.join(RECEIVERS.names())}")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise entry.refuse(
            "name must be 1 to 63 of a-z, 0-9 and -: it names the consumer group that holds its position"
        )
    if name in TO:
        raise entry.refuse(f"{name} names the group of `--to {name}:`: two receivers would share alerts")
    plugin = RECEIVERS.load(kind)
    known = {**plugin.settings, **_COMMON}
    missing = sorted(field for field, setting in known.items() if setting.is_required and field not in entry)
    if missing or entry.keys() - known:
        wrong = f"lacks {', '.join(missing)}" if missing else f"has no field {min(entry.keys() - known)!r}"
        raise entry.refuse(f"{kind} {wrong}; it takes {', '.join(sorted(known))}")
    for field, value in entry.items():
        if not known[field].is_good(value):
            raise entry.refuse(f"{field} must be {known[field].must_be}")
    return plugin(entry)


def _wanted(entry: Entry) -> Callable[[AlertView], bool]:
    kinds = frozenset(entry.get("kinds", ()))
    if kinds - {kind.value for kind in Kind}:
        raise entry.refuse("kinds names a kind that does not exist: docs/alerts.md lists them")
    try:
        severity = AlertSelection(severity=SeverityLevel(entry["min_severity"]) if "min_severity" in entry else None)
        servers = [compile_glob(each) for each in entry.get("servers", ())]
    except ValueError:
        raise entry.refuse(f"min_severity must be one of {', '.join(SeverityLevel)}") from None
    except InputError as error:
        raise entry.refuse(error.message) from None

    def wants(view: AlertView) -> bool:
        return (
            severity.wants(view, view.time_ms)
            # One that stands for several alerts fits always: it must not hide the one that is asked for.
            and (not kinds or view.kind in _OF_ANY_KIND or not kinds.isdisjoint((view.kind, *view.kinds)))
            and (not servers or any(each.match(view.fact("mcp_server_id")) for each in servers))
        )

    return wants
