"""Standalone revocation documents of SchemaPin 1.2, held against the reference SDK."""

from __future__ import annotations

from typing import Any

import pytest
from schemapin.revocation import RevocationReason, add_revoked_key, build_revocation_document

from assay_stream.errors import InputError
from assay_stream.schemes.schemapin import parse_revocations

KEY = "sha256:" + "ab" * 32


def test_a_document_of_the_reference_sdk_is_read() -> None:
    """With each of its reasons."""
    document = build_revocation_document("example.com")
    for number, reason in enumerate(RevocationReason):
        add_revoked_key(document, f"sha256:{number:064x}", reason)
    found = parse_revocations(document.to_dict())
    assert found.domain == "example.com"
    assert found.revoked_keys == {f"sha256:{number:064x}" for number in range(len(RevocationReason))}


@pytest.mark.parametrize("entry", [{"fingerprint": KEY}, {"fingerprint": f" {KEY.upper()} ", "reason": "of our own"}])
def test_a_key_is_revoked_whatever_else_its_entry_says(entry: dict[str, Any]) -> None:
    """A revocation must not fail on a reason that is missing or unknown, or on upper case."""
    assert parse_revocations({"domain": "example.com", "revoked_keys": [entry]}).revoked_keys == {KEY}


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"revoked_keys": []}, "$.domain"),
        ({"domain": 1, "revoked_keys": []}, "$.domain"),
        ({"domain": "d"}, "$.revoked_keys"),
        ({"domain": "d", "revoked_keys": {}}, "$.revoked_keys"),
        ({"domain": "d", "revoked_keys": [{"fingerprint": KEY}, KEY]}, "$.revoked_keys[1]"),
        ({"domain": "d", "revoked_keys": [{"fingerprint": None}]}, "$.revoked_keys[0]"),
        (b"[]", "$"),
    ],
)
def test_a_document_that_cannot_be_read_whole_is_invalid(document: Any, path: str) -> None:
    """Else a revocation would be passed over; the error says where."""
    with pytest.raises(InputError) as caught:
        parse_revocations(document)
    assert (caught.value.code, caught.value.path) == ("discovery_invalid", path)
