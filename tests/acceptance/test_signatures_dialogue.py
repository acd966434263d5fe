"""Dialogues about SchemaPin signatures: what servers sign, what domains publish, what operators decide.

Keys and signatures are real ones.
"""

import json
from typing import Any, Self

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from assay_stream.model.record import Role
from assay_stream.schemes.schemapin_canonical import Mode
from tests.acceptance.test_binding_dialogue import FIRST, OTHER, SECOND, alerts_of, findings_of
from tests.acceptance.test_pins_dialogue import Talk, changes_of
from tests.support.controls import DOMAIN, a_document, fingerprint_of, signature_of
from tests.support.events import Outcome
from tests.support.schemapin import KEY, OTHER_KEY

OURS, THEIRS = fingerprint_of(KEY), fingerprint_of(OTHER_KEY)
KINDS = ("signature_invalid", "signature_missing", "key_changed", "key_revoked")


class SignedTalk(Talk):
    def discovered(
        self, second: float, key: ec.EllipticCurvePrivateKey | None = KEY, *, domain: str = DOMAIN, **document: Any
    ) -> Self:
        if key is None:
            data: dict[str, Any] = {
                "status": "fetch_failed",
                "error_code": "discovery_fetch_failed",
                "detail": "timed out",
            }
        else:
            data = {"status": "observed", "document": a_document(key) | document}
        return self.control(second, "discovery.observed", domain=domain, **data)

    def signs(
        self,
        second: float,
        tool: dict[str, Any] = FIRST,
        *,
        key: ec.EllipticCurvePrivateKey = KEY,
        mode: Mode = Mode.DOUBLE_SHA256,
        signed: dict[str, Any] | None = None,
        domain: str | None = None,
        **fields: Any,
    ) -> Self:
        given: Any = signature_of(signed or tool, key, mode=mode)
        if domain is not None:
            given = {"signature": given, "domain": domain}
        return self.lists(second, tool, signatures={tool["name"]: given}, **fields)


def said(outcome: Outcome) -> list[str | None]:
    found = [payload.get("signature") for payload in outcome.evidence]
    return [one and ("valid" if one["valid"] else one["error_code"]) for one in found]


def found(outcome: Outcome) -> list[tuple[str, str | None]]:
    return [(one["kind"], one.get("reason")) for one in findings_of(outcome) if one["kind"] in KINDS]


@pytest.mark.parametrize("mode", list(Mode))
def test_a_sound_signature_is_told_with_its_mode_key_and_document(mode: Mode) -> None:
    outcome = SignedTalk().discovered(0).signs(1, mode=mode).calls(2).ends()
    assert outcome.evidence[0]["signature"] == {
        "scheme": "schemapin.v1",
        "valid": True,
        "mode": mode.value,
        "key_fingerprint": OURS,
        "domain": DOMAIN,
        "discovery": {"origin": {"topic": "assay.control", "partition": 0, "offset": 0}, "status": "observed"},
    }
    assert found(outcome) == []


@pytest.mark.parametrize("place", ["top", "_meta"])
def test_a_signature_within_the_tool_is_taken_too(place: str) -> None:
    carried = {"x-schema-signature": signature_of(FIRST)}
    tool = FIRST | (carried if place == "top" else {"_meta": carried})
    assert said(SignedTalk().discovered(0).lists(1, tool).calls(2).ends()) == ["valid"]


def test_a_definition_swapped_under_its_signature_is_invalid() -> None:
    outcome = SignedTalk().discovered(0).signs(1).calls(2).signs(3, SECOND, signed=FIRST).calls(4).ends()
    assert said(outcome) == ["valid", "signature_invalid"]
    assert found(outcome) == [("signature_invalid", "signature_invalid")]


def test_a_signature_that_is_dropped_after_the_first_use_is_missing() -> None:
    """Before it, most tools are not signed and nothing is said."""
    talk = SignedTalk().discovered(0).lists(1, FIRST).calls(2).signs(3).calls(4).lists(5, SECOND).calls(6)
    outcome = talk.ends()
    assert said(outcome) == [None, "valid", "signature_missing"]
    assert found(outcome) == [("signature_missing", None)]


def told_of(outcome: Outcome, kind: str) -> list[tuple[str, str | None]]:
    alerts = [alert for alert in alerts_of(outcome) if alert["finding_info"]["types"] == [kind]]
    return [(alert["activity_name"], alert["unmapped"].get("mcp_resolved_by")) for alert in alerts]


def test_a_signature_that_returns_ends_its_absence() -> None:
    talk = SignedTalk().discovered(0).signs(1).lists(2, FIRST)
    assert told_of(talk.ends(), "signature_missing") == [("Create", None)]
    talk.signs(3).signs(900)
    closed = [("Create", None), ("Close", "signature_returned")]
    assert told_of(talk.ends(), "signature_missing") == closed
    talk.lists(901, FIRST)
    assert told_of(talk.ends(), "signature_missing") == [*closed, ("Update", None)]


def test_a_sound_signature_ends_one_that_did_not_hold() -> None:
    talk = SignedTalk().discovered(0).signs(1).signs(2, signed=SECOND).signs(3).signs(900)
    assert told_of(talk.ends(), "signature_invalid") == [("Create", None), ("Close", "signature_returned")]


def test_a_signature_returns_for_each_observer_by_itself() -> None:
    talk = SignedTalk().discovered(0).signs(1).lists(2, FIRST).lists(3, FIRST, observer_id="proxy-2")
    talk.signs(4).signs(900)
    assert told_of(talk.ends(), "signature_missing") == [("Create", None), ("Update", None)]
    talk.signs(901, observer_id="proxy-2").signs(1800)
    assert told_of(talk.ends(), "signature_missing")[-1] == ("Close", "signature_returned")


def test_a_late_list_with_a_signature_ends_nothing() -> None:
    talk = SignedTalk().discovered(0).signs(1).lists(5, FIRST).signs(4).lists(900, FIRST)
    assert all(activity != "Close" for activity, _ in told_of(talk.ends(), "signature_missing"))


def test_another_tool_of_the_server_need_not_be_signed() -> None:
    talk = SignedTalk().discovered(0).signs(1).lists(2, OTHER, observer_id="proxy-2")
    outcome = talk.calls(3, tool_name=OTHER["name"], observer_id="proxy-2").ends()
    assert (said(outcome), found(outcome)) == ([None], [])


def test_another_key_is_taken_only_after_an_operator_accepts_it() -> None:
    talk = SignedTalk().discovered(0).signs(1).calls(2)
    talk.discovered(3, OTHER_KEY).signs(4, key=OTHER_KEY).calls(5)
    talk.control(6, "key.accept", domain=DOMAIN, tool_name="read_file", fingerprint=THEIRS).calls(7)
    outcome = talk.ends()
    assert said(outcome) == ["valid", "key_pin_mismatch", "valid"]
    assert ("key_changed", THEIRS) in found(outcome)
    assert changes_of(outcome)[-1]["replaces"] == OURS


def test_a_bad_first_contact_shuts_no_key_out() -> None:
    """A signature that did not match pins nothing: the next key is the first one used."""
    talk = SignedTalk().discovered(0, OTHER_KEY).signs(1).calls(2).discovered(3).calls(4)
    assert said(talk.ends()) == ["signature_invalid", "valid"]


def test_a_key_revoked_by_its_document_is_revoked_for_every_later_call() -> None:
    outcome = SignedTalk().discovered(0).signs(1).calls(2).discovered(3, revoked_keys=[OURS]).calls(4).ends()
    assert said(outcome) == ["valid", "key_revoked"]
    assert found(outcome) == [("key_revoked", OURS)]


def test_an_operator_revokes_a_key_and_takes_it_back() -> None:
    talk = SignedTalk().discovered(0).signs(1).calls(2).control(3, "key.revoke", fingerprint=OURS).calls(4)
    outcome = talk.control(5, "key.accept", domain=DOMAIN, fingerprint=OURS).calls(6).ends()
    assert said(outcome) == ["valid", "key_revoked", "valid"]
    changes = [change["change"] for change in changes_of(outcome)]
    assert changes == ["discovery.observed", "key.revoke", "key.accept"]


def test_a_network_failure_falls_back_on_the_last_document_and_says_so() -> None:
    talk = SignedTalk().discovered(0).signs(1).discovered(2, None).calls(3).discovered(4).calls(5)
    fallen_back, again = (payload["signature"] for payload in talk.ends().evidence)
    assert (fallen_back["valid"], fallen_back["discovery"]["status"]) == (True, "last_observed")
    assert fallen_back["discovery"]["origin"]["offset"] == 0
    assert again["discovery"]["status"] == "observed"


def test_a_domain_that_could_never_be_read_gives_no_key() -> None:
    outcome = SignedTalk().discovered(0, None).signs(1).calls(2).ends()
    assert (said(outcome), found(outcome)) == (["discovery_fetch_failed"], [])


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"public_key_pem": "none"}, "discovery_invalid"),
        ({"schema_version": "new"}, "discovery_invalid"),
        ({"public_key_pem": "-----BEGIN PUBLIC KEY-----"}, "key_not_found"),
        ({"domain": "example.org"}, "domain_mismatch"),
        ({"schema_version": "7.0"}, "valid"),
    ],
)
def test_a_document_says_what_it_is_worth(document: dict[str, str], code: str) -> None:
    found_there: dict[str, Any] = {"status": "observed", "document": a_document() | document}
    talk = SignedTalk()
    talk.control(0, "discovery.observed", domain=DOMAIN, **found_there)
    assert said(talk.signs(1).calls(2).ends()) == [code]


def test_a_discovery_after_the_snapshot_counts_from_its_own_time() -> None:
    """The signature that came before it is held against the key then."""
    talk = SignedTalk().signs(0).calls(1).discovered(2).calls(3).lists(4, FIRST).calls(5)
    assert said(talk.ends()) == ["key_not_found", "valid", "signature_missing"]


def test_a_signature_for_another_domain_is_not_held_against_this_one() -> None:
    """Who sends the list does not choose whose key counts."""
    outcome = SignedTalk().discovered(0).signs(1, domain="evil.example").calls(2).ends()
    assert said(outcome) == ["domain_mismatch"]
    assert found(outcome) == [("signature_invalid", "domain_mismatch")]


def test_with_two_domains_a_signature_has_to_say_whose_it_is() -> None:
    talk = SignedTalk().discovered(0).discovered(1, OTHER_KEY, domain="example.org")
    talk.signs(2).calls(3).signs(4, domain="example.org", key=OTHER_KEY).calls(5)
    assert said(talk.ends()) == ["key_not_found", "valid"]


def test_a_document_that_is_fetched_daily_is_one_change() -> None:
    talk = SignedTalk().discovered(0).discovered(1).signs(2).discovered(3).calls(4)
    outcome = talk.ends()
    assert len(changes_of(outcome)) == 1
    assert outcome.evidence[0]["signature"]["discovery"]["origin"]["offset"] == 0


def test_a_late_document_counts_from_its_time_behind_repetitions_too() -> None:
    """Between two sights of one key another was published: each holds in its own time."""
    talk = SignedTalk().discovered(0).signs(1).calls(2)
    talk.calls(5).discovered(6).calls(7)
    document = {"status": "observed", "document": a_document(OTHER_KEY)}
    talk.control(8, "discovery.observed", given=4, domain=DOMAIN, **document)
    assert said(talk.joined_late()) == ["valid", "key_pin_mismatch", "valid"]


def test_the_same_list_signed_anew_is_another_observation() -> None:
    """Its tools, time and id are the same, and its signatures are not: they are not lost."""
    talk = SignedTalk().discovered(0)
    talk.lists(1, FIRST, snapshot_id="same").signs(1, snapshot_id="same").calls(2)
    assert said(talk.ends()) == ["valid"]


def test_nothing_of_signature_document_or_definition_reaches_evidence() -> None:
    revoked = [THEIRS, "see https://example.com/private"]
    talk = SignedTalk().discovered(0, contact="sesame@example.com", revoked_keys=revoked)
    outcome = talk.signs(1).calls(2).control(3, "key.revoke", fingerprint=OURS).calls(4).ends()
    written = outcome.all_bytes(Role.EVIDENCE, Role.CHANGES, Role.VERDICTS, Role.FINDINGS, Role.ALERTS)
    for secret in (signature_of(FIRST), "sesame", "PUBLIC KEY", "private", FIRST["description"]):
        assert json.dumps(secret)[1:-1].encode() not in written


def test_a_key_in_the_revocation_document_is_revoked() -> None:
    """SchemaPin 1.2: a domain may publish its revocations apart from its key."""
    talk = SignedTalk().discovered(1).signs(2).calls(3)
    talk.control(
        4,
        "discovery.observed",
        domain=DOMAIN,
        status="observed",
        document=a_document(KEY),
        revocations={"domain": DOMAIN, "revoked_keys": [{"fingerprint": OURS, "reason": "key_compromise"}]},
    )
    talk.calls(5)
    before, after = (record["signature"] for record in talk.ends().evidence)
    assert before["valid"] is True
    assert (after["valid"], after["error_code"]) == (False, "key_revoked")


def test_an_expired_signature_is_valid_and_says_that_it_expired() -> None:
    """SchemaPin 1.4: degraded, not failed; by the time of the call, and with its lineage."""
    claims = {"expires_at": "2026-03-01T10:00:03Z", "schema_version": "1.1.0", "previous_hash": "sha256:ab"}
    talk = SignedTalk().discovered(1)
    talk.lists(2, FIRST, signatures={FIRST["name"]: {"signature": signature_of(FIRST, KEY)} | claims})
    talk.calls(3).calls(4)
    in_time, late = (record["signature"] for record in talk.ends().evidence)
    assert (in_time["valid"], in_time.get("warning")) == (True, None)
    assert (late["valid"], late["warning"]) == (True, "signature_expired")
    assert {name: late[name] for name in claims} == claims
