"""Control records to facts."""

import hashlib
import json
from typing import Any

import pytest
import rfc8785

from assay_stream.model.cloudevents import read_event
from assay_stream.model.control import AnyControlFact, ControlDecision, ControlEvent, Discovery, Pin, Policy
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.registry.processor import change_record, fact_of, says_nothing_new
from assay_stream.schemes import assay_tool as assay
from tests.support.controls import a_control, a_document, fingerprint_of
from tests.support.errors import raises_code
from tests.support.events import SERVER, TEN_O_CLOCK_MS, record_of
from tests.support.facts import SERVER as FACTS_SERVER, a_discovery, a_key_decision, a_pin, a_policy, with_facts
from tests.support.schemapin import OTHER_KEY, public

VALUE = "sha256:" + "0123456789abcdef" * 4
PIN = {"tool_name": "t", "scheme": "assay.v1", "value": VALUE}
PLACE = Origin(topic="assay.control", partition=0, offset=7)
COMMON: dict[str, Any] = {"server_id": SERVER, "origin": PLACE, "time_us": TEN_O_CLOCK_MS * 1_000 + 1_500_000}


def fact(kind: str, **data: Any) -> Any:
    record = record_of(Role.CONTROL, a_control(kind, second=1.5, **data), offset=7)
    event = read_event(record)
    assert isinstance(event, ControlEvent)
    return fact_of(record, event)


def test_both_names_of_hangar_s_default_are_one_policy() -> None:
    """``allow_unverified`` is the later name of ``allow_degraded``; one of them is kept."""
    found = fact("policy.set", enforcement="audit", unknown="allow_unverified")
    assert isinstance(found, Policy)
    assert found.unknown == "allow_degraded"


def test_of_a_document_its_key_and_its_revocations_are_kept() -> None:
    document = a_document(revoked=(fingerprint_of(OTHER_KEY),)) | {"contact": "me@example.com"}
    found = fact("discovery.observed", domain="example.com", status="observed", document=document)
    assert found == Discovery(
        domain="example.com",
        status="observed",
        fingerprint=fingerprint_of(),
        public_key_pem=public().pem,
        revoked=(fingerprint_of(OTHER_KEY),),
        **COMMON,
    )


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"status": "fetch_failed", "error_code": "discovery_fetch_failed", "detail": "no route"}, "fetch_failed"),
        ({"status": "fetch_failed", "document": a_document()}, "fetch_failed"),
        ({"status": "observed"}, "invalid"),
        ({"status": "observed", "error_code": "discovery_invalid", "detail": "no JSON"}, "invalid"),
        ({"status": "observed", "document": {}}, "invalid"),
        ({"status": "observed", "document": a_document() | {"domain": "example.org"}}, "other_domain"),
    ],
)
def test_what_brings_no_key_says_why(given: dict[str, Any], status: str) -> None:
    """A network that failed is not a domain that serves nonsense."""
    assert fact("discovery.observed", domain="example.com", **given) == Discovery(
        domain="example.com",
        status=status,  # type: ignore[arg-type]
        **COMMON,
    )


@pytest.mark.parametrize("domain", ["example.com", "localhost", "example.com:8443", "a.b-c.example"])
def test_a_domain_is_a_host_with_or_without_a_port(domain: str) -> None:
    found = fact("discovery.observed", domain=domain, status="fetch_failed")
    assert isinstance(found, Discovery)
    assert found.domain == domain


@pytest.mark.parametrize(
    ("kind", "data", "code"),
    [
        ("policy.set", {"enforcement": "stop", "unknown": "warn"}, "unknown_value"),
        ("policy.set", {"enforcement": "warn"}, "missing_field"),
        ("policy.set", {"enforcement": "warn", "unknown": "warn", "author": None}, "missing_field"),
        ("key.accept", {"fingerprint": fingerprint_of()}, "missing_field"),
        ("key.accept", {"fingerprint": "sha256:12", "domain": "example.com"}, "bad_format"),
        ("key.accept", {"fingerprint": fingerprint_of(), "domain": "Example.com"}, "bad_format"),
        ("key.accept", {"fingerprint": fingerprint_of(), "domain": "https://example.com"}, "bad_format"),
        ("key.revoke", {"fingerprint": fingerprint_of().upper()}, "bad_format"),
        ("key.revoke", {"fingerprint": fingerprint_of(), "reason": ""}, "empty_value"),
        ("discovery.observed", {"domain": "example.com", "status": "maybe"}, "unknown_value"),
        ("discovery.observed", {"domain": "example.com\n", "status": "observed"}, "bad_format"),
        ("discovery.observed", {"domain": "example.com", "status": "observed", "document": "{}"}, "wrong_type"),
        ("pin.add", PIN, "unknown_type"),
        ("pin.set", PIN | {"scheme": "md5"}, "unknown_value"),
        ("pin.set", PIN | {"value": VALUE.upper()}, "bad_format"),
        ("pin.set", PIN | {"value": VALUE.replace("sha256", "sha512")}, "bad_format"),
        ("pin.set", PIN | {"value": VALUE[:-1]}, "bad_format"),
        ("pin.set", PIN | {"value": f"{VALUE}\n"}, "bad_format"),
        ("pin.set", PIN | {"author": None}, "missing_field"),
        ("pin.reject", PIN | {"value": None}, "missing_field"),
    ],
)
def test_a_record_that_is_not_sound_sets_nothing(kind: str, data: dict[str, Any], code: str) -> None:
    with raises_code(code):
        fact(kind, **data)


# --- changes: what is evidence of a record -----------------------------------------------------------------

RECORD = record_of(Role.CONTROL, a_control("key.revoke", number=4, fingerprint="sha256:" + "0" * 64), offset=4)


def output_of(fact: ControlDecision, *before: AnyControlFact, record: Record = RECORD) -> Output:
    event = read_event(record)
    assert isinstance(event, ControlEvent)
    return change_record(record, event, fact, with_facts(*before), Producer(version="1", git="abc"))


def payload_of(fact: ControlDecision, *before: AnyControlFact) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output_of(fact, *before).value or b"")["data"]
    return found


def replaced_by(fact: ControlDecision, *before: AnyControlFact) -> Any:
    return payload_of(fact, *before).get("replaces")


def is_superseded(fact: ControlDecision, *before: AnyControlFact) -> bool:
    found: bool = payload_of(fact, *before)["superseded"]
    return found


# --- the envelope -------------------------------------------------------------------------------------------


def test_a_change_is_an_envelope_that_can_be_checked_by_hand() -> None:
    output = output_of(a_pin("a", time_us=5_000, offset=4))
    event = json.loads(output.value or b"")
    assert rfc8785.dumps(event) == output.value
    assert event["assaycontenthash"] == str(assay.content_hash(event))
    given = json.loads(RECORD.value or b"")
    identity = json.dumps([given["source"], given["id"]], separators=(",", ":")).encode()
    assert event["id"] == hashlib.sha256(identity).hexdigest()
    assert (event["type"], event["subject"], event["time"]) == ("assay.control.change", FACTS_SERVER, given["time"])
    assert (event["assaypii"], event["assaysecrets"], event["assaygit"]) == (False, False, "abc")


def test_a_change_stands_in_the_order_of_the_control_log() -> None:
    output = output_of(a_pin("a", time_us=5_000, offset=4), record=RECORD)
    assert (output.role, output.key, output.partition) == (Role.CHANGES, FACTS_SERVER.encode(), 0)
    assert (output.timestamp_ms, output.label) == (5, "change:key.revoke")
    assert json.loads(output.value or b"")["data"]["origin"] == RECORD.origin.as_json()


def test_a_change_says_who_what_and_why() -> None:
    common = {"author": "ann", "reason": "review"}
    pin = payload_of(a_pin("a", time_us=5, offset=4))
    assert pin.items() >= (common | {"tool_name": "t", "scheme": "assay.v1", "value": "a"}).items()
    policy = payload_of(a_policy("warn", "block", time_us=5, offset=4))
    assert policy.items() >= (common | {"enforcement": "warn", "unknown": "block"}).items()
    assert "tool_name" not in policy
    key = payload_of(a_key_decision("accept", "k", time_us=5, offset=4, tool_name="t"))
    assert key.items() >= (common | {"key_fingerprint": "k", "domain": "example.com", "tool_name": "t"}).items()


def test_a_discovery_names_the_key_and_never_its_document() -> None:
    discovery = a_discovery("k", time_us=5, offset=4, revoked=("l",))
    told = payload_of(discovery)
    assert told["revoked_keys"] == ["l"]
    assert (told["domain"], told["status"], told["key_fingerprint"]) == ("example.com", "observed", "k")
    assert "pem" not in json.dumps(told)


# --- what it replaced ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fact", "replaced"),
    [
        (a_pin("b", time_us=5, offset=4), "a"),
        (a_pin("a", time_us=5, offset=4), None),
        (a_pin("a", time_us=5, offset=4, act="reject"), "a"),
        (a_pin("b", time_us=5, offset=4, act="reject"), None),
        (a_pin(None, time_us=5, offset=4), "a"),
        (a_pin("a", time_us=5, offset=4, act="remove"), "a"),
        (a_pin("b", time_us=5, offset=4, act="remove"), None),
        (a_pin("b", time_us=5, offset=4, scheme="hangar.v2"), None),
        (a_pin("b", time_us=5, offset=4, tool_name="u"), None),
        (a_pin("b", time_us=0, offset=4), None),
    ],
    ids=[
        "another value",
        "the same value",
        "rejected",
        "another rejected",
        "removed",
        "taken back",
        "another taken back",
        "another scheme",
        "another tool",
        "before it",
    ],
)
def test_a_pin_replaces_the_value_that_is_approved_no_more(fact: Pin, replaced: str | None) -> None:
    assert replaced_by(fact, a_pin("a", time_us=1, offset=0)) == replaced


def test_a_policy_replaces_the_one_in_force_for_the_same_tools() -> None:
    """For a tool without one of its own that is the server's; an equal one replaces nothing."""
    of_server = a_policy("warn", "block", time_us=1, offset=0)
    was = {"enforcement": "warn", "unknown": "block"}
    assert replaced_by(a_policy("audit", time_us=5, offset=4), of_server) == was
    assert replaced_by(a_policy("audit", time_us=5, offset=4, tool_name="t"), of_server) == was
    assert replaced_by(a_policy("warn", "block", time_us=5, offset=4), of_server) is None
    assert replaced_by(a_policy("audit", time_us=0, offset=4), of_server) is None
    of_tool = a_policy("warn", "block", time_us=1, offset=0, tool_name="t")
    assert replaced_by(a_policy("audit", time_us=5, offset=4), of_tool) is None


def test_a_policy_taken_back_replaces_that_of_the_same_tools_alone() -> None:
    of_server, of_tool = a_policy("warn", time_us=1, offset=0), a_policy("block", time_us=2, offset=1, tool_name="t")
    removed = a_policy(None, time_us=5, offset=4, tool_name="t")
    assert replaced_by(removed, of_server, of_tool) == {"enforcement": "block", "unknown": "allow_degraded"}
    assert replaced_by(removed, of_server) is None


def test_an_accepted_key_replaces_the_one_pinned_before() -> None:
    before = a_key_decision("accept", "k", time_us=1, offset=0)
    assert replaced_by(a_key_decision("accept", "l", time_us=5, offset=4), before) == "k"
    assert replaced_by(a_key_decision("accept", "l", time_us=5, offset=4, tool_name="t"), before) == "k"
    assert replaced_by(a_key_decision("accept", "k", time_us=5, offset=4), before) is None
    assert replaced_by(a_key_decision("revoke", "k", time_us=5, offset=4), before) is None


def test_a_discovery_replaces_the_key_that_was_found_before() -> None:
    """A failure takes no key away, so that it replaces none; what is no document does."""
    before = a_discovery("k", time_us=1, offset=0)
    assert replaced_by(a_discovery("l", time_us=5, offset=4), before) == "k"
    assert replaced_by(a_discovery(None, time_us=5, offset=4, status="invalid"), before) == "k"
    assert replaced_by(a_discovery(None, time_us=5, offset=4, status="fetch_failed"), before) is None
    failed = a_discovery(None, time_us=2, offset=1, status="fetch_failed")
    assert replaced_by(a_discovery("l", time_us=5, offset=4), before, failed) == "k"
    broken = a_discovery(None, time_us=2, offset=1, status="invalid")
    assert replaced_by(a_discovery("k", time_us=5, offset=4), before, broken) is None


# --- conflicts ----------------------------------------------------------------------------------------------


PIN_A = a_pin("a", time_us=5, offset=4)
WARNING = a_policy("warn", time_us=5, offset=4)
ACCEPTED = a_key_decision("accept", "k", time_us=5, offset=4)
FOUND = a_discovery("k", time_us=5, offset=4)


@pytest.mark.parametrize(
    ("late", "later", "superseded"),
    [
        (PIN_A, a_pin("b", time_us=9, offset=0), True),
        (PIN_A, a_pin(None, time_us=9, offset=0), True),
        (PIN_A, a_pin("a", time_us=9, offset=0, act="reject"), True),
        (PIN_A, a_pin("a", time_us=9, offset=0, act="remove"), True),
        (PIN_A, a_pin("b", time_us=9, offset=0, act="reject"), False),
        (PIN_A, a_pin("b", time_us=9, offset=0, scheme="hangar.v2"), False),
        (PIN_A, a_pin("b", time_us=9, offset=0, tool_name="u"), False),
        (PIN_A, a_pin("b", time_us=1, offset=0), False),
        (WARNING, a_policy("block", time_us=9, offset=0), True),
        (WARNING, a_policy("block", time_us=9, offset=0, tool_name="t"), False),
        (ACCEPTED, a_key_decision("revoke", "k", time_us=9, offset=0), True),
        (ACCEPTED, a_key_decision("accept", "l", time_us=9, offset=0), True),
        (ACCEPTED, a_key_decision("accept", "l", time_us=9, offset=0, tool_name="t"), False),
        (ACCEPTED, a_key_decision("revoke", "l", time_us=9, offset=0), False),
        (FOUND, a_discovery("l", time_us=9, offset=0), True),
        (FOUND, a_discovery("l", time_us=9, offset=0, domain="example.org"), False),
    ],
)
def test_a_decision_that_comes_late_says_whether_a_later_one_holds(
    late: ControlDecision, later: ControlDecision, superseded: bool
) -> None:
    assert is_superseded(late, later) is superseded


# --- what is no change --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "new"),
    [
        ([], True),
        ([a_discovery("k", time_us=1, offset=0)], False),
        ([a_discovery("l", time_us=1, offset=0)], True),
        ([a_discovery("k", time_us=1, offset=0, revoked=("l",))], True),
        ([a_discovery("k", time_us=1, offset=0), a_discovery(None, time_us=2, offset=1, status="invalid")], True),
        ([a_discovery("k", time_us=1, offset=0), a_discovery("l", time_us=9, offset=1)], False),
        ([a_discovery("k", time_us=9, offset=0)], True),
        ([a_discovery("k", time_us=1, offset=0, domain="example.org")], True),
    ],
)
def test_a_discovery_that_repeats_the_one_before_is_no_change(history: list[Discovery], new: bool) -> None:
    """Whoever fetches daily fills no topic: the one before it, by event time, found the same."""
    assert says_nothing_new(a_discovery("k", time_us=5, offset=4), with_facts(*history)) is not new


def test_an_operator_s_decision_is_always_evidence() -> None:
    pin = a_pin("a", time_us=5, offset=4)
    assert not says_nothing_new(pin, with_facts(a_pin("a", time_us=1, offset=0)))
