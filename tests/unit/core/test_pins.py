"""Pins held against what was observed."""

from __future__ import annotations

from assay_stream.core.pins import PinStatus, check_pins
from tests.support.facts import a_fingerprint

SEEN = a_fingerprint("a")


def test_without_pins_there_is_nothing_to_say() -> None:
    """No pin: unpinned, whether or not a definition was observed."""
    assert check_pins({}, SEEN).as_json() == {"status": "unpinned"}
    assert check_pins({}, None).status is PinStatus.UNPINNED


def test_a_match_names_both_digests() -> None:
    """Equal digests match, and the result says which."""
    assert check_pins({"assay.v1": "v1:a"}, SEEN).as_json() == {
        "status": "match",
        "scheme": "assay.v1",
        "expected": "v1:a",
        "observed": "v1:a",
    }


def test_a_difference_is_a_mismatch() -> None:
    """Another digest under the pinned scheme is a mismatch."""
    assert check_pins({"assay.v1": "v1:b"}, SEEN).status is PinStatus.MISMATCH


def test_what_was_not_observed_neither_matches_nor_differs() -> None:
    """Without a definition, or without a digest under the scheme, the pin is unobserved."""
    for observed, scheme in ((None, "assay.v1"), (SEEN, "assay.p60")):
        result = check_pins({scheme: "x"}, observed)
        assert result.status is PinStatus.UNOBSERVED
        assert "observed" not in result.as_json()


def test_of_several_pins_the_gravest_is_told() -> None:
    """A mismatch under one scheme is not covered up by a match under another."""
    pins = {"assay.meta_hash": "mh:a", "assay.p60": "x", "assay.schema_hash": "other", "assay.v1": "v1:a"}
    result = check_pins(pins, SEEN)
    assert (result.status, result.scheme) == (PinStatus.MISMATCH, "assay.schema_hash")
    del pins["assay.schema_hash"]
    assert check_pins(pins, SEEN).status is PinStatus.UNOBSERVED
