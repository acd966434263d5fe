"""The alerts of a replay compared with those that were recorded, record by record.

1. A recorded record that the replay writes too, to the byte, is identical; it may be there more than once. Another
   software version in it is reported as such, and everything else is compared.
2. What the replay would write after its last record, as time advances, may be there and need not be: a worker's clock
   goes on where a replay ends.
3. Of any other record what counts is what it says and where. The last record of an alert is its state: anything that
   differs in it is a difference, except what ``alert_differences`` attributes to the order of reading. An earlier one
   must say what the replay says of the alert in some record, with counts on the way to the last; then it was written
   at another time.
4. Which alerts of shadowed tools came up on the way follows from the order in which servers were read; which are open
   at the end does not. One that has ended may be on one side only, and so may one that the other side folded.
5. A record of the replay that is not among the recorded ones is missing, if none takes its place. Records of one
   alert that are in another order than they were written were altered.
6. Alerts of users' agents are not compared: a replay does not have the agents. ``agents replay`` makes their findings.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from assay_stream.alerts.formats.view import AlertView, read_alert, view_of
from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.model.alert import Activity
from assay_stream.model.finding import uid_of
from assay_stream.model.kinds import Kind
from assay_stream.verify.alert_differences import (
    FROM_SEVERAL_PARTITIONS,
    differing_members,
    follows_order,
    is_name_fold,
    is_on_the_way,
    reasons_in,
    what_it_says,
    with_version,
)

ALTERED, MISSING, UNEXPECTED = "altered_record", "missing_record", "unexpected_record"
SOFTWARE_CHANGED = "software_changed"
ORDER_OF_READING = "order_of_reading"
"""Not a difference: the order in which a worker read its partitions, or the time of its ticks, decided it."""
_OF_AGENTS = frozenset({Kind.DETECTION.value, Kind.AGENT_LIMITED.value})
_LATER_MAX = 16


class KnownAlert(NamedTuple):
    """What an alert is about; ``tool_name`` where it is about one tool."""

    uid: str
    kind: str
    server_id: str | None
    tool_name: str | None


class AlertDifference(NamedTuple):
    """How the records of one alert differ.

    Args:
        cause: ``altered_record``, ``missing_record``, ``unexpected_record``, ``software_changed``, or
            ``order_of_reading``, which is not a difference.
        paths: the members of its last record that differ, as JSON paths.
        records: count of findings, activity and time of the records that differ.
        inherits: whether it follows from calls or decisions, and so perhaps from what made their evidence differ.
    """

    cause: str
    alert: KnownAlert
    paths: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    inherits: bool = False


@dataclass(slots=True)
class _Life:
    alert: KnownAlert
    lacking: dict[bytes, str] = field(default_factory=dict)
    """Digests of the replay's records that were not recorded so far, with their names."""
    said: set[bytes] = field(default_factory=set)
    """Digests of what the records say without counts and places."""
    reasons: set[str] = field(default_factory=set)
    """What joined it in any record of the replay."""
    ends: list[dict[str, Any]] = field(default_factory=list)
    """The last record of the replay, and what it would write later, where something is compared with it."""
    recorded: bool = False
    last_recorded: bytes = b""
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

    Everything that a replay writes goes in first, then what was recorded, then what the replay would write as time
    advances.
    """

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self._unexpected: dict[str, tuple[KnownAlert, str]] = {}
        self._folded_otherwise: set[str | None] = set()
        """Servers whose shadowed names were folded, or stood alone, in a record that the replay has not."""
        self._altered: dict[KnownAlert, None] = {}
        self._version = ""
        self.latest_ms = 0
        """Event time of the latest recorded record, milliseconds since the epoch."""

    def replayed(self, value: bytes | None) -> None:
        alert = read_alert(value)
        view = view_of(alert)
        life = self._lives.setdefault(view.uid, _Life(_known(view)))
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
            self._altered[KnownAlert("", "", None, None)] = None
            return
        view = view_of(alert)
        if _own_uid(view) != view.uid:
            self._altered[_known(view)] = None
            return
        self.latest_ms = max(self.latest_ms, view.time_ms)
        life = self._lives.get(view.uid)
        if life is None and view.kind in _OF_AGENTS:
            return
        is_of_names = is_name_fold(alert) or view.kind == Kind.TOOL_SHADOWED
        if is_of_names and (life is None or (life.is_name_fold and _digest(value or b"") not in life.places)):
            self._folded_otherwise.add(_known(view).server_id)
        if life is None:
            self._unexpected[view.uid] = _known(view), ORDER_OF_READING if is_of_names else UNEXPECTED
            return
        life.recorded = True
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
        return sum(
            life.recorded and not (life.strange or life.lacking or life.is_reordered or life.of_other_version)
            for life in self._lives.values()
        )

    def differences(self) -> Iterator[AlertDifference]:
        for alert in self._altered:
            yield AlertDifference(ALTERED, alert)
        for uid in sorted(self._lives):
            difference = _of(self._lives[uid], self._folded_otherwise)
            if difference is not None:
                yield _inheriting(difference)
        for uid in sorted(self._unexpected):
            alert, cause = self._unexpected[uid]
            yield _inheriting(AlertDifference(cause, alert))


def _of(life: _Life, folded_otherwise: Collection[str | None]) -> AlertDifference | None:
    alert = life.alert
    if not life.recorded:
        is_shadow = alert.kind == Kind.TOOL_SHADOWED or life.is_name_fold
        is_of_order = is_shadow and (life.is_over or alert.server_id in folded_otherwise)
        return AlertDifference(ORDER_OF_READING if is_of_order else MISSING, alert)
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
        return AlertDifference(ALTERED, alert, paths, names)
    if life.lacking and not life.strange:
        return AlertDifference(MISSING, alert, (), tuple(life.lacking.values()))
    if life.of_other_version:
        return AlertDifference(SOFTWARE_CHANGED, alert, (*paths, "$.metadata"), names)
    if life.strange:
        return AlertDifference(ORDER_OF_READING, alert, paths, names)
    return None


def _inheriting(difference: AlertDifference) -> AlertDifference:
    own = difference.cause in (ORDER_OF_READING, SOFTWARE_CHANGED)
    return difference._replace(inherits=not own and difference.alert.kind in FROM_SEVERAL_PARTITIONS)


def _digest(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=16).digest()


def _name(view: AlertView) -> str:
    return f"{view.activity} at {view.count} findings, {view.time_ms}"


def _known(view: AlertView) -> KnownAlert:
    return KnownAlert(view.uid, view.kind, view.fact("mcp_server_id") or None, view.fact("mcp_tool_name") or None)


def _own_uid(view: AlertView) -> str | None:
    """Return the uid that belongs to the content of an alert, ``None`` for a kind that this version does not know."""
    if view.kind not in set(Kind):
        return None
    about = view.fact("mcp_digest_after") or view.fact("mcp_digest_before") or None
    return uid_of(
        Kind(view.kind),
        view.fact("mcp_server_id"),
        view.fact("mcp_tool_name") or None,
        about,
        view.fact("mcp_reason") or None,
        item_name=view.fact("mcp_item_name") or _detected(view) or None,
    )


def _detected(view: AlertView) -> str:
    return f"{view.fact('mcp_detection') or ''}{view.fact('mcp_detection_key') or ''}"
