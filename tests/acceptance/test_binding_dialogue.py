"""Dialogues with the engine: what proxies publish, record by record, and what is written about it.

Digests are those of the published vectors, never our own output.
"""

import hashlib
import json
from typing import Any, Self

import pytest
import rfc8785
from aiokafka.partitioner import murmur2

from assay_stream.model.evidence import Producer
from assay_stream.model.record import LOSS_TYPE, Headers, Record, Role
from tests.support.engine import EngineState
from tests.support.events import (
    SERVER,
    TEN_O_CLOCK_MS,
    Outcome,
    a_call,
    a_snapshot,
    an_announcement,
    an_event,
    read_live,
    record_of,
)
from tests.support.replaying import replay
from tests.support.vectors import vectors

CASES = {case["id"]: case for case in vectors("assay_tool_definition_p56b")["cases"]}

# Three editions of read_file, and another tool.
FIRST, SECOND, THIRD, OTHER = (
    json.loads(CASES[name]["input_raw"])
    for name in ("simple", "both_spellings", "non_ascii_description", "description_missing")
)
DIGEST_OF_FIRST, DIGEST_OF_SECOND, DIGEST_OF_THIRD = (
    CASES[name]["unscoped"]["tool_definition_digest"] for name in ("simple", "both_spellings", "non_ascii_description")
)


class Dialogue:
    """Records as proxies publish them, each at a second of its own choice."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def _add(self, role: Role, value: bytes, second: float, **place: Any) -> Self:
        offset = sum(record.role is role for record in self.records)
        timestamp_ms = TEN_O_CLOCK_MS + int(second * 1_000)
        self.records.append(record_of(role, value, offset=offset, timestamp_ms=timestamp_ms, **place))
        return self

    def lists(self, second: float, *tools: Any, **fields: Any) -> Self:
        """A proxy publishes what the server listed; without another name it is ``list-<number>``."""
        number = len(self.records)
        place = {name: fields.pop(name) for name in ("key", "partition", "headers") if name in fields}
        value = a_snapshot(*tools, number=number, second=second, **{"snapshot_id": f"list-{number}", **fields})
        return self._add(Role.SNAPSHOTS, value, second, **place)

    def announces(self, second: float, headers: Headers = (), **fields: Any) -> Self:
        value = an_announcement(number=len(self.records), second=second, **fields)
        return self._add(Role.SNAPSHOTS, value, second, headers=headers)

    def loses(self, second: float, *, lists: int = 0, calls: int = 0, observer_id: str = "proxy-1") -> Self:
        data = {"server_id": SERVER, "observer_id": observer_id, "lists": lists, "calls": calls}
        value = an_event(Role.SNAPSHOTS, len(self.records), second, data, type=LOSS_TYPE)
        return self._add(Role.SNAPSHOTS, value, second)

    def garbles(self, second: float, headers: Headers = ()) -> Self:
        return self._add(Role.SNAPSHOTS, b"{", second, headers=headers)

    def calls(self, second: float, **fields: Any) -> Self:
        number = len(self.records)
        return self._add(Role.CALLS, a_call(number=number, second=second, **fields), second)

    def ends(self, *, snapshot_partitions: int | None = None) -> Outcome:
        producer = Producer(version="0.1.0")
        return Outcome(replay(self.records, producer=producer, snapshot_partitions=snapshot_partitions))

    def joined_late(self) -> Outcome:
        return self._joined(sorted(self.records, key=lambda record: record.role is Role.CALLS))

    def joined_in_order(self) -> Outcome:
        return self._joined(self.records)

    def _joined(self, records: list[Record]) -> Outcome:
        return Outcome(read_live(EngineState(producer=Producer(version="0.1.0")), records))


def answer(outcome: Outcome) -> tuple[str, str | None, str | None]:
    (payload,) = outcome.evidence
    return payload["binding"]["scope"], payload.get("tool_definition_digest"), payload.get("unbound_reason")


def full_digest(tool: dict[str, Any]) -> str:
    return "sha256:" + hashlib.sha256(rfc8785.dumps(tool)).hexdigest()


def findings_of(outcome: Outcome) -> list[dict[str, Any]]:
    written = [output for output in outcome.of(Role.FINDINGS) if output.label.startswith("finding:")]
    return [json.loads(output.value or b"") for output in written]


def alerts_of(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(output.value or b"") for output in outcome.of(Role.ALERTS)]


# --- rule 1: exact ------------------------------------------------------------------------------------------


def test_a_call_that_names_its_list_is_bound_to_it_and_not_to_a_newer_one() -> None:
    outcome = Dialogue().lists(0, FIRST).lists(1, SECOND).calls(2, snapshot_id="list-0").ends()
    assert answer(outcome) == ("exact", DIGEST_OF_FIRST, None)
    binding = outcome.evidence[0]["binding"]
    assert binding["snapshot_id"] == "list-0"
    assert binding["origin"] == {"topic": "mcp.tools.list", "partition": 0, "offset": 0}


def test_a_call_that_names_its_list_is_bound_even_if_its_clock_is_behind() -> None:
    outcome = Dialogue().lists(10, FIRST).calls(2, snapshot_id="list-0").ends()
    assert answer(outcome) == ("exact", DIGEST_OF_FIRST, None)


def test_a_call_that_names_an_unknown_list_falls_to_the_next_rule() -> None:
    outcome = Dialogue().lists(0, FIRST).calls(1, snapshot_id="unheard of").ends()
    assert answer(outcome) == ("observer", DIGEST_OF_FIRST, None)


# --- rule 2: observer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (0.999999, ("none", None, "definition_not_observed")),
        (1, ("observer", DIGEST_OF_FIRST, None)),
        (1.999999, ("observer", DIGEST_OF_FIRST, None)),
        (2, ("observer", DIGEST_OF_SECOND, None)),
        (59, ("observer", DIGEST_OF_SECOND, None)),
    ],
)
def test_the_latest_list_at_or_before_the_call_is_in_force(
    second: float, expected: tuple[str, str | None, str | None]
) -> None:
    """As-of is inclusive to the microsecond, whether or not later lists are known when the call is joined."""
    dialogue = Dialogue().lists(1, FIRST).lists(2, SECOND).calls(second)
    assert answer(dialogue.ends()) == expected
    assert answer(dialogue.joined_late()) == expected


@pytest.mark.parametrize(
    ("tools", "digest"),
    [((FIRST, SECOND), DIGEST_OF_SECOND), ((SECOND, FIRST), DIGEST_OF_FIRST)],
    ids=["second later", "first later"],
)
def test_of_two_lists_at_one_moment_the_one_later_in_the_log_is_in_force(tools: Any, digest: str) -> None:
    outcome = Dialogue().lists(1, tools[0]).lists(1, tools[1]).calls(2).ends()
    assert answer(outcome) == ("observer", digest, None)


def test_what_the_callers_proxy_saw_beats_what_another_saw_later() -> None:
    outcome = Dialogue().lists(0, FIRST).lists(1, SECOND, observer_id="proxy-2").calls(2).ends()
    assert answer(outcome) == ("observer", DIGEST_OF_FIRST, None)


# --- rule 3: server -----------------------------------------------------------------------------------------


def test_where_every_observer_agrees_a_proxy_without_a_list_is_served() -> None:
    dialogue = Dialogue().lists(0, FIRST).lists(1, FIRST, OTHER, observer_id="proxy-2")
    assert answer(dialogue.calls(2, observer_id="proxy-3").ends()) == ("server", DIGEST_OF_FIRST, None)


def test_an_incomplete_list_that_lacks_the_tool_does_not_disturb_the_agreement() -> None:
    dialogue = Dialogue().lists(0, FIRST).lists(1, OTHER, observer_id="proxy-2", completeness="partial")
    assert answer(dialogue.calls(2, observer_id="proxy-3").ends()) == ("server", DIGEST_OF_FIRST, None)


# --- rule 4: unbound ----------------------------------------------------------------------------------------


def test_a_call_to_a_tool_that_a_complete_list_lacks_is_unbound_and_alerted() -> None:
    """tool_not_listed: evidence without a cluster, one call-time finding in the call's record, one alert."""
    outcome = Dialogue().lists(0, OTHER).calls(1).ends()
    assert answer(outcome) == ("observer", None, "tool_not_listed")
    (finding,) = findings_of(outcome)
    assert (finding["kind"], finding["tool_name"], finding["snapshot_id"]) == (
        "call_to_unlisted_tool",
        "read_file",
        "list-0",
    )
    assert finding["origin"] == {"topic": "mcp.tools.call", "partition": 0, "offset": 0}
    (alert,) = alerts_of(outcome)
    assert (alert["class_uid"], alert["finding_info"]["uid"]) == (2004, finding["uid"])
    assert alert["finding_info"]["types"] == ["call_to_unlisted_tool"]


@pytest.mark.parametrize("completeness", ["partial", "unknown"])
def test_an_incomplete_list_never_says_that_a_tool_is_gone(completeness: str) -> None:
    """A partial list without the tool: no tool_removed, and its call is unbound, definition_not_observed."""
    outcome = Dialogue().lists(0, FIRST, OTHER).lists(1, OTHER, completeness=completeness).calls(2).ends()
    assert answer(outcome) == ("observer", None, "definition_not_observed")
    assert outcome.findings == []
    assert alerts_of(outcome) == []


# --- drift --------------------------------------------------------------------------------------------------


def test_a_second_observers_first_look_is_compared_with_what_the_fleet_saw() -> None:
    outcome = Dialogue().lists(0, FIRST, OTHER).lists(1, SECOND, observer_id="proxy-2").ends()
    found = findings_of(outcome)
    assert [(finding["kind"], finding["tool_name"]) for finding in found] == [
        ("tool_changed", "read_file"),
        ("tool_removed", "t"),
    ]
    changed = found[0]
    assert (changed["before"], changed["after"]) == (full_digest(FIRST), full_digest(SECOND))
    assert changed["changed_fields"] == ["description", "inputSchema", "input_schema"]
    assert changed["observer_id"] == "proxy-2"
    [alert] = alerts_of(outcome)
    assert alert["unmapped"]["mcp_folded"] == 2


# --- keys and partitions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [2, 3, 12])
def test_a_server_outside_its_partition_is_found(partitions: int) -> None:
    home = (murmur2(SERVER.encode()) & 0x7FFFFFFF) % partitions
    for partition in range(partitions):
        dialogue = Dialogue().lists(0, FIRST, partition=partition).calls(1)
        outcome = dialogue.ends(snapshot_partitions=partitions)
        expected = [] if partition == home else [("server_misrouted", None)]
        assert outcome.findings == expected
        assert len(alerts_of(outcome)) == len(expected)
        bound, unbound = ("observer", DIGEST_OF_FIRST, None), ("none", None, "definition_not_observed")
        assert answer(outcome) == (bound if partition == home else unbound)
        assert dialogue.ends().findings == [], "where the number of partitions is not known, nothing is said"


# --- content modes ------------------------------------------------------------------------------------------


def in_binary_mode(record: Record) -> Record:
    """The same event as the Kafka protocol binding of CloudEvents 1.0 has it, section 3.2."""
    event = json.loads(record.value or b"")
    data = json.dumps(event.pop("data")).encode()
    headers: Headers = tuple((f"ce_{name}", text.encode()) for name, text in event.items())
    return record._replace(value=data, headers=(*headers, ("content-type", b"application/json")))


@pytest.mark.parametrize("roles", [{Role.CALLS}, {Role.SNAPSHOTS}, {Role.CALLS, Role.SNAPSHOTS}])
def test_binary_mode_gives_the_same_as_structured_mode(roles: set[Role]) -> None:
    structured = Dialogue().lists(0, FIRST).calls(1).lists(2, SECOND).calls(3).calls(4, tool_name="missing")
    binary = Dialogue()
    binary.records = [in_binary_mode(record) if record.role in roles else record for record in structured.records]
    assert binary.ends().outputs == structured.ends().outputs
    assert [payload.get("tool_definition_digest") for payload in binary.ends().evidence] == [
        DIGEST_OF_FIRST,
        DIGEST_OF_SECOND,
        None,
    ]


def test_the_trace_of_a_call_goes_with_its_evidence_in_either_mode() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    data = json.loads(a_call())["data"]
    structured = record_of(Role.CALLS, an_event(Role.CALLS, 0, 0, data, traceparent=trace))
    for record in (structured, in_binary_mode(structured)):
        (output,) = Outcome(replay([record], producer=Producer(version="0.1.0"))).of(Role.EVIDENCE)
        assert json.loads(output.value or b"")["traceparent"] == trace
        assert ("traceparent", trace.encode()) in output.headers
