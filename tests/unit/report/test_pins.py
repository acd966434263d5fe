"""What operators decided, and how the tools stand to it."""

from dataclasses import replace

import pytest

from assay_stream.bindings.state import Bindings
from assay_stream.errors import InputError
from assay_stream.model.facts import decode_fact, encode_value
from assay_stream.report import pins
from assay_stream.report.pins import (
    approved_entries,
    history_rows,
    key_rows,
    offered_now,
    pin_rows,
    policy_rows,
    server_of,
    tools_offered_now,
    values_to_decide,
)
from assay_stream.schemes.fingerprint import PinEntry
from tests.support import facts
from tests.support.errors import raises_code
from tests.support.operators import APPROVED, OTHER, UNSEEN, US, a_state, v1


@pytest.fixture
def bindings() -> Bindings:
    return a_state()


def test_each_definition_in_force_with_who_sees_it(bindings: Bindings) -> None:
    server = server_of(bindings, facts.SERVER)
    found = [(each.fingerprint.full, each.observers) for each in offered_now(server, "t")]
    assert found == [("full:one", ("proxy-1",)), ("full:two", ("proxy-2",))]
    assert [each.observers for each in offered_now(server, "same")] == [("proxy-1", "proxy-2")]
    assert offered_now(server, "gone") == []
    assert tools_offered_now(server) == ["same", "t"]


def test_what_was_rejected_by_the_registry_is_in_force_no_more(bindings: Bindings) -> None:
    bindings.apply(facts.rejection(20 * US, offset=9))
    server = server_of(bindings, facts.SERVER)
    assert tools_offered_now(server) == []
    bindings.apply(facts.seen("proxy-2", 30 * US, "c2", offset=10))
    assert tools_offered_now(server) == ["same", "t"]


def test_decisions_in_force_with_their_standing(bindings: Bindings) -> None:
    rows = list(pin_rows(bindings, server_id=None, tool_name=None))
    assert [(row["tool_name"], row["value"], row["state"], row["comparison"]) for row in rows] == [
        ("gone", v1("gone"), "approved", "unobserved"),
        ("t", v1("bad"), "rejected", "match,mismatch"),
        ("t", APPROVED, "approved", "match,mismatch"),
    ]
    assert rows[2] == {
        "server_id": facts.SERVER,
        "tool_name": "t",
        "scheme": "assay.v1",
        "value": APPROVED,
        "state": "approved",
        "comparison": "match,mismatch",
        "author": "ann",
        "reason": "review",
        "since": "1970-01-01T00:00:05Z",
    }


def test_a_rejection_is_as_old_as_the_act_that_made_it(bindings: Bindings) -> None:
    bindings.apply(facts.a_pin(None, time_us=50 * US, offset=20))
    [row] = pin_rows(bindings, server_id=facts.SERVER, tool_name="t")
    assert (row["state"], row["since"]) == ("rejected", "1970-01-01T00:00:06Z")


def test_rows_can_be_narrowed(bindings: Bindings) -> None:
    assert list(pin_rows(bindings, server_id="other", tool_name=None)) == []
    assert [row["tool_name"] for row in pin_rows(bindings, server_id=facts.SERVER, tool_name="gone")] == ["gone"]
    assert history_rows(bindings, server_id="other", tool_name=None) == []
    assert [*policy_rows(bindings, server_id="other"), *key_rows(bindings, server_id="other")] == []


def test_history_has_every_decision_in_order(bindings: Bindings) -> None:
    rows = history_rows(bindings, server_id=None, tool_name=None)
    assert [row["change"] for row in rows] == [
        *("policy.set", "policy.set", "policy.set"),
        *("pin.set", "pin.set", "pin.reject", "pin.set"),
        *("key.accept", "key.revoke"),
    ]
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    assert rows[3]["value"] == UNSEEN
    assert rows[0]["value"] == "block, unknown allow_degraded"
    assert rows[7]["value"] == rows[7]["fingerprint"] == "sha256:" + "a" * 64
    assert rows[3]["origin"] == {"topic": "assay.control", "partition": 0, "offset": 3}


def test_a_policy_taken_back_is_in_force_no_more_and_in_the_history(bindings: Bindings) -> None:
    bindings.apply(facts.a_policy(None, time_us=50 * US, offset=20, tool_name="t"))
    assert [row["tool_name"] for row in policy_rows(bindings, server_id=None)] == ["*"]
    last = history_rows(bindings, server_id=None, tool_name="t")[-1]
    assert (last["change"], last["author"], "enforcement" in last) == ("policy.remove", "ann", False)


def test_the_history_of_a_tool_has_what_is_about_its_server_too(bindings: Bindings) -> None:
    rows = history_rows(bindings, server_id=None, tool_name="gone")
    assert [row["change"] for row in rows] == ["policy.set", "policy.set", "pin.set", "key.accept", "key.revoke"]


def test_approved_entries_are_the_pins_in_force(bindings: Bindings) -> None:
    assert approved_entries(bindings, server_id=None) == [
        PinEntry(facts.SERVER, "gone", "assay.v1", v1("gone")),
        PinEntry(facts.SERVER, "t", "assay.v1", APPROVED),
    ]


def test_an_approved_entry_keeps_what_it_is_bound_to() -> None:
    bindings = Bindings()
    for offset, upstream in enumerate(("http:a", "http:b")):
        pin = replace(facts.a_pin(APPROVED, time_us=US, offset=offset), upstream=upstream)
        bindings.apply(decode_fact(pin.key(), encode_value(pin)), partition=0)
    assert [entry.upstream for entry in approved_entries(bindings, server_id=None)] == ["http:b"]


class TestValuesToDecide:
    def test_under_the_schemes_of_the_pins_there_are(self, bindings: Bindings) -> None:
        server = server_of(bindings, facts.SERVER)
        assert values_to_decide(server, "t", full="full:two", schemes=()) == {"assay.v1": OTHER}

    def test_under_the_schemes_asked_for(self, bindings: Bindings) -> None:
        server = server_of(bindings, facts.SERVER)
        values = values_to_decide(server, "t", full="full:two", schemes=["assay.meta_hash", "assay.schema_hash"])
        assert values == {"assay.meta_hash": "mh:two", "assay.schema_hash": "sh:two"}

    def test_else_under_the_default_scheme(self, bindings: Bindings, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pins, "DEFAULT_SCHEME", "assay.meta_hash")
        values = values_to_decide(server_of(bindings, facts.SERVER), "same", full=None, schemes=())
        assert values == {"assay.meta_hash": "mh:same"}

    @pytest.mark.parametrize(
        ("tool", "full", "schemes", "code"),
        [
            ("t", None, (), "definition_ambiguous"),
            ("gone", None, (), "tool_not_observed"),
            ("t", "full:nine", (), "tool_not_observed"),
            ("t", "full:", (), "tool_not_observed"),
            ("same", None, (), "scheme_not_available"),
            ("t", "full:one", ("hangar.v2",), "scheme_not_available"),
        ],
    )
    def test_what_cannot_be_decided_is_refused(
        self, bindings: Bindings, tool: str, full: str | None, schemes: tuple[str, ...], code: str
    ) -> None:
        with raises_code(code):
            values_to_decide(server_of(bindings, facts.SERVER), tool, full=full, schemes=schemes)

    def test_the_beginning_of_a_digest_is_enough(self, bindings: Bindings, monkeypatch: pytest.MonkeyPatch) -> None:
        server = server_of(bindings, facts.SERVER)
        assert values_to_decide(server, "t", full="full:t", schemes=()) == {"assay.v1": OTHER}
        monkeypatch.setattr(pins, "_DIGITS_MIN", 5)
        with pytest.raises(InputError, match=r"ambiguous_digest.*full:one.*full:two"):
            values_to_decide(server, "t", full="full:", schemes=())

    def test_the_choice_among_several_names_them(self, bindings: Bindings) -> None:
        with pytest.raises(InputError, match=r"at t: .*full:one seen by 1; full:two seen by 1"):
            values_to_decide(server_of(bindings, facts.SERVER), "t", full=None, schemes=())


def test_a_server_that_nobody_named_is_an_error() -> None:
    with pytest.raises(InputError, match="server_not_known"):
        server_of(Bindings(), "x")


def test_the_last_policy_of_each_scope_is_in_force() -> None:
    rows = list(policy_rows(a_state(), server_id=None))
    assert [(row["tool_name"], row["enforcement"], row["since"]) for row in rows] == [
        ("*", "warn", "1970-01-01T00:00:02Z"),
        ("t", "audit", "1970-01-01T00:00:03Z"),
    ]
    assert rows[0] | {"unknown": "allow_degraded", "author": "ann", "reason": "review"} == rows[0]


def test_keys_by_where_they_come_from() -> None:
    rows = list(key_rows(a_state(), server_id=facts.SERVER))
    assert [(row["what"], row["domain"], row["fingerprint"][:8]) for row in rows] == [
        ("observed", "example.com", "sha256:a"),
        ("fetch_failed", "example.com", "-"),
        ("accepted", "example.com", "sha256:a"),
        ("revoked", "*", "sha256:b"),
    ]
    assert rows[0]["revoked"] == ["sha256:" + "b" * 64]
    assert (rows[2]["tool_name"], rows[2]["author"]) == ("*", "ann")
