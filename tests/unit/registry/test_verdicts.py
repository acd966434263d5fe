"""Verdicts: what stands now for each tool, for proxies to enforce."""

import json
import time
from typing import Any

from assay_stream.bindings.state import Bindings
from assay_stream.model.facts import Catalogue, Fact, ToolFact
from assay_stream.model.record import Origin, Record, Role
from assay_stream.registry.step import Verdicts, changed_verdicts, verdict_key, verdicts_of
from assay_stream.schemes.fingerprint import Fingerprint
from tests.support.facts import SERVER, a_catalogue, a_pin, a_policy, bindings_with, seen

ONE, TWO = a_catalogue("one", {"t": "a"}), a_catalogue("two", {"t": "b"})
RECORD = Record(
    role=Role.CONTROL, origin=Origin(topic="assay.control", partition=3, offset=7), key=b"", value=b"", timestamp_ms=9
)


def a_state(*facts: Fact) -> Bindings:
    bindings = bindings_with(ONE, TWO)
    for fact in facts:
        bindings.apply(fact)
    return bindings


def verdicts(*facts: Fact) -> Verdicts:
    return verdicts_of(SERVER, a_state(*facts).server(SERVER))


def verdict(*facts: Fact, tool: str | None = "t") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(verdicts(*facts)[tool])
    return found


def test_one_definition_in_two_scopes_is_held_against_the_pin_in_each() -> None:
    bindings = a_state(seen("alice", 1, "one", offset=0), a_pin("v1:a", time_us=0, offset=0))
    print_ = Fingerprint(full="full:a", schemes={"assay.v1": "unscoped:a"}, errors={}, fields={})
    bindings.apply(ToolFact.of(server_id=SERVER, server_scoped=False, fingerprint=print_, packed=""))
    for digest in ("0", "z"):
        other = Catalogue(server_id=SERVER, digest=digest, server_scoped=False, tools={"t": "full:a"})
        bindings.apply(other)
        bindings.apply(seen("bob", int(digest == "z") + 2, digest, offset=ord(digest)))
        told = json.loads(verdicts_of(SERVER, bindings.server(SERVER))["t"])
        assert (told["status"], told["observed"]) == ("mismatch", "unscoped:a")


def test_a_name_that_stands_twice_has_no_match() -> None:
    """It cannot be told which definition an agent sees, and that is no way around a pin."""
    bindings = a_state(seen("alice", 1, "one", offset=0), a_pin("v1:a", time_us=0, offset=0))
    bindings.apply(Catalogue(server_id=SERVER, digest="double", server_scoped=True, tools={"t": None}))
    bindings.apply(seen("bob", 2, "double", offset=1))
    told = json.loads(verdicts_of(SERVER, bindings.server(SERVER))["t"])
    assert (told["status"], "observed" in told) == ("mismatch", False)


def test_a_decision_dated_ahead_of_all_others_is_what_stands() -> None:
    facts = [a_pin("v1:b", time_us=2**60, offset=0), a_pin("v1:a", time_us=1, offset=1)]
    assert verdict(*facts, seen("alice", 1, "one", offset=0))["expected"] == "v1:b"


def test_policies_of_many_tools_cost_what_each_of_them_does() -> None:
    """Processor time: comparing each of 16,000 with all others would take four seconds or more."""
    server = a_state(*(a_policy(time_us=n, offset=n, tool_name=f"t{n}") for n in range(16_000))).server(SERVER)
    started_s = time.process_time()
    assert len(verdicts_of(SERVER, server)) == 16_000
    assert time.process_time() - started_s < 2


def test_the_topic_gets_only_the_verdicts_that_differ() -> None:
    before: Verdicts = {"same": b"1", "changed": b"2", "gone": b"3"}
    after: Verdicts = {"same": b"1", "changed": b"4", "new": b"5", None: b"6"}
    outputs = list(changed_verdicts(RECORD, SERVER, before, after))
    told = [(output.key, output.value) for output in outputs]
    assert told == [
        (b'["server",null]', b"6"),
        (b'["server","changed"]', b"4"),
        (b'["server","gone"]', None),
        (b'["server","new"]', b"5"),
    ]
    assert {(output.role, output.partition, output.timestamp_ms) for output in outputs} == {(Role.VERDICTS, 3, 9)}


def test_the_key_of_a_verdict_tells_any_server_and_tool_apart() -> None:
    """Names may hold what separates them elsewhere."""
    assert verdict_key('a","b', "c") != verdict_key("a", 'b","c')
    assert json.loads(verdict_key("a", "b")) == ["a", "b"]
