"""Models of what the alert stage remembers: the values of the alert state topic."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, RootModel

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.fields import BareHex, Closed, DigestText, Identifier, Micros, Natural
from assay_stream.model.kinds import Kind
from assay_stream.model.schemas.findings import FindingRecord, NameDigest, SuppressionRuleField


class FoldedMembers(Closed):
    """The members of a folded alert: by severity, the gravest (severity, kind, name, uid), and how many stand."""

    by_severity: dict[Literal["1", "2", "3", "4", "5"], Annotated[int, Field(ge=1)]]
    gravest: Annotated[
        list[tuple[Annotated[int, Field(ge=1, le=5)], Kind, str | None, BareHex]],
        Field(max_length=DEFAULT_LIMITS.folded_named_max),
    ]
    open: Natural
    due: bool


class AlertStateValue(Closed):
    """What is remembered of one alert. The record's key is its uid."""

    applied: dict[str, list[Natural]]
    count: Annotated[int, Field(ge=1)]
    first_us: Micros
    last_us: Micros
    observers: dict[str, Annotated[int, Field(ge=1)]]
    active: list[str]
    severity_id: Annotated[int, Field(ge=1, le=5)]
    raised: bool
    closed: bool
    told: bool
    resolved_us: Micros | None
    resolved_by: str | None
    written_count: Natural
    written_us: Micros
    repeats: Natural
    last: FindingRecord
    fold: BareHex | None = None
    folded: FoldedMembers | None = None
    through: Natural


class AlertRulesValue(RootModel[dict[str, SuppressionRuleField]]):
    """The suppression rules of one server, or of all, by their ids. The key is ``rules/<partition>/<server>``."""


class ClaimedName(Closed):
    """A server's claim to a name: since when, with which definitions, approved or not."""

    server_id: Identifier
    tool_name: str
    since_us: Micros
    added: bool
    sketch: Annotated[list[NameDigest], Field(max_length=DEFAULT_LIMITS.name_sketch_max)]
    definitions: dict[DigestText, bool]


class AlertNamesValue(Closed):
    """The claims to names that look alike. The key is ``names/<partition>/<skeleton>``."""

    names: list[ClaimedName]
    left_out: Natural
    through: Natural


class RecordCount(Closed):
    """What one record began: alerts by severity, and the folded alerts it changed."""

    origin: str
    raised: dict[Literal["1", "2", "3", "4", "5"], Annotated[int, Field(ge=1)]]
    folded: Annotated[list[BareHex], Field(max_length=DEFAULT_LIMITS.alerts_per_record_max)]


class AlertRecordsValue(Closed):
    """What the latest records of one server began. The key is ``records/<server>``."""

    records: Annotated[list[RecordCount], Field(max_length=DEFAULT_LIMITS.alert_records_max)]


class AlertProgressValue(Closed):
    """The next finding to read, and how many states the partition has. The key is ``progress``."""

    position: Natural
    states: Natural
