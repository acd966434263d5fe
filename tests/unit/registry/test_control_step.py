"""Control records to facts."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.model.cloudevents import read_event
from assay_stream.model.control import ControlEvent
from assay_stream.model.control_facts import Discovery, KeyDecision, Pin, Policy
from assay_stream.model.record import Origin, Role
from assay_stream.registry.control_changes import ControlDecision
from assay_stream.registry.control_step import fact_of
from tests.support.controls import a_control, a_document, fingerprint_of
from tests.support.events import SERVER, TEN_O_CLOCK_MS, record_of
from tests.support.schemapin import OTHER_KEY, public

VALUE = "sha256:" + "0123456789abcdef" * 4
PIN = {"tool_name": "t", "scheme": "assay.v1", "value": VALUE}
PLACE = Origin(topic="assay.control", partition=0, offset=7)
COMMON: dict[str, Any] = {"server_id": SERVER, "origin": PLACE, "time_us": TEN_O_CLOCK_MS * 1_000 + 1_500_000}
BY_ANN = COMMON | {"author": "ann", "reason": "review"}


def fact(kind: str, **data: Any) -> ControlDecision:
    """The fact that follows from a control event of a second and a half after ten o'clock."""
    record = record_of(Role.CONTROL, a_control(kind, second=1.5, **data), offset=7)
    event = read_event(record)
    assert isinstance(event, ControlEvent)
    return fact_of(record, event)


@pytest.mark.parametrize("act", ["set", "reject", "remove"])
def test_each_act_on_a_pin_is_a_fact_of_its_own(act: str) -> None:
    """It counts from the event's own time, and stands where the record stands."""
    wanted = Pin(tool_name="t", scheme="assay.v1", value=VALUE, act=act, **BY_ANN)  # type: ignore[arg-type]
    assert fact(f"pin.{act}", **PIN) == wanted


def test_a_pin_is_removed_by_its_scheme_alone_too() -> None:
    """Without a value it is the pin of the scheme that goes."""
    found = fact("pin.remove", tool_name="t", scheme="assay.v1")
    assert isinstance(found, Pin)
    assert (found.act, found.value) == ("remove", None)


@pytest.mark.parametrize("tool", ["t", None])
def test_a_policy_is_for_a_tool_or_for_the_server(tool: str | None) -> None:
    """Without a tool it is the whole server's."""
    found = fact("policy.set", tool_name=tool, enforcement="warn", unknown="block")
    assert found == Policy(tool_name=tool, enforcement="warn", unknown="block", **BY_ANN)


def test_both_names_of_hangar_s_default_are_one_policy() -> None:
    """``allow_unverified`` is the later name of ``allow_degraded``; one of them is kept."""
    found = fact("policy.set", enforcement="audit", unknown="allow_unverified")
    assert isinstance(found, Policy)
    assert found.unknown == "allow_degraded"


def test_a_key_is_accepted_for_a_domain() -> None:
    """For one tool or for all of them."""
    found = fact("key.accept", domain="example.com", tool_name="t", fingerprint=fingerprint_of())
    assert found == KeyDecision(
        act="accept", domain="example.com", tool_name="t", fingerprint=fingerprint_of(), **BY_ANN
    )


def test_a_key_is_revoked_for_the_server() -> None:
    """Whatever the domain, whatever the tool."""
    found = fact("key.revoke", fingerprint=fingerprint_of())
    assert found == KeyDecision(act="revoke", domain=None, tool_name=None, fingerprint=fingerprint_of(), **BY_ANN)


def test_of_a_document_its_key_and_its_revocations_are_kept() -> None:
    """Not the rest of it."""
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
    """As the command that fetches documents writes it."""
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
        ("pin.reject", PIN | {"value": None}, "missing_field"),
    ],
)
def test_a_record_that_is_not_sound_sets_nothing(kind: str, data: dict[str, Any], code: str) -> None:
    """It is refused with a stable code."""
    with pytest.raises(InputError) as caught:
        fact(kind, **data)
    assert caught.value.code == code
