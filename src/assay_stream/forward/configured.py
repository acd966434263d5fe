"""The receivers that a file lists (TOML), each with what it wants and a position of its own.

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
from dataclasses import dataclass
from typing import Any

from assay_stream.alerts.formats import AlertView
from assay_stream.alerts.index import AlertSelection, SeverityLevel
from assay_stream.errors import AssayStreamError, InputError
from assay_stream.forward.receivers import Entry, Setting, Subscription
from assay_stream.limits.serving import FORWARD_LIMITS
from assay_stream.model.fields import compile_glob
from assay_stream.model.kinds import Kind
from assay_stream.plugins import RECEIVERS, Receiver
from assay_stream.text.toml import decode_toml

_NAME = re.compile("[a-z0-9][a-z0-9-]{0,62}")
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
            self.severity.wants(view, view.time_ms)
            and (not self.kinds or view.kind in _OF_ANY_KIND or not self.kinds.isdisjoint((view.kind, *view.kinds)))
            and (not self.servers or any(each.match(server_id) for each in self.servers))
        )


def read_receivers(raw: bytes, where: str, *, group_prefix: str) -> list[Subscription]:
    """Return the receivers that a file lists.

    Args:
        raw: its bytes, TOML.
        where: its name, for messages.

    Raises:
        ConfigurationError: ``bad_receivers``, naming the entry; ``bad_secret_file``, ``bad_tls_file``, ``bad_header``.
    """
    file = Entry({}, where)
    try:
        content = decode_toml(raw)
    except InputError as error:
        raise file.refuse(error.message) from None
    listed = content.get("receivers") if set(content) == {"receivers"} else None
    if not isinstance(listed, list) or not 1 <= len(listed) <= FORWARD_LIMITS.receivers_max:
        raise file.refuse(f"it must hold a list named receivers, with 1 to {FORWARD_LIMITS.receivers_max} entries")
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
        wrong = f"lacks {', '.join(missing)}" if missing else "has a field that it does not know"
        raise entry.refuse(f"{kind} {wrong}; it takes {', '.join(sorted(known))}")
    for field, value in entry.items():
        if not known[field].is_good(value):
            raise entry.refuse(f"{field} must be {known[field].must_be}")
    return plugin(entry)


def _wanted(entry: Entry) -> Wanted:
    unknown = set(entry.get("kinds", ())) - {kind.value for kind in Kind}
    if unknown:
        raise entry.refuse("kinds names a kind that does not exist: docs/alerts.md lists them")
    try:
        severity = SeverityLevel(entry["min_severity"]) if "min_severity" in entry else None
        servers = tuple(compile_glob(each) for each in entry.get("servers", ()))
    except ValueError:
        raise entry.refuse(f"min_severity must be one of {', '.join(SeverityLevel)}") from None
    except InputError as error:
        raise entry.refuse(error.message) from None
    return Wanted(severity=AlertSelection(severity=severity), kinds=frozenset(entry.get("kinds", ())), servers=servers)
