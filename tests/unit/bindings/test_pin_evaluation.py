"""Pins and signatures at each change point, and what is found about them."""

from dataclasses import replace
from typing import Any

from assay_stream.bindings.as_of import start_of
from assay_stream.bindings.checks import MISSING, evaluate_pins, new_findings, pin_evaluation_of, revised_first_uses
from assay_stream.bindings.server import ServerBindings
from assay_stream.detect import RULES_DIGEST
from assay_stream.model.control import PinStatus
from assay_stream.model.facts import Fact
from assay_stream.model.finding import Finding
from assay_stream.model.record import Role
from tests.support.facts import SERVER, a_catalogue, a_discovery, a_fingerprint, a_pin, bindings_with, seen, signed_by

ONE, TWO = a_catalogue("one", {"t": "a"}), a_catalogue("two", {"t": "b", "u": "a"})


def a_server(*facts: Fact) -> ServerBindings:
    bindings = bindings_with(ONE, TWO)
    for fact in facts:
        bindings.apply(fact)
    server = bindings.server(SERVER)
    for use in revised_first_uses(server, start_of(0))[1]:
        bindings.apply(use)
    return server


def found_in(server: ServerBindings, since_us: int = 0, **options: Any) -> list[tuple[str, str | None, int]]:
    found = evaluate_pins(server, start_of(since_us), **options)
    told = [(finding.kind.value, finding.reason, finding.time_us) for finding in found]
    return sorted(told, key=lambda one: (one[2], one[0]))


def test_a_name_that_nobody_lists_is_answered_and_not_remembered() -> None:
    server = a_server(seen("alice", 1, "one", offset=0), a_pin("x", time_us=0, offset=0, tool_name="ghost"))
    answer = pin_evaluation_of(server, None, None, "ghost", 5)
    assert (answer.pin.status, answer.signature, answer.signature_fragment) == (PinStatus.UNOBSERVED, None, None)
    assert server.answers == {}


def test_an_answer_does_not_depend_on_what_was_asked_before() -> None:
    signatures, checked = signed_by("k", "t")
    unsigned = seen("alice", 1, "one", offset=0)
    server = a_server(
        unsigned,
        seen("bob", 5, "one", offset=1, signatures="set"),
        signatures,
        checked,
        a_discovery("k", time_us=0, offset=0),
    )
    early, late = (pin_evaluation_of(server, unsigned, a_fingerprint("a"), "t", time_us) for time_us in (4, 5))
    assert early.signature is None
    assert late.signature is not None
    assert late.signature.error_code == MISSING


def test_of_many_records_of_one_time_each_answers_for_itself() -> None:
    """Pins imported with one time: what the first made wrong is not found again at those after it."""
    server = a_server(
        seen("alice", 1, "two", offset=0),
        a_pin("v1:x", time_us=5, offset=0),
        a_pin("v1:x", time_us=5, offset=1, tool_name="u"),
        a_pin("v1:x", time_us=5, offset=2, tool_name="ghost"),
    )
    found = evaluate_pins(server, start_of(0))
    assert sorted((finding.tool_name, finding.origin.offset) for finding in found) == [("t", 0), ("u", 1)]


def test_a_pinned_tool_that_is_not_digestible_is_not_called_different() -> None:
    """There is no value to hold against the pin: no mismatch is claimed."""
    server = a_server(a_pin("x", time_us=0, offset=0, scheme="schemapin.v1"), seen("alice", 1, "one", offset=0))
    assert found_in(server) == []


def test_new_findings_are_told_in_the_order_of_event_time() -> None:
    """Of the same time and origin, in the order of their bytes. Each carries the digest of the rules."""
    server = a_server(
        a_pin("v1:x", time_us=0, offset=0), seen("alice", 1, "two", offset=0), seen("bob", 2, "one", offset=1)
    )
    after = evaluate_pins(server, start_of(0))
    (first,) = (finding for finding in after if finding.time_us == 1)
    told = new_findings(after)
    assert [output.role for output in told] == [Role.FINDINGS] * 2
    assert [output.timestamp_ms for output in told] == [0, 0]
    first = replace(first, rules=RULES_DIGEST)
    assert told[0].value == first.encode()
    changed = replace(
        Finding(kind=first.kind, server_id=SERVER, time_us=1, origin=first.origin, action="block"), rules=RULES_DIGEST
    )
    assert [output.value for output in new_findings([first, changed])] == sorted([changed.encode(), first.encode()])
