"""An alert as its readers see it: a record with its facts and MITRE ATLAS techniques, the row in a list, all records.

Only the members named here are read, so that an alert of a later version, with more members, activities or
statuses, is converted and shown all the same.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from importlib.resources import files
from itertools import takewhile, zip_longest
from operator import eq
from typing import Any, TypeGuard

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.model.alert import CLASS_DETECTION_FINDING, SEVERITY_TEXTS, STATUS_TEXTS, Activity, AlertStatus
from assay_stream.model.kinds import Kind
from assay_stream.text.times import time_ms_text

_TABLE = tomllib.loads((files(__package__) / "attacks.toml").read_text(encoding="utf-8"))
_TECHNIQUES: dict[str, dict[str, Any]] = _TABLE["techniques"]

ATLAS_VERSION: str = _TABLE["version"]
"""Release of ATLAS that the ids are from."""


def technique_ids(stated: Iterable[str], kinds: Iterable[str], indicators: Iterable[str]) -> list[str]:
    """Return the techniques and sub-techniques that an alert shows, sorted.

    Args:
        stated: ids in the record; unknown ones are left out.
        kinds: what was found.
        indicators: rules that matched in the text.
    """
    found = {_TABLE["refined"].get(each, each) for each in stated}
    for table, names in (("kinds", kinds), ("indicators", indicators)):
        found.update(each for name in names for each in _TABLE[table].get(name, ()))
    return sorted(found & _TECHNIQUES.keys())


def attack_objects(ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return OCSF ``attack`` objects: one for each technique and tactic, as ``tactics`` is deprecated there.

    Args:
        ids: as returned by ``technique_ids``.
    """
    return [
        {
            "tactic": {"uid": tactic, "name": _TABLE["tactics"][tactic]},
            "technique": _entry(each[:9]),
            **({"sub_technique": _entry(each)} if len(each) > 9 else {}),
            "version": ATLAS_VERSION,
        }
        for each in ids
        for tactic in _TECHNIQUES[each[:9]]["tactics"]
    ]


def _entry(technique: str) -> dict[str, str]:
    return {"uid": technique, "name": _TECHNIQUES[technique]["name"]}


_UID = re.compile(r"[\x21-\x7e]{1,256}")
"""Ours are 64 hexadecimal digits. It becomes part of headers, so it may contain nothing else."""

# OCSF has more of each than the engine writes.
_SEVERITIES = {0: "Unknown", **SEVERITY_TEXTS, 6: "Fatal", 99: "Other"}
_ACTIVITIES = {0: "Unknown", **{each.value: each.name.capitalize() for each in Activity}, 99: "Other"}
_STATUSES = {0: "Unknown", **STATUS_TEXTS, 5: "Archived", 6: "Deleted", 99: "Other"}
_RESOLVED_AND_BEYOND = (4, 5, 6)

_OF_SEVERAL = (Kind.FIRST_LOOK, Kind.ANALYSIS_CUT_SHORT, Kind.DEFINITION_AMBIGUOUS)
"""Kinds whose digest is that of a list, or of all definitions under a name."""

Scalar = str | int | float | bool


class ReviewState(StrEnum):
    """Whether somebody has to look at an alert."""

    OPEN = "open"
    SUPPRESSED = "suppressed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """The row of an alert in a list: its latest record.

    Args:
        server_id: ``""`` where the record names none.
        tool_name: ``""`` where it is about none.
        item_name: of the prompt, template, instructions or observer that it is about, ``""`` where it is about none.
        count: findings counted.
        observers: how many observers contributed.
        first_seen_ms: event time of the earliest finding, milliseconds since the epoch.
        last_seen_ms: event time of the latest.
        status: as in the record.
        group: shared by alerts of the same change on other servers, ``""`` where there is none.
        assigned_to: the assignee, or else who acknowledged it, ``""`` for neither.
    """

    uid: str
    severity: str
    severity_id: int
    kind: str
    server_id: str
    tool_name: str
    item_name: str
    count: int
    observers: int
    first_seen_ms: int
    last_seen_ms: int
    state: ReviewState
    status: str
    group: str
    assigned_to: str

    def as_json(self) -> dict[str, Any]:
        """Return the row as a JSON object, times as RFC 3339."""
        members = asdict(row_of(self))
        first, last = members.pop("first_seen_ms"), members.pop("last_seen_ms")
        return members | {
            "severity": self.severity.lower(),
            "state": self.state.value,
            "first_seen": time_ms_text(first),
            "last_seen": time_ms_text(last),
        }


def row_of(row: AlertRow) -> AlertRow:
    """Return the row alone, without what else a record holds."""
    return AlertRow(**{each.name: getattr(row, each.name) for each in fields(AlertRow)})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertView(AlertRow):
    """An alert record: its row, and what else converters use.

    Args:
        kinds: its kind, and the kinds of other findings that joined this alert.
        title: one line, without names.
        explanation: why it deserves attention.
        message: one line, with names.
        activity_id: OCSF activity: 1 create, 2 update, 3 close.
        activity: its name.
        status_id: OCSF status, 0 where the alert has none.
        time_ms: event time, milliseconds since the epoch.
        version: version of the software that raised it.
        flat: the flat facts under ``unmapped``: name to scalar.
        attacks: OCSF ``attacks`` objects: those of the record, or those that kinds and indicators map to. Their ids are
            in ``flat`` as ``mcp_attacks`` too.
        related: OCSF ``related_events`` objects, verbatim: the most severe members of a folded alert.
    """

    kinds: tuple[str, ...]
    title: str
    explanation: str
    message: str
    activity_id: int
    activity: str
    status_id: int
    time_ms: int
    version: str
    flat: dict[str, Scalar]
    attacks: list[dict[str, Any]]
    related: list[dict[str, Any]]

    def fact(self, name: str) -> str:
        """Return a flat fact, named with ``mcp_``, as text; ``""`` where the alert has none of this name."""
        return _fact(self.flat, name)

    @property
    def definition(self) -> str:
        """Full digest of the definition that it is about, ``""`` where it is about none, or about several."""
        return "" if self.kind in _OF_SEVERAL else self.fact("mcp_digest_after")

    @property
    def subject(self) -> tuple[str, str]:
        """What it is about on its server, and the name of that: ``("prompt", "review")``; ``("", "")`` for none."""
        if self.tool_name:
            return "tool", self.tool_name
        parts = self.related if self.kind == Kind.SERVER_CHANGED else []
        kind = str(parts[0].get("type")) if parts else self.kind
        what, name = kind.partition("_")[0], self.item_name
        return ("observer" if kind == Kind.OBSERVATIONS_LOST else what, name) if name else ("", "")

    def repeats(self, before: AlertView) -> bool:
        """Return True if it says of an open alert what the record before it said, and nothing else."""
        if not self.fact("mcp_repeats") or self.fact("mcp_act") or self.activity_id == Activity.CLOSE:
            return False
        # The message names what joined the alert, and counts the parts of a folded one.
        said, told = ((view.severity_id, view.message, view.fact("mcp_suppressed_by")) for view in (before, self))
        return said == told

    def key(self) -> str:
        """Return the idempotency key: the same for every delivery of one alert record."""
        repeats = self.flat.get("mcp_repeats")
        # It becomes part of a header: only an integer is safe there.
        return f"{self.uid}:{self.count}:{self.activity_id}{f':{repeats}' if _is_integer(repeats) else ''}"


def read_alert(raw: bytes | None) -> dict[str, Any]:
    """Return the alert that a record or a line holds.

    Args:
        raw: value bytes, ``None`` for a record without a value.

    Raises:
        InputError: ``not_an_alert``, or as ``decode_json``.
    """
    if raw is None:
        raise InputError("not_an_alert", "the record has no value: alerts are never deleted")
    alert: dict[str, Any] = decode_json(raw)
    view_of(alert)
    return alert


def view_of(alert: Any) -> AlertView:
    """Return the parts of an alert that converters use.

    Raises:
        InputError: ``not_an_alert`` for anything else.
    """
    if not isinstance(alert, dict) or alert.get("class_uid") != CLASS_DETECTION_FINDING:
        raise InputError("not_an_alert", "an alert is an OCSF Detection Finding (class_uid 2004)")
    info = object_in(alert, "finding_info")
    uid = info.get("uid")
    if not isinstance(uid, str) or not _UID.fullmatch(uid):
        raise InputError("not_an_alert", "an identity is printable ASCII", path="$.finding_info.uid")
    for name in ("severity_id", "activity_id", "time"):
        if not _is_integer(alert.get(name)):
            raise InputError("not_an_alert", "an alert has this member, an integer", path=f"$.{name}")
    types = info.get("types")
    kinds = [each for each in types if isinstance(each, str)] if isinstance(types, list) else []
    kind = next(iter(kinds), "")
    facts = object_in(alert, "unmapped")
    flat = {name: value for name, value in facts.items() if isinstance(value, Scalar)}
    attacks = _objects(info, "attacks") or _objects(alert, "attacks")
    if not attacks:
        stated, indicators = (str(flat.get(name, "")).split(",") for name in ("mcp_atlas", "mcp_indicators"))
        shown = technique_ids(stated, kinds, indicators)
        attacks = attack_objects(shown)
        flat |= {"mcp_attacks": ",".join(shown)} if shown else {}
    observers, time_ms, title = flat.get("mcp_observers"), alert["time"], _text(info, "title")
    activity_id, severity_id, status_id = alert["activity_id"], alert["severity_id"], _integer(alert, "status_id", 0)
    state = ReviewState.SUPPRESSED if status_id == AlertStatus.SUPPRESSED else ReviewState.OPEN
    # What a rule covers is written as suppressed also when it closes.
    is_closed = activity_id == Activity.CLOSE or status_id in _RESOLVED_AND_BEYOND
    return AlertView(
        uid=uid,
        kind=kind or str(flat.get("mcp_finding_kind", "")) or "unknown",
        kinds=tuple(kinds),
        server_id=_fact(flat, "mcp_server_id"),
        tool_name=_fact(flat, "mcp_tool_name"),
        item_name=_fact(flat, "mcp_item_name"),
        group=_fact(flat, "mcp_group"),
        assigned_to=_fact(flat, "mcp_assigned_to") or _fact(flat, "mcp_acknowledged_by"),
        observers=observers if isinstance(observers, int) else 1,
        title=title,
        explanation=_text(info, "desc"),
        message=_text(alert, "message") or title,
        activity_id=activity_id,
        activity=_text(alert, "activity_name") or _ACTIVITIES.get(activity_id, "Other"),
        severity_id=severity_id,
        severity=_text(alert, "severity") or _SEVERITIES.get(severity_id, "Other"),
        state=ReviewState.CLOSED if is_closed else state,
        status_id=status_id,
        status=_text(alert, "status") or _STATUSES.get(status_id, "Other"),
        count=_integer(alert, "count", 1),
        time_ms=time_ms,
        first_seen_ms=_integer(info, "first_seen_time", time_ms),
        last_seen_ms=_integer(info, "last_seen_time", time_ms),
        version=_text(object_in(object_in(alert, "metadata"), "product"), "version") or "unknown",
        flat=flat,
        attacks=attacks,
        related=_objects(info, "related_events"),
    )


class SeverityLevel(StrEnum):
    """The severities that alerts have, lowest first."""

    INFORMATIONAL = "informational"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


_SEVERITY_IDS = {level: number for number, level in enumerate(SeverityLevel, start=1)}
_FATAL = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSelection:
    """Selection criteria for alerts; ``None`` means no restriction.

    Args:
        since_ms: event time of the earliest, inclusive, milliseconds since the epoch.
        severity: this severity or higher.
    """

    since_ms: int | None = None
    server_id: str | None = None
    severity: SeverityLevel | None = None

    @property
    def severity_id(self) -> int | None:
        """The lowest selected OCSF severity, ``None`` for any."""
        return None if self.severity is None else _SEVERITY_IDS[self.severity]

    def wants(self, row: AlertRow, time_ms: int) -> bool:
        """Return True if an alert is selected at a time of it; an unknown severity counts as higher than any."""
        return (
            (self.since_ms is None or time_ms >= self.since_ms)
            and self.server_id in (None, row.server_id)
            and (not 1 <= row.severity_id <= _FATAL or row.severity_id >= (self.severity_id or 0))
        )


PREFIX_MIN = 6
"""Minimum number of hexadecimal digits of a uid in a command."""

_SHOWN_PREFIX_MIN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The records of one alert in the order of the log: all counted, the first and the latest kept."""

    count: int
    first: Sequence[AlertView]
    latest: Sequence[AlertView]

    @property
    def last(self) -> AlertView:
        return (self.latest or self.first)[-1]


def short_uids(uids: Iterable[str]) -> dict[str, str]:
    """Return the shortest prefix of each uid that no other one has, of at least 8 characters."""
    ordered = sorted(uids)
    short: dict[str, str] = {}
    alike = 0
    for uid, following in zip_longest(ordered, ordered[1:], fillvalue=""):
        before, alike = alike, sum(1 for _ in takewhile(lambda pair: eq(*pair), zip(uid, following, strict=False)))
        short[uid] = uid[: max(_SHOWN_PREFIX_MIN, before + 1, alike + 1)]
    return short


def by_group(rows: Iterable[AlertRow]) -> list[list[AlertRow]]:
    """Group rows of one change together, in the order of the first row of each group."""
    groups: dict[tuple[str, ReviewState], list[AlertRow]] = {}
    for row in rows:
        groups.setdefault((row.group or row.uid, row.state), []).append(row)
    return list(groups.values())


def _fact(flat: Mapping[str, Scalar], name: str) -> str:
    value = flat.get(name)
    return "" if value is None else scalar_text(value)


def scalar_text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def object_in(parent: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a member that is an object, ``{}`` where there is none."""
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def _text(parent: dict[str, Any], name: str) -> str:
    value = parent.get(name)
    return value if isinstance(value, str) else ""


def _is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _integer(parent: dict[str, Any], name: str, default: int) -> int:
    value = parent.get(name)
    return value if _is_integer(value) else default


def _objects(parent: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = parent.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
