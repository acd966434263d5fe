"""Expiry and lineage of SchemaPin 1.4: what is read, and what an expired signature amounts to."""

from __future__ import annotations

import pytest

from assay_stream.schemes.schemapin.discovery import claims_of, expiry_warning

NOON_US = 1_772_366_400_000_000  # 2026-03-01T12:00:00Z


def test_what_comes_with_a_signature_is_read() -> None:
    stated = {"expires_at": "2026-10-30T12:00:00Z", "schema_version": "1.1.0", "previous_hash": "sha256:ab"}
    assert claims_of(stated | {"signature": "MEUC", "domain": "example.com", "signer_kid": "k"}) == stated


@pytest.mark.parametrize("value", [1, None, "", "x" * 129, "a\nb", "\u202e"])
def test_what_is_no_short_printable_text_is_left_out(value: object) -> None:
    assert claims_of({"expires_at": value}) == {}


@pytest.mark.parametrize(
    ("expires_at", "warning"),
    [
        (None, None),
        ("2026-03-01T12:00:00Z", None),
        ("2026-03-01T11:59:59.999999Z", "signature_expired"),
        ("2026-03-01T14:00:00+02:00", None),
        ("2026-03-01T13:59:59+02:00", "signature_expired"),
        ("soon", "signature_expires_at_unparseable"),
        ("2026-03-01T12:00:00", "signature_expires_at_unparseable"),
    ],
)
def test_a_signature_expires_behind_its_time_and_not_by_what_cannot_be_read(
    expires_at: str | None, warning: str | None
) -> None:
    """Specification, section 16.2: degraded rather than failed, and open where the time is no time."""
    claims = {} if expires_at is None else {"expires_at": expires_at}
    assert expiry_warning(claims, NOON_US) == warning
