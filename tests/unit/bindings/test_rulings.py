"""Rulings from the verdicts as they stand."""

import orjson
import pytest

from assay_stream.bindings.controls import ACTION_WEIGHT, NO_VERDICT, UNREADABLE, VerdictTable
from assay_stream.bindings.state import Bindings
from assay_stream.errors import IntegrityError
from assay_stream.registry.step import verdict_key, verdicts_of
from assay_stream.schemes.fingerprint import Fingerprint, fingerprint
from assay_stream.schemes.hangar import Action
from tests.support import facts
from tests.support.gates import SERVER, a_table, a_tool, a_verdict, pinned, value_of

GOOD, EVIL = a_tool(), a_tool(description="Other.")


def digested(tool: dict[str, object]) -> Fingerprint:
    return fingerprint(tool, server_id=SERVER)


def test_where_nothing_is_known_calls_pass_and_the_reason_says_so() -> None:
    assert VerdictTable().rule(SERVER, "read", digested(GOOD)) == NO_VERDICT
    assert NO_VERDICT.action is Action.ALLOW


@pytest.mark.parametrize(
    ("fleet", "own", "action", "reason"),
    [
        (GOOD, GOOD, "allow", "definition_match"),
        (EVIL, GOOD, "allow", "definition_match"),
        (GOOD, EVIL, "block", "definition_mismatch"),
        (GOOD, None, "allow", "definition_match"),
        (EVIL, None, "block", "definition_mismatch"),
        (None, None, "allow", "definition_unobserved"),
    ],
)
def test_the_definition_of_the_caller_counts_before_what_the_fleet_sees(
    fleet: dict[str, object] | None, own: dict[str, object] | None, action: str, reason: str
) -> None:
    table = a_table(read=a_verdict(approved={"assay.p60": value_of(GOOD)}, fleet=fleet))
    ruling = table.rule(SERVER, "read", None if own is None else digested(own))
    assert (ruling.action.value, ruling.reason_code) == (action, reason)


@pytest.mark.parametrize("definition", [None, digested(GOOD), UNREADABLE])
def test_a_tool_without_a_verdict_of_its_own_is_under_its_servers(definition: Fingerprint | None) -> None:
    table = a_table(everything=a_verdict(unknown="block", general=True))
    ruling = table.rule(SERVER, "other", definition)
    assert (ruling.action, ruling.reason_code) == (Action.BLOCK, "definition_unpinned")
    assert table.rule("another-server", "other", definition) == NO_VERDICT


@pytest.mark.parametrize(
    ("enforcement", "unknown", "action"),
    [
        ("block", "allow_degraded", "block"),
        ("audit", "block", "block"),
        ("audit", "warn", "warn"),
        ("warn", "allow_degraded", "warn"),
        ("audit", "allow_degraded", "allow"),
    ],
)
def test_a_pinned_tool_that_gives_no_value_is_ruled_by_the_graver_policy(
    enforcement: str, unknown: str, action: str
) -> None:
    """What was approved gave one, so it differs; and it is not known."""
    ruling = pinned(GOOD, enforcement=enforcement, unknown=unknown).rule(SERVER, "read", UNREADABLE)
    assert (ruling.action.value, ruling.reason_code) == (action, "definition_not_digestible")
    assert ruling.result is not None
    assert ruling.result.as_json()["action"] == action


def test_a_scheme_that_is_not_computed_here_is_not_taken_for_a_difference() -> None:
    """The policy for what was not observed decides, as in evidence."""
    table = a_table(read=a_verdict(approved={"scheme.of_tomorrow": "x"}, unknown="warn"))
    ruling = table.rule(SERVER, "read", digested(GOOD))
    assert (ruling.action, ruling.reason_code) == (Action.WARN, "definition_unobserved")


def test_without_a_policy_nothing_is_blocked() -> None:
    table = pinned(GOOD, enforcement=None)
    for definition in (digested(EVIL), UNREADABLE, None):
        assert table.rule(SERVER, "read", definition).action is Action.ALLOW


def test_the_later_record_of_a_key_replaces_the_earlier_and_a_tombstone_takes_it_back() -> None:
    table = pinned(GOOD)
    table.apply(verdict_key(SERVER, "read"), a_verdict(approved={"assay.p60": value_of(EVIL)}))
    assert table.rule(SERVER, "read", digested(EVIL)).action is Action.ALLOW
    assert len(table) == 1
    table.apply(verdict_key(SERVER, "read"), None)
    table.apply(verdict_key(SERVER, "read"), None)
    assert len(table) == 0
    assert table.rule(SERVER, "read", digested(GOOD)) == NO_VERDICT


def test_what_the_registry_writes_is_what_is_read() -> None:
    bindings = Bindings()
    for fact in (
        facts.a_pin(value_of(GOOD), time_us=1, offset=0, scheme="assay.p60", tool_name="read"),
        facts.a_pin(value_of(EVIL), time_us=2, offset=1, scheme="assay.p60", act="reject", tool_name="bad"),
        facts.a_policy("block", "warn", time_us=3, offset=2),
        facts.a_policy("warn", "allow_unverified", time_us=4, offset=3, tool_name="soft"),
    ):
        bindings.apply(fact)
    written = verdicts_of(facts.SERVER, bindings.servers[facts.SERVER])
    assert set(written) == {"read", "bad", "soft", None}
    table = VerdictTable()
    for name, value in written.items():
        table.apply(verdict_key(facts.SERVER, name), value)
    rule = table.rule
    assert rule(facts.SERVER, "read", digested(EVIL)).action is Action.BLOCK
    assert rule(facts.SERVER, "read", digested(GOOD)).action is Action.ALLOW
    assert rule(facts.SERVER, "bad", digested(EVIL)).reason_code == "definition_rejected"
    assert rule(facts.SERVER, "bad", digested(GOOD)).action is Action.WARN
    assert rule(facts.SERVER, "soft", None).action is Action.ALLOW
    assert rule(facts.SERVER, "whatever", None).action is Action.WARN


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", None),
        (b"x", None),
        (b'"ab"', None),
        (b"{}", None),
        (b'["s"]', None),
        (b'["s","t","u"]', None),
        (b'[1,"t"]', None),
        (b'["s",1]', None),
        *(
            (b'["s","t"]', value)
            for value in (
                b"",
                b"x",
                b"[]",
                b"{}",
                b'{"action":"allow"}',
                b'{"action":"perhaps","status":"match"}',
                b'{"action":"allow","status":"perhaps"}',
                b'{"action":"allow","status":"match","pins":1}',
                b'{"action":"allow","status":"match","rejected":[]}',
                b'{"action":"allow","status":"match","rejected":{"a":1}}',
                b'{"action":"allow","status":"match","policy":{}}',
                b'{"action":"allow","status":"match","policy":{"enforcement":"block","unknown":"x"}}',
                b'{"action":"allow","status":"match","policy":1}',
            )
        ),
    ],
)
def test_a_record_that_is_not_ours_is_an_error_and_changes_nothing(key: bytes | None, value: bytes | None) -> None:
    table = VerdictTable()
    table.apply(b'["s","t"]', a_verdict())
    with pytest.raises(IntegrityError, match="foreign_verdict"):
        table.apply(key, value)
    assert len(table) == 1


def test_fields_of_a_later_version_are_passed_over() -> None:
    """A worker may be newer than a proxy."""
    table = VerdictTable()
    table.apply(verdict_key(SERVER, "t"), orjson.dumps(orjson.loads(a_verdict()) | {"something": {"new": 1}}))
    assert len(table) == 1


def test_gravity_orders_actions() -> None:
    assert sorted(Action, key=ACTION_WEIGHT.__getitem__) == [Action.ALLOW, Action.WARN, Action.BLOCK]
