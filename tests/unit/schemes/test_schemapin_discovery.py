"""Discovery documents: what is read and what is refused."""

import json
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.schemes.schemapin import build_well_known, parse_revocations, parse_well_known
from tests.support.errors import raises_code
from tests.support.schemapin import OTHER_KEY, a_document, public

FINGERPRINT = public(OTHER_KEY).fingerprint


def test_what_a_document_says() -> None:
    document = a_document(contact="dev@example.com", revoked_keys=[FINGERPRINT], unknown={"x": 1})
    said = parse_well_known(document)
    assert said == parse_well_known(json.dumps(document).encode())
    assert said.public_key_pem == public().pem
    assert FINGERPRINT in said.revoked_keys
    assert public().fingerprint not in said.revoked_keys


@pytest.mark.parametrize("version", ["1.5", "2.0", "10.0", "1.4.1"])
def test_unknown_versions(version: str) -> None:
    """A version that is not known is read as well (section 12)."""
    assert parse_well_known(a_document(schema_version=version)) == parse_well_known(a_document())


@pytest.mark.parametrize("listed", ["sha256:0", {}, [1], [None], 0, False])
def test_a_list_of_revoked_keys_that_cannot_be_read(listed: Any) -> None:
    """The document is refused: a revocation must not be passed over."""
    with raises_code("discovery_invalid", "$.revoked_keys"):
        parse_well_known(a_document(revoked_keys=listed))


@pytest.mark.parametrize(
    "listed", [f" {FINGERPRINT.upper()}\n", FINGERPRINT.removeprefix("sha256:")], ids=["upper case", "no prefix"]
)
def test_a_revocation_in_upper_case_or_without_a_prefix_counts(listed: str) -> None:
    assert parse_well_known(a_document(revoked_keys=[listed])).revoked_keys == {FINGERPRINT}


@pytest.mark.parametrize("name", ["developer_name", "contact", "domain"])
def test_texts(name: str) -> None:
    assert parse_well_known(a_document() | {name: None}) == parse_well_known(a_document())
    values: list[Any] = [7, {}, "x" * (DEFAULT_LIMITS.identifier_chars_max + 1)]
    for value in values:
        with raises_code("discovery_invalid", f"$.{name}"):
            parse_well_known(a_document(**{name: value}))


def test_a_document_of_ten_megabytes() -> None:
    document = a_document(padding="x" * 10_000_000)
    for given in (document, json.dumps(document).encode()):
        with raises_code("discovery_invalid", match=str(DEFAULT_LIMITS.discovery_bytes_max)):
            parse_well_known(given)


def test_the_limit_is_inclusive() -> None:
    room = DEFAULT_LIMITS.discovery_bytes_max - len(json.dumps(a_document(padding="")))
    raw = json.dumps(a_document(padding="x" * room)).encode()
    assert parse_well_known(raw).public_key_pem == public().pem
    with pytest.raises(InputError):
        parse_well_known(raw + b" ")


def test_a_document_that_is_built_is_read() -> None:
    built = build_well_known(public(), developer_name="Dev", contact="c", revoked_keys=[FINGERPRINT])
    said = parse_well_known(json.dumps(built).encode())
    assert (said.public_key_pem, said.revoked_keys) == (public().pem, frozenset({FINGERPRINT}))
    assert "contact" not in build_well_known(public(), developer_name="Dev")


# --- revocation documents ----------------------------------------------------------------------------------

KEY = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    "entry",
    [
        {"fingerprint": KEY},
        {"fingerprint": KEY.removeprefix("sha256:")},
        {"fingerprint": f" {KEY.upper()} ", "reason": "of our own"},
    ],
)
def test_a_key_is_revoked_whatever_else_its_entry_says(entry: dict[str, Any]) -> None:
    """A revocation must not fail on a reason that is missing or unknown, on upper case, or for want of a prefix."""
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
    with raises_code("discovery_invalid", path):
        parse_revocations(document)
