"""Tests of agents as data: records given, detections expected.

A scenario names a module of ``agents`` and has ``tests``, each with a ``name``, the records ``given`` and what is to be
``found``. A record names its input, the time ``at`` in seconds, and the fields that matter; the others are filled in::

    {"at": 3, "evidence": {"tool": "send", "decision": "deny"}}

``times`` and ``every_s`` repeat it. A detection expected names what matters of it: ``agent``, ``at``, ``server_id``,
``tool_name``, ``severity``, ``key``. Each must be found, in order, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay_stream.agents.declaration import AgentSet, Severity
from assay_stream.agents.runner import Runner
from assay_stream.alerts.state import counted
from assay_stream.canonical.digest import jcs_digest
from assay_stream.drift.severity import Level
from assay_stream.errors import InputError
from assay_stream.model.alert import Activity, AlertStatus
from assay_stream.model.alert_writer import alert_record
from assay_stream.model.evidence import DecisionPayload
from assay_stream.model.finding import Finding, decode_finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Role

_START = datetime(2026, 1, 1, tzinfo=UTC)
_START_US = int(_START.timestamp()) * 1_000_000
_TOPIC = "scenario"
_EVIDENCE_FIELDS = frozenset(get_type_hints(DecisionPayload)) - {"origin"}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _AlertFields(_Strict):
    server_id: str = "server"
    tool_name: str | None = None
    kind: Kind = Kind.TOOL_CHANGED
    severity: Severity = "high"
    activity: str = Field("create", pattern="^(create|update|close)$")
    status: str | None = Field(None, pattern="^(new|in_progress|suppressed|resolved)$")


class _FindingFields(_Strict):
    server_id: str = "server"
    tool_name: str | None = None
    observer_id: str = "observer"
    kind: Kind = Kind.TOOL_CHANGED
    reason: str | None = None


class _Given(_Strict):
    at: float = 0
    times: int = Field(1, ge=1, le=10_000)
    every_s: float = Field(1, ge=0)
    evidence: dict[str, Any] | None = None
    alert: _AlertFields | None = None
    finding: _FindingFields | None = None
    definition: dict[str, Any] | None = None


class _Found(_Strict):
    agent: str | None = None
    at: float | None = None
    server_id: str | None = None
    tool_name: str | None = None
    severity: Severity | None = None
    key: list[str] | None = None


class _Test(_Strict):
    name: str
    given: list[_Given]
    found: list[_Found]


class Scenario(_Strict):
    """The tests of a module's agents.

    Args:
        agents: the module, dotted.
        tests: in order.
    """

    agents: str
    tests: list[_Test]


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """What came of one test.

    Args:
        name: the test.
        found: the detections, as the scenario would name them.
        complaints: how they differ from what was expected; none where the test passes.
    """

    name: str
    found: list[dict[str, Any]]
    complaints: list[str] = field(default_factory=list)


def read_scenario(content: object) -> Scenario:
    """Return the scenario that a file holds.

    Raises:
        InputError: ``bad_scenario``, with the path of what is wrong.
    """
    try:
        return Scenario.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        why = "there is no such field" if first["type"] == "extra_forbidden" else first["msg"]
        raise InputError("bad_scenario", f"the scenario is wrong: {why}", path=path) from None


def run_scenario(scenario: Scenario, agents: AgentSet) -> Iterator[ScenarioResult]:
    """Yield what comes of each test.

    Each is run with its records in the order given and in the opposite one, which must not matter.

    Raises:
        ConfigurationError: for an agent that raised or returned junk.
        InputError: ``bad_scenario``.
    """
    for place, test in enumerate(scenario.tests):
        outputs = list(_outputs(test, f"$.tests[{place}]"))
        findings = _run(agents, outputs)
        found = [_named(finding) for finding in findings]
        complaints = list(_differences([one.model_dump(exclude_none=True) for one in test.found], found))
        if _run(agents, outputs) != findings or _run(agents, outputs[::-1]) != findings:
            complaints.append(
                "another run, or another order of arrival, gives other findings: an agent uses something else than its "
                "event and its memory"
            )
        yield ScenarioResult(test.name, found, complaints)


def _run(agents: AgentSet, outputs: list[Output]) -> list[Finding]:
    runner = Runner(agents)
    definitions = [output for output in outputs if output.role is Role.DEFINITIONS]
    others = [output for output in outputs if output.role is not Role.DEFINITIONS]
    written = [*runner.take([*definitions, *others]), *runner.end()]
    return [decode_finding(output.value) for output in written if output.role is Role.FINDINGS]


def _named(finding: Finding) -> dict[str, Any]:
    detection = finding.detection
    assert detection is not None  # noqa: S101 -- agents make no other findings
    named = {
        "agent": detection.agent,
        "at": (finding.time_us - _START_US) / 1_000_000,
        "server_id": finding.server_id,
        "tool_name": finding.tool_name,
        "severity": str(Level(detection.severity_id)),
        "key": list(detection.key),
        "limited": finding.reason,
    }
    return {name: value for name, value in named.items() if value is not None}


def _differences(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> Iterator[str]:
    if len(expected) != len(found):
        yield f"{len(expected)} detections are expected, {len(found)} were found"
    for number, (wanted, got) in enumerate(zip(expected, found, strict=False), 1):
        for name, value in wanted.items():
            if got.get(name) != value:
                yield f"detection {number}: {name} is {got.get(name)!r}, not {value!r}"


def _outputs(test: _Test, path: str) -> Iterator[Output]:
    offset = 0
    for number, given in enumerate(test.given):
        fields = (given.evidence, given.alert, given.finding, given.definition)
        strange = sorted((given.evidence or {}).keys() - _EVIDENCE_FIELDS)
        if strange or sum(each is not None for each in fields) != 1:
            wrong = "a record is one of evidence, alert, finding and definition"
            known = ", ".join(sorted(_EVIDENCE_FIELDS))
            why = f"evidence has no field {strange[0]!r}; there are {known}" if strange else wrong
            raise InputError("bad_scenario", f"test {test.name!r}: {why}", path=f"{path}.given[{number}]")
        for time in range(given.times):
            yield _output(given, given.at + time * given.every_s, Origin(_TOPIC, 0, offset))
            offset += 1


def _output(given: _Given, second: float, origin: Origin) -> Output:
    time_us = _START_US + round(second * 1_000_000)
    if given.evidence is not None:
        return _evidence(given.evidence, second, origin)
    if given.definition is not None:
        digest = str(given.definition.get("full_digest") or jcs_digest(given.definition))
        definition = {name: value for name, value in given.definition.items() if name != "full_digest"}
        value = orjson.dumps({"full_digest": digest, "definition": definition})
        return Output(Role.DEFINITIONS, digest.encode(), value)
    if given.finding is not None:
        return Finding(**given.finding.model_dump(), time_us=time_us, origin=origin).output()
    alert = given.alert
    assert alert is not None  # noqa: S101 -- one of the four is there
    activity = Activity[alert.activity.upper()]
    status = alert.status or {"create": "new", "update": "in_progress", "close": "resolved"}[alert.activity]
    finding = Finding(
        kind=alert.kind, server_id=alert.server_id, tool_name=alert.tool_name, time_us=time_us, origin=origin
    )
    return alert_record(
        counted(None, finding, int(Level.parse(alert.severity))),
        activity=activity,
        status=AlertStatus[status.upper()],
        time_us=time_us,
        suppressed_by=None,
        version="scenario",
    )


def _evidence(given: Mapping[str, Any], second: float, origin: Origin) -> Output:
    data: dict[str, Any] = {
        "server_id": "server",
        "observer_id": "observer",
        "tool": "tool",
        "tool_call_id": f"call-{origin.offset}",
        "decision": "allow",
        "reason_code": "scenario",
        "pin": {"status": "unpinned"},
        "binding": {"scope": "none"},
        **given,
        "origin": origin.as_json(),
    }
    time = (_START + timedelta(seconds=second)).isoformat().replace("+00:00", "Z")
    value = {"type": "assay.tool.decision", "specversion": "1.0", "time": time, "subject": data["tool"], "data": data}
    return Output(Role.EVIDENCE, str(data["server_id"]).encode(), orjson.dumps(value))
