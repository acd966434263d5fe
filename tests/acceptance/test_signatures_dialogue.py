"""Dialogues about SchemaPin: signed lists, key documents as observed, and what evidence says of a call."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from assay_stream.schemes import schemapin
from tests.support.deciding import Decided
from tests.support.events import TOOL

DOMAIN = "tools.example.com"


class Developer:
    """Somebody with a P-256 key."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        self.key = schemapin.PublicKey.of(self._private.public_key())

    def signs(
        self, tool: dict[str, Any], mode: schemapin.Mode = schemapin.Mode.DOUBLE_SHA256
    ) -> dict[str, dict[str, str]]:
        """The ``signatures`` of a list that has this tool."""
        digest = bytes.fromhex(schemapin.schema_digest(tool).hex)
        signature = schemapin.sign_digest(digest, self._private, mode=mode)
        return {tool["name"]: {"signature": signature, "domain": DOMAIN}}

    def document(self, *revoked: str) -> dict[str, Any]:
        """The domain's key document."""
        return schemapin.build_well_known(self.key, developer_name="Dev", revoked_keys=revoked)


@pytest.fixture
def dev() -> Developer:
    """A developer."""
    return Developer()


def discovery(dialogue: Decided, second: float, document: dict[str, Any] | None, **fields: Any) -> Decided:
    """Somebody observed the domain."""
    data = {"domain": DOMAIN, "status": "observed", "document": document, **fields}
    return dialogue.decides(second, "discovery.observed", **data)


@pytest.mark.parametrize("mode", list(schemapin.Mode))
def test_a_signature_that_holds_is_told_with_its_mode_and_key(dev: Developer, mode: schemapin.Mode) -> None:
    """Both hashing modes seen in the wild hold, and the record names which."""
    dialogue = discovery(Decided(), 0, dev.document()).lists(1, TOOL, signatures=dev.signs(TOOL, mode)).calls(2)
    (signature,) = dialogue.ends().signatures
    assert signature["valid"] is True
    assert signature["mode"] == mode.value
    assert signature["key_fingerprint"] == dev.key.fingerprint
    assert signature["discovery"]["status"] == "observed"


def test_a_signature_over_another_tool_is_invalid_and_found(dev: Developer) -> None:
    """What was signed is not what is offered."""
    other = {**TOOL, "description": "Something else"}
    dialogue = discovery(Decided(), 0, dev.document()).lists(1, other, signatures=dev.signs(TOOL)).calls(2)
    told = dialogue.ends()
    assert told.signatures[0]["error_code"] == "signature_invalid"
    assert told.kinds == ["signature_invalid"]


def test_a_new_key_counts_only_after_an_operator_accepts_it(dev: Developer) -> None:
    """The domain serves another key and signs with it: that alone changes nothing."""
    other = Developer()
    dialogue = discovery(Decided(), 0, dev.document()).lists(1, TOOL, signatures=dev.signs(TOOL)).calls(2)
    discovery(dialogue, 3, other.document()).lists(4, TOOL, signatures=other.signs(TOOL)).calls(5)
    dialogue.decides(6, "key.accept", domain=DOMAIN, fingerprint=other.key.fingerprint).calls(7)
    told = dialogue.ends()
    assert [signature.get("error_code") for signature in told.signatures] == [None, "key_pin_mismatch", None]
    assert "key_changed" in told.kinds


def test_a_first_contact_that_does_not_hold_pins_nothing(dev: Developer) -> None:
    """A bad first signature must not shut the right key out."""
    attacker = Developer()
    dialogue = discovery(Decided(), 0, attacker.document()).lists(1, TOOL, signatures=dev.signs(TOOL)).calls(2)
    discovery(dialogue, 3, dev.document()).calls(4)
    told = dialogue.ends()
    assert [signature["valid"] for signature in told.signatures] == [False, True]


def test_a_key_revoked_by_its_document_counts_no_more(dev: Developer) -> None:
    """From the time the revocation was observed."""
    dialogue = discovery(Decided(), 0, dev.document()).lists(1, TOOL, signatures=dev.signs(TOOL)).calls(2)
    discovery(dialogue, 3, dev.document(dev.key.fingerprint)).calls(4)
    told = dialogue.ends()
    assert [signature.get("error_code") for signature in told.signatures] == [None, "key_revoked"]
    assert told.kinds == ["key_revoked"]


def test_a_key_revoked_by_an_operator_counts_no_more(dev: Developer) -> None:
    """Whatever its domain says."""
    dialogue = discovery(Decided(), 0, dev.document()).lists(1, TOOL, signatures=dev.signs(TOOL))
    dialogue.decides(2, "key.revoke", fingerprint=dev.key.fingerprint).calls(3)
    assert dialogue.ends().signatures[0]["error_code"] == "key_revoked"


def test_after_a_failure_the_document_observed_last_stands_and_the_record_says_so(dev: Developer) -> None:
    """A network failure is no reason to doubt a key, nor to keep silent about it."""
    dialogue = discovery(Decided(), 0, dev.document()).lists(1, TOOL, signatures=dev.signs(TOOL))
    discovery(dialogue, 2, None, status="fetch_failed", error_code="discovery_fetch_failed").calls(3)
    (signature,) = dialogue.ends().signatures
    assert signature["valid"] is True
    assert signature["discovery"] == {
        "origin": {"topic": "assay.control", "partition": 0, "offset": 0},
        "status": "last_observed",
    }


def test_without_any_document_nothing_can_be_told_of_a_signature(dev: Developer) -> None:
    """Nobody asked the domain: the code says so, and nothing is found."""
    told = Decided().lists(0, TOOL, signatures=dev.signs(TOOL)).calls(1).ends()
    assert told.signatures[0]["error_code"] == "key_not_found"
    assert told.kinds == []


def test_a_signed_tool_that_comes_without_its_signature_is_found(dev: Developer) -> None:
    """Whoever changes a signed definition must drop its signature."""
    dialogue = discovery(Decided(), 0, dev.document()).lists(1, TOOL, signatures=dev.signs(TOOL))
    told = dialogue.lists(2, TOOL).calls(3).ends()
    assert told.signatures[0]["error_code"] == "signature_missing"
    assert "signature_missing" in told.kinds


def test_a_signature_may_come_within_the_tool(dev: Developer) -> None:
    """As a proxy forwards it: it is left out of what was signed."""
    carried = {**TOOL, "x-schema-signature": dev.signs(TOOL)[TOOL["name"]]["signature"]}
    told = discovery(Decided(), 0, dev.document()).lists(1, carried).calls(2).ends()
    assert told.signatures[0]["valid"] is True


def test_an_unsigned_server_has_no_signature_in_its_evidence() -> None:
    """Nothing is said where there is nothing to say."""
    assert Decided().lists(0, TOOL).calls(1).ends().signatures == [None]
