"""Findings of the registry, the join and users' agents. The alert stage decides which of them become alerts."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from assay_stream.canonical.digest import canonicalize, jcs_digest
from assay_stream.errors import IntegrityError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.fields import (
    ActionText,
    AgentName,
    BareHex,
    ChangeDirection,
    DigestText,
    Enforcement,
    Identifier,
    LeftOut,
    Micros,
    Natural,
    OriginField,
    Positive,
    Scheme,
    SchemeValue,
    SeverityId,
    ShortText,
)
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Role
from assay_stream.model.wire import ALWAYS, Wire, nested, read_record, rows, write_record

_ORIGINS = Wire(
    Annotated[list[OriginField], Field(max_length=DEFAULT_LIMITS.agent_references_max)],
    lambda origins: [origin.as_json() for origin in origins],
    lambda given: [Origin(**origin) for origin in given],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """What a user's agent says of a finding of its own.

    Args:
        title: one line, without names of strangers.
        severity_id: OCSF severity, 1 to 5.
        key: the key under which the agent found it.
        digest: of the code that found it.
        references: the records that it rests on, beside the finding's own.
    """

    agent: AgentName
    title: ShortText
    severity_id: SeverityId
    key: Annotated[tuple[str, ...], Field(max_length=DEFAULT_LIMITS.agent_key_parts_max)]
    digest: DigestText
    references: Annotated[tuple[Origin, ...], _ORIGINS] = ()

    @property
    def subject(self) -> str:
        """The subject, instead of an item's name: the agent and the key."""
        return f"{self.agent}{self.key_text}"

    @property
    def key_text(self) -> str:
        return orjson.dumps(self.key).decode()


Counted = Literal["tools", "prompts", "templates", "instructions", "privileged"]
PIN_FIELDS = ("scheme", "expected", "observed", "enforcement", "action")
FINDING_MEMBERS = {"uid": BareHex}
"""What a finding's record holds beside its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing found in one record of an input log.

    Args:
        tool_name: about which tool, ``None`` where it is about none.
        item_name: about which prompt, by name, or which resource template, by URI template; ``instructions``; of lost
            observations, whose.
        observer_id: who saw it, ``None`` where that is not known.
        time_us: event time of the record it was found in, microseconds since the epoch; of a late one, when that
            showed.
        before: full digest of the definition before.
        after: full digest of the definition after.
        changed_fields: top-level fields of the definition that differ.
        known: another observation of this server had shown the same before.
        also: of a changed, added or renamed definition, labels of what else was found about it in the same record.
        approved: it matches what operators pinned.
        offered_elsewhere: it is known, and another observer is still offered it.
        left_out: of an analysis that was cut short, codes of what was left out.
        inventory: of a first list, how many tools, prompts, templates and instructions it has, and how many
            privileged tools.
        privileged: of a first list, the first of the privileged tools by name.
        counted: of a rationed list, kinds of findings that were counted instead of reported, and how many of each.
        reason: the stable code behind it, where the kind alone does not say enough; for keys, the key.
        scheme: of a pin, the scheme that it is under.
        expected: of a pin, the value that was approved.
        observed: of a pin, the value that was observed; of a shadowed tool, the server that had the name first.
        enforcement: of a policy, what it asks for.
        action: of a policy, what it would have done.
        renamed_to: of a renamed tool, its new name.
        changes: what changed, by meaning: code, path and direction; of one code in one field the first.
        indicators: what new text brings: rule, OCSF severity id and path.
        carried_over: of a changed definition, what else of high severity or above all of its text shows.
        late_ms: of a late list, how long before the latest one its event time lies.
        detection: of a finding of a user's agent, what the agent says of it.
        rules: digest of the rules and weights that detection decided by.
        release: of one of several changes in one list, digest of everything that the list offers.
    """

    kind: Kind
    server_id: Identifier
    time_us: Micros
    origin: Origin
    tool_name: str | None = None
    item_name: str | None = None
    observer_id: Identifier | None = None
    snapshot_id: Identifier | None = None
    before: DigestText | None = None
    after: DigestText | None = None
    changed_fields: Annotated[tuple[str, ...], ALWAYS] = ()
    known: Annotated[bool, ALWAYS] = False
    reason: str | None = None
    scheme: Annotated[str | None, Wire(Scheme)] = None
    expected: SchemeValue | None = None
    observed: Annotated[str | None, Wire(SchemeValue | Identifier)] = None
    enforcement: Annotated[str | None, Wire(Enforcement)] = None
    action: Annotated[str | None, Wire(ActionText)] = None
    renamed_to: str | None = None
    changes: Annotated[tuple[tuple[str, str, str], ...], rows(tuple[str, str, ChangeDirection])] = ()
    indicators: Annotated[tuple[tuple[str, int, str], ...], rows(tuple[str, SeverityId, str])] = ()
    carried_over: Annotated[tuple[tuple[str, int, str], ...], rows(tuple[str, SeverityId, str])] = ()
    also: tuple[str, ...] = ()
    late_ms: Natural | None = None
    approved: bool = False
    offered_elsewhere: bool = False
    left_out: Annotated[tuple[str, ...], Wire(list[LeftOut], list)] = ()
    counted: Annotated[tuple[tuple[str, int], ...], rows(tuple[Kind, Positive])] = ()
    detection: Annotated[Detected | None, nested(Detected)] = None
    inventory: Annotated[tuple[tuple[str, int], ...], rows(tuple[Counted, Natural])] = ()
    privileged: Annotated[tuple[str, ...], Field(max_length=DEFAULT_LIMITS.privileged_named_max)] = ()
    rules: DigestText | None = None
    release: BareHex | None = None

    def uid(self) -> str:
        """Return the identity of the finding: the same on every observer, every time, live or replayed."""
        if self.kind is Kind.SERVER_CHANGED:
            # Which part is the most severe may change; the release stays the same.
            return uid_of(self.kind, self.server_id, None, None, self.release)
        full = self.after or self.before
        about = self.item_name if self.detection is None else self.detection.subject
        return uid_of(self.kind, self.server_id, self.tool_name, full, self.reason, item_name=about)

    def label(self) -> str:
        return self.kind.value if self.reason is None else f"{self.kind}:{self.reason}"

    def encode(self) -> bytes:
        return canonicalize(finding_fields(self))

    def output(self) -> Output:
        return Output(
            role=Role.FINDINGS,
            key=self.server_id.encode(),
            value=self.encode(),
            timestamp_ms=self.time_us // 1_000,
            label=f"finding:{self.kind.value}",
        )


def decode_finding(value: bytes | None) -> Finding:
    """Decode a finding of the finding topic.

    Raises:
        IntegrityError: if the record is not a finding that this version knows.
    """
    try:
        return finding_of(orjson.loads(value or b""))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise unknown_finding() from None


def unknown_finding() -> IntegrityError:
    return IntegrityError(
        "unknown_finding", "the finding topic holds a record this version cannot read: run the version that wrote it"
    )


def uid_of(
    kind: Kind,
    server_id: str,
    tool_name: str | None,
    full: str | None,
    reason: str | None,
    *,
    item_name: str | None = None,
) -> str:
    """Return the identity of a finding, from its subject.

    Args:
        full: full digest of the definition it is about, if about one.
    """
    what = [kind.value, server_id, tool_name, full, reason]
    if item_name is not None:
        what.append(item_name)
    try:
        # A list of texts is canonical as orjson writes it.
        return sha256(orjson.dumps(what)).hexdigest()
    except orjson.JSONEncodeError:
        return jcs_digest(what).hex


def finding_fields(finding: Finding) -> dict[str, Any]:
    return write_record(finding) | {"uid": finding.uid()}


def finding_of(fields: Mapping[str, Any]) -> Finding:
    """Return the finding that a JSON object holds.

    Raises:
        AttributeError, KeyError, ValueError or TypeError: if it is no finding.
    """
    content = dict(fields)
    del content["uid"]
    return read_record(Finding, content)
