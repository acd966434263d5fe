"""State records of the alert stage, and records between the two steps of users' agents.

The input topic of agents holds records of other topics, value for value, under the keys that the agents want:
``[agent, part, ...]``, and in every partition what agents keep of definitions. A header says which topic a record
comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.fields import (
    ActionText,
    BareHex,
    DigestText,
    Enforcement,
    Identifier,
    Micros,
    Natural,
    Positive,
    Scheme,
    SchemeValue,
    SeverityId,
    ShortText,
    TriageAct,
)
from assay_stream.model.finding import FINDING_MEMBERS, Finding, NameDigest, SuppressionRule, finding_fields, finding_of
from assay_stream.model.kinds import Kind
from assay_stream.model.wire import ALWAYS, Wire, record_model

_Severity = Literal["1", "2", "3", "4", "5"]


UNNAMED_OBSERVER = " "
"""Counts findings without an observer; no observer can have this name, since names are not blank."""


def named_count(observers: Iterable[str]) -> int:
    """Return the number of observers; an entry without a name, as from a decision, does not count."""
    return sum(1 for name in observers if name != UNNAMED_OBSERVER)


class FoldedMembers(TypedDict):
    """The members of a folded alert: by severity, the most severe (severity, kind, name, uid), how many are open."""

    by_severity: dict[_Severity, Positive]
    most_severe: Annotated[
        list[tuple[SeverityId, Kind, str | None, BareHex]], Field(max_length=DEFAULT_LIMITS.folded_named_max)
    ]
    open: Natural
    due: bool


class PinPart(TypedDict, total=False):
    """What a part says of a pin and its policy."""

    scheme: Scheme
    expected: SchemeValue
    observed: SchemeValue | Identifier
    enforcement: Enforcement
    action: ActionText


class AlertPart(TypedDict, total=False):
    """A finding of another kind about the same definition: how severe, and since when it does not hold any more."""

    label: Required[str]
    severity_id: Required[SeverityId]
    over_us: Required[Micros | None]
    pin: PinPart


class Triage(TypedDict, total=False):
    """What people said of an alert: the last word of each sort.

    ``closed`` and ``reopened`` say that a person did so, and that what the alert is about has not ended since.
    """

    acknowledged_by: ShortText
    assigned_to: ShortText
    act: TriageAct
    by: ShortText
    comment: ShortText
    closed: Literal[True]
    reopened: Literal[True]


def _lists(applied: Mapping[str, tuple[int, ...]]) -> dict[str, list[int]]:
    return {place: list(offsets) for place, offsets in applied.items()}


_Parts = Annotated[dict[BareHex, AlertPart], Field(max_length=DEFAULT_LIMITS.alert_parts_max)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertState:
    """What is remembered of one alert. The record's key is its uid.

    Values are never changed in place, so none is copied to be written: one resolution may end a thousand alerts,
    each of which a thousand observers saw.

    Args:
        applied: ``topic/partition`` of the records that were applied, to the latest offsets, ascending; of those
            that ended it, behind ``end/``.
        count: findings counted.
        first_us: event time of the earliest finding, microseconds since the epoch.
        last_us: event time of the latest.
        observers: how many findings each observer contributed.
        active: the observers that see it still.
        severity_id: the highest it ever was.
        raised: whether an alert was ever written for it.
        closed: whether the last one written closed it.
        reported: whether it was written unsuppressed since it was raised or came back.
        resolved_us: since when nobody sees it, ``None`` while somebody does.
        resolved_by: how it ended.
        written_count: count at the last writing.
        written_us: event time of the last writing.
        repeats: how often it was written again since the last finding.
        last: the last finding.
        fold: uid of the folded alert that speaks for this one, which writes nothing itself then.
        folded: of a folded alert, its members.
        part_of: uid of the alert that this finding joined, being about the same definition; it writes nothing then.
        parts: the findings of other kinds that joined it, by uid.
        triage: what people said of it.
        through: offset in the finding topic of what changed it last; what stands at it or before is applied.
    """

    applied: Annotated[dict[str, tuple[int, ...]], Wire(dict[str, list[Natural]], _lists)]
    count: Positive
    first_us: Micros
    last_us: Micros
    observers: dict[str, Positive]
    active: tuple[str, ...]
    severity_id: SeverityId
    raised: bool
    closed: Annotated[bool, ALWAYS] = False
    reported: Annotated[bool, ALWAYS] = False
    resolved_us: Annotated[Micros | None, ALWAYS] = None
    resolved_by: Annotated[str | None, ALWAYS] = None
    written_count: Annotated[Natural, ALWAYS] = 0
    written_us: Annotated[Micros, ALWAYS] = 0
    repeats: Annotated[Natural, ALWAYS] = 0
    last: Annotated[Finding, Wire(record_model(Finding, **FINDING_MEMBERS), finding_fields, finding_of)]
    fold: BareHex | None = None
    folded: Annotated[dict[str, Any] | None, Wire(FoldedMembers)] = None
    part_of: BareHex | None = None
    parts: Annotated[dict[str, AlertPart] | None, Wire(_Parts)] = None
    triage: Annotated[Triage | None, Wire(Triage)] = None
    through: Annotated[Natural, ALWAYS] = -1


class ClaimedName(TypedDict):
    """A server's claim to a name: since when, with which definitions, approved or not."""

    server_id: Identifier
    tool_name: str
    since_us: Micros
    added: bool
    sketch: Annotated[list[NameDigest], Field(max_length=DEFAULT_LIMITS.name_sketch_max)]
    definitions: dict[DigestText, bool]


class AlertNames(TypedDict):
    """The claims to names that look alike. The key is ``names/<partition>/<skeleton>``."""

    names: list[ClaimedName]
    left_out: Natural
    through: Natural


class RecordCount(TypedDict):
    """What one record began: alerts by severity, and the folded alerts it changed."""

    origin: str
    raised: dict[_Severity, Positive]
    folded: Annotated[list[BareHex], Field(max_length=DEFAULT_LIMITS.alerts_per_record_max)]


class AlertRecords(TypedDict):
    """What the latest records of one server began: ``records/<server>``, of names ``name_records/<group>/<server>``."""

    records: Annotated[list[RecordCount], Field(max_length=DEFAULT_LIMITS.alert_records_max)]


class AlertProgress(TypedDict):
    """The next finding to read, and how many states the partition has. The key is ``progress``."""

    position: Natural
    states: Natural


ALERT_STATES: dict[str, Any] = {
    "assay.alert.state": record_model(AlertState),
    "assay.alert.state.name_records": AlertRecords,
    "assay.alert.state.names": AlertNames,
    "assay.alert.state.progress": AlertProgress,
    "assay.alert.state.records": AlertRecords,
    "assay.alert.state.rules": Annotated[
        dict[str, record_model(SuppressionRule)],  # type: ignore[misc]
        Field(
            description="The suppression rules of one server, or of all, by their ids. "
            "The key is ``rules/<partition>/<server>``."
        ),
    ],
}
"""What the values of the alert state topic are, by the name of their schema."""


INPUT_HEADER = "assay-agent-input"
"""Header of the input topic: the role of the topic that a record comes from."""


class DefinitionLabel(TypedDict):
    """What an agent remembers of a definition. Key: ``definition/<agent>/<full digest>``."""

    label: Any


class AgentMemory(TypedDict):
    """What an agent remembers under a key. Key: ``state/<array of the agent and the parts of the key>``."""

    last_us: Micros
    state: dict[str, Any]


AGENT_RECORDS: dict[str, Any] = {
    "assay.agent.state": AgentMemory,
    "assay.agent.state.definition": DefinitionLabel,
    "assay.agent.state.progress": AlertProgress,
}
"""What the values of the state topic are, by the name of their schema."""
