"""The alerts of a replay compared with those that were recorded, record by record.

1. A recorded record that the replay writes too, to the byte, is identical; it may be there more than once. Another
   software version in it is reported as such, and everything else is compared.
2. What the replay would write after its last record, as time advances, may be there and need not be: a worker's clock
   goes on where a replay ends.
3. Of any other record what counts is what it says and where. The last record of an alert is its state: anything that
   differs in it is a difference, except what follows the order of reading. An earlier one
   must say what the replay says of the alert in some record, with counts on the way to the last; then it was written
   at another time.
4. Which alerts of shadowed tools came up on the way follows from the order in which servers were read; which are open
   at the end does not. One that has ended may be on one side only, and so may one that the other side folded.
5. A record of the replay that is not among the recorded ones is missing, if none takes its place. Records of one
   alert that are in another order than they were written were altered.
6. Alerts of users' agents are not compared: a replay does not have the agents. ``agents replay`` makes their findings.

A worker reads partitions side by side, and ticks by its clock. These rest on that alone, and not on the logs:

* **Kinds whose findings come from several partitions.** Calls have partitions of their own; a finding about pins,
  signatures or keys appears with the list or the decision, whichever is read second; two servers whose names look
  alike may be in two partitions. Which finding is the last, and how many there were when a record was written, follow
  from which was read first. What was found, how severe it is and whether it is open do not.
* **The time of an end** by a decision or by a list: that of whichever was read second.
* **A count that was held back** and written when its interval was over: a finding that arrives just then may or may
  not be in it.
* **Which shadowed names are folded**, where several servers held the names: the first that are found stand alone.
* **When a reason of such a kind joined** an alert about the same definition: a record on the way may lack it. Which
  reasons there are at the end does not follow from the order.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from typing import Any

from assay_stream.alerts.life_cycle import is_round
from assay_stream.alerts.view import AlertView, read_alert, view_of
from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.model.alert import Activity, AlertStatus
from assay_stream.model.finding import LIST_MARK, PIN_FIELDS, uid_of
from assay_stream.model.kinds import PIN_KINDS, SIGNATURE_KINDS, Kind
from assay_stream.verify.evidence import (
    ALTERED,
    MISSING,
    ORDER_OF_READING,
    SOFTWARE_CHANGED,
    UNEXPECTED,
    Difference,
    differing,
)

_PLACE = frozenset(
    f"$.unmapped.mcp_{name}"
    for name in ("origin_topic", "origin_partition", "origin_offset", "observer_id", "snapshot_id", "release")
)
_PACE = frozenset(
    f"$.{name}"
    for name in (
        *("activity_id", "activity_name", "type_uid", "type_name", "time", "count", "status", "status_id"),
        *("finding_info.first_seen_time", "finding_info.last_seen_time"),
        *("unmapped.mcp_observers", "unmapped.mcp_observers_active", "unmapped.mcp_repeats"),
    )
)
_COUNTED = frozenset(
    {"$.count", "$.finding_info.last_seen_time", "$.unmapped.mcp_observers", "$.unmapped.mcp_observers_active"}
)
_SPLIT = frozenset({"$.finding_info", "$.unmapped"})
_AT_TIMES = frozenset({"$.unmapped.mcp_resolved_by", "$.unmapped.mcp_suppressed_by"})

_FOLDED = frozenset(
    {"$.message", "$.finding_info.related_events", "$.finding_info.related_events_count", "$.severity", "$.severity_id"}
).union(f"$.unmapped.mcp_folded{part}" for part in ("", "_by_severity"))

FROM_SEVERAL_PARTITIONS = {
    **dict.fromkeys(
        (*PIN_KINDS, *SIGNATURE_KINDS, Kind.CALL_TO_UNLISTED_TOOL, Kind.BLOCKED_TOOL_CALLED), _PLACE | _PACE
    ),
    Kind.TOOL_SHADOWED: _PLACE | _PACE | {"$.unmapped.mcp_pin_observed"},
}
"""The members that follow the order of reading, of kinds whose findings come from several partitions."""


_PIN_NAMES = frozenset(f"mcp_pin_{name}" for name in PIN_FIELDS)


def reasons_in(alert: Mapping[str, Any]) -> list[str]:
    reasons = alert["unmapped"].get("mcp_reasons")
    return reasons.split(",") if isinstance(reasons, str) else []


def is_name_fold(alert: Mapping[str, Any]) -> bool:
    """Return True if an alert folds several shadowed names."""
    return alert["finding_info"]["types"] == [Kind.ALERTS_FOLDED] and LIST_MARK in str(
        alert["unmapped"].get("mcp_reason")
    )


def _from_several(reasons: Iterable[str]) -> list[str]:
    return [reason for reason in reasons if reason.partition(":")[0] in FROM_SEVERAL_PARTITIONS]


def differing_members(one: Mapping[str, Any], replayed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the members in which a decoded alert record differs from the replay's, as sorted JSON paths."""
    ours = _PLACE | _PACE | _AT_TIMES
    found = differing(one, replayed, split=_SPLIT, is_ours=lambda parent, name: f"{parent}.{name}" in ours)
    return tuple(sorted(found))


def what_it_says(alert: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decoded alert record without counts, times, positions and later additions: only what was found."""
    alert = _without_joined(alert)
    left_out = _PLACE | _PACE | _AT_TIMES | {"$.severity", "$.severity_id", "$.unmapped.mcp_pin_observed"}
    left_out |= _FOLDED if is_name_fold(alert) else frozenset()
    said: dict[str, Any] = {name: value for name, value in alert.items() if f"$.{name}" not in left_out}
    for name in ("finding_info", "unmapped"):
        if isinstance(alert.get(name), dict):
            said[name] = {k: v for k, v in alert[name].items() if f"$.{name}.{k}" not in left_out}
    return said


def _without_joined(alert: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record about one definition without the reasons of kinds that come from several partitions."""
    info, reasons = alert["finding_info"], reasons_in(alert)
    joined = _from_several(reasons)
    message, left = alert.get("message"), [reason for reason in reasons if reason not in joined]
    if not joined or not isinstance(message, str) or info["types"] != _types(info["types"][0], reasons):
        return alert
    for reason in joined:
        if f"; {reason}" not in message:
            return alert
        message = message.replace(f"; {reason}", "", 1)
    flat = {name: value for name, value in alert["unmapped"].items() if name not in {"mcp_reasons", *_PIN_NAMES}}
    bare = {"message": message, "finding_info": info | {"types": _types(info["types"][0], left)}}
    return {**alert, **bare, "unmapped": flat | ({"mcp_reasons": ",".join(left)} if left else {})}


def _types(kind: str, reasons: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([kind, *(reason.partition(":")[0] for reason in reasons)]))


def is_on_the_way(alert: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    """Return True if a record's counts can precede those of its alert's last record: they only grow.

    If findings come from several partitions, the order in which they are counted does not matter.
    """
    info, info_at_end = alert["finding_info"], end["finding_info"]
    try:
        if alert["severity_id"] > end["severity_id"] or alert["count"] < 1:
            return False
        return bool(_members_of_order(alert, end)) or bool(
            alert["count"] <= end["count"]
            and info_at_end["first_seen_time"] <= info["first_seen_time"] <= info["last_seen_time"]
            and info["last_seen_time"] <= info_at_end["last_seen_time"]
            and alert["unmapped"]["mcp_observers"] <= end["unmapped"]["mcp_observers"]
        )
    except (KeyError, TypeError):
        return False


def follows_order(alert: Mapping[str, Any], end: Mapping[str, Any], paths: tuple[str, ...]) -> bool:
    """Return True if every difference between two last records of an alert is due to the order of reading."""
    differing = set(paths)
    if not differing or _stands(alert) != _stands(end):
        return False
    of_order = _members_of_order(alert, end)
    if of_order:
        return differing <= of_order
    if end["activity_id"] == Activity.CLOSE and differing <= {"$.time"}:
        return True
    held_back = not is_round(end["count"]) and is_on_the_way(alert, end)
    return held_back and differing <= _COUNTED | _PLACE


def _members_of_order(alert: Mapping[str, Any], end: Mapping[str, Any]) -> frozenset[str]:
    """Return the members that depend on the order of reading; none if all findings are in one partition."""
    kind = end["finding_info"]["types"][0]
    if is_name_fold(end):
        return _PLACE | _PACE | _FOLDED
    if kind in FROM_SEVERAL_PARTITIONS:
        return FROM_SEVERAL_PARTITIONS[Kind(kind)]
    if not _from_several([*reasons_in(alert), *reasons_in(end)]):
        return frozenset()
    # What is said of a pin stands while its reason does; another value is another decision.
    flats = alert["unmapped"], end["unmapped"]
    absent = {f"$.unmapped.{name}" for name in _PIN_NAMES if any(flat.get(name) is None for flat in flats)}
    return _PLACE | _PACE | absent


def with_version(alert: Mapping[str, Any], version: str) -> dict[str, Any]:
    changed = dict(alert)
    metadata = alert.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("product"), dict):
        changed["metadata"] = metadata | {"product": metadata["product"] | {"version": version}}
    return changed


def _stands(alert: Mapping[str, Any]) -> tuple[bool, bool]:
    return alert.get("activity_id") == Activity.CLOSE, alert.get("status_id") == AlertStatus.SUPPRESSED


_OF_AGENTS = frozenset({Kind.DETECTION.value, Kind.AGENT_LIMITED.value})
_OWN_CAUSES = ((ORDER_OF_READING,), (SOFTWARE_CHANGED,))
_LATER_MAX = 16

CausesByTool = Mapping[tuple[str | None, str | None], Collection[str]]


@dataclass(slots=True)
class _Life:
    alert: Difference
    """What names it, without a cause."""
    lacking: dict[bytes, str] = field(default_factory=dict)
    """Digests of the replay's records that were not recorded so far, with their names."""
    said: set[bytes] = field(default_factory=set)
    """Digests of what the records say without counts and places."""
    reasons: set[str] = field(default_factory=set)
    """What joined it in any record of the replay."""
    ends: list[dict[str, Any]] = field(default_factory=list)
    """The last record of the replay, and what it would write later, where something is compared with it."""
    last_recorded: bytes = b""
    """Digest of the last recorded record, empty if there is none."""
    places: dict[bytes, int] = field(default_factory=dict)
    """Digests of the replay's records, with their places among them."""
    reached: int = 0
    is_reordered: bool = False
    is_name_fold: bool = False
    is_over: bool = False
    """Whether the replay closed it, or would as time advances."""
    strange: dict[bytes, dict[str, Any]] = field(default_factory=dict)
    of_other_version: bool = False


class AlertLedger:
    """Alerts on both sides. Memory grows by about 100 bytes for each alert record of the replay.

    Add the replay's records first, then the recorded ones, then what the replay would write as time advances.
    """

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self._unexpected: dict[str, Difference] = {}
        self._folded_otherwise: set[str | None] = set()
        """Servers whose shadowed names were folded, or stood alone, in a record that the replay has not."""
        self._altered: dict[Difference, None] = {}
        self._version = ""
        self.latest_ms = 0
        """Event time of the latest recorded record, milliseconds since the epoch."""

    def replayed(self, value: bytes | None) -> None:
        alert = read_alert(value)
        view = view_of(alert)
        life = self._lives.setdefault(view.uid, _Life(_difference_of(view)))
        digest = _digest(value or b"")
        life.lacking[digest] = _name(view)
        life.places[digest] = len(life.places)
        life.said.add(_digest(canonicalize(what_it_says(alert))))
        life.reasons.update(reasons_in(alert))
        life.ends = [alert]
        life.is_over, life.is_name_fold = view.activity_id == Activity.CLOSE, is_name_fold(alert)
        self._version = view.version

    def recorded(self, value: bytes | None) -> None:
        try:
            alert = read_alert(value)
        except InputError:
            self._altered[Difference(what="alert", causes=(ALTERED,), record_id="")] = None
            return
        view = view_of(alert)
        is_whole = view.kinds and isinstance(alert.get("unmapped"), dict)
        if not is_whole or _own_uid(view) != view.uid:
            self._altered[_difference_of(view, ALTERED)] = None
            return
        self.latest_ms = max(self.latest_ms, view.time_ms)
        life = self._lives.get(view.uid)
        if life is None and view.kind in _OF_AGENTS:
            return
        is_of_names = is_name_fold(alert) or view.kind == Kind.TOOL_SHADOWED
        if is_of_names and (life is None or (life.is_name_fold and _digest(value or b"") not in life.places)):
            self._folded_otherwise.add(view.server_id or None)
        if life is None:
            self._unexpected[view.uid] = _difference_of(view, ORDER_OF_READING if is_of_names else UNEXPECTED)
            return
        if view.version != self._version:
            life.of_other_version = True
            alert = with_version(alert, self._version)
            value = canonicalize(alert)
        digest = _digest(value or b"")
        life.last_recorded = digest
        life.lacking.pop(digest, None)
        place = life.places.get(digest)
        if place is None:
            life.strange[digest] = alert
        else:
            life.is_reordered |= place < life.reached
            life.reached = max(life.reached, place)

    def written_later(self, values: Iterable[bytes | None]) -> None:
        for value in values:
            alert = read_alert(value)
            view = view_of(alert)
            life = self._lives.get(view.uid)
            if life is not None:
                life.is_over = view.activity_id == Activity.CLOSE
            if life is not None and life.strange:
                life.strange.pop(_digest(value or b""), None)
                life.ends = [life.ends[0], *life.ends[1:][-_LATER_MAX:], alert]

    @property
    def identical(self) -> int:
        lives = (life for life in self._lives.values() if life.last_recorded)
        return sum(not (each.strange or each.lacking or each.is_reordered or each.of_other_version) for each in lives)

    def differences(self, causes_by_tool: CausesByTool) -> Iterator[Difference]:
        """Yield how the records of each alert differ.

        Args:
            causes_by_tool: why evidence differs, by server and tool: what derives from calls or decisions shares it.
        """
        yield from self._altered
        lives = (_difference(self._lives[uid], self._folded_otherwise) for uid in sorted(self._lives))
        for found in chain(filter(None, lives), (self._unexpected[uid] for uid in sorted(self._unexpected))):
            shared = causes_by_tool.get((found.server_id, found.tool_name))
            is_own = found.kind not in FROM_SEVERAL_PARTITIONS or found.causes in _OWN_CAUSES
            yield found if is_own or not shared else replace(found, causes=tuple(sorted(shared)))


def _difference(life: _Life, folded_otherwise: Collection[str | None]) -> Difference | None:
    alert = life.alert
    if not life.last_recorded:
        is_shadow = alert.kind == Kind.TOOL_SHADOWED or life.is_name_fold
        is_of_order = is_shadow and (life.is_over or alert.server_id in folded_otherwise)
        return replace(alert, causes=(ORDER_OF_READING if is_of_order else MISSING,))
    names = tuple(_name(view_of(record)) for record in life.strange.values())
    altered = life.is_reordered
    paths: tuple[str, ...] = ()
    for digest, record in life.strange.items():
        if digest == life.last_recorded:
            # Held against the record of the replay that differs least.
            ends = ((end, differing_members(record, end)) for end in life.ends)
            end, paths = min(ends, key=lambda pair: len(pair[1]))
            altered |= not follows_order(record, end, paths)
        else:
            said = _digest(canonicalize(what_it_says(record)))
            altered |= said not in life.said or not life.reasons.issuperset(reasons_in(record))
            altered |= not is_on_the_way(record, life.ends[-1])
    if altered:
        return replace(alert, causes=(ALTERED,), paths=paths, records=names)
    if life.lacking and not life.strange:
        return replace(alert, causes=(MISSING,), records=tuple(life.lacking.values()))
    if life.of_other_version:
        return replace(alert, causes=(SOFTWARE_CHANGED,), paths=(*paths, "$.metadata"), records=names)
    return replace(alert, causes=(ORDER_OF_READING,), paths=paths, records=names) if life.strange else None


def _digest(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=16).digest()


def _name(view: AlertView) -> str:
    return f"{view.activity} at {view.count} findings, {view.time_ms}"


def _difference_of(view: AlertView, *causes: str) -> Difference:
    return Difference(
        what="alert",
        causes=causes,
        server_id=view.server_id or None,
        tool_name=view.tool_name or None,
        record_id=view.uid,
        kind=view.kind or None,
    )


def _own_uid(view: AlertView) -> str | None:
    """Return the uid computed from an alert's content, ``None`` for a kind unknown to this version."""
    if view.kind not in set(Kind):
        return None
    if view.kind == Kind.SERVER_CHANGED:
        return uid_of(Kind.SERVER_CHANGED, view.fact("mcp_server_id"), None, None, view.fact("mcp_release"))
    about = view.fact("mcp_digest_after") or view.fact("mcp_digest_before") or None
    return uid_of(
        Kind(view.kind),
        view.fact("mcp_server_id"),
        view.fact("mcp_tool_name") or None,
        about,
        view.fact("mcp_reason") or None,
        item_name=view.fact("mcp_item_name") or view.fact("mcp_detection") + view.fact("mcp_detection_key") or None,
    )
