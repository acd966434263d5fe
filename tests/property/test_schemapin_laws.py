"""Laws of SchemaPin: order means nothing, the reference agrees, and nothing but our errors escapes."""

import base64
import json
import random
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from hypothesis import example, given, strategies as st
from schemapin.core import SchemaPinCore

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.schemes.schemapin import (
    SchemaPinErrorCode,
    WellKnown,
    parse_well_known,
    sign_digest,
    verify,
    verify_digest,
)
from assay_stream.schemes.schemapin_canonical import Mode, canonical, schema_digest
from tests.property.test_digest_laws import ANYTHING, KEYS, VALUES, _shuffled
from tests.support.schemapin import KEY, OTHER_KEY, public, public_pem

DIGEST = sha256(b"schema").digest()
DER = base64.b64decode(sign_digest(DIGEST, KEY))


def _code_of(compute: Callable[[], object]) -> str | None:
    try:
        compute()
    except InputError as error:
        return error.code
    return None


OBJECTS = st.dictionaries(KEYS, VALUES, max_size=6)


@given(VALUES)
@example([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64])
@example({"\U0001f600": 1, "\uff3a": 2, "\x7f": "\x00\x1f\x7f\u2028/"})
def test_the_reference_writes_the_same_bytes(value: Any) -> None:
    """For any JSON value the canonical form is that of the Python SDK, also after our decoder has read it."""
    wanted = SchemaPinCore.canonicalize_schema(value).encode()
    assert canonical(value) == wanted
    assert canonical(decode_json(json.dumps(value).encode())) == wanted


@given(OBJECTS, st.randoms(use_true_random=False))
def test_the_order_of_keys_means_nothing(tool: dict[str, Any], order: random.Random) -> None:
    assert schema_digest(_shuffled(tool, order)) == schema_digest(tool)


@given(OBJECTS, OBJECTS)
def test_equal_digests_are_equal_definitions(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (canonical(one) == canonical(other)) is same


@given(ANYTHING)
def test_only_our_error_escapes(value: Any) -> None:
    code = _code_of(lambda: canonical(value))
    assert code in (None, "schema_canonicalization_failed")
    if code is None:
        assert json.dumps(json.loads(canonical(value)), sort_keys=True) == json.dumps(value, sort_keys=True)


@given(OBJECTS, st.text(max_size=20), st.booleans())
def test_a_carried_signature_changes_nothing(tool: dict[str, Any], signature: str, in_meta: bool) -> None:
    plain = {name: value for name, value in tool.items() if name not in ("_meta", "x-schema-signature")}
    carrier = {"x-schema-signature": signature}
    signed = plain | ({"_meta": carrier} if in_meta else carrier)
    assert schema_digest(signed) == schema_digest(plain)


@given(st.text())
@example("")
@example("\ud800")
def test_any_text_as_a_signature_gives_an_answer(text: str) -> None:
    assert verify_digest(DIGEST, text, public()) is None


@given(st.binary(max_size=80))
def test_any_bytes_as_a_signature_give_an_answer(raw: bytes) -> None:
    """Well-formed base64 of anything does not hold either."""
    assert verify_digest(DIGEST, base64.b64encode(raw).decode(), public()) is None


@given(st.integers(0, len(DER) * 8 - 1))
def test_no_bit_of_a_signature_is_free(bit: int) -> None:
    turned = bytearray(DER)
    turned[bit // 8] ^= 1 << bit % 8
    assert verify_digest(DIGEST, base64.b64encode(turned).decode(), public()) is None


@given(st.binary(min_size=32, max_size=32), st.sampled_from(Mode))
def test_what_is_signed_verifies_in_its_mode(digest: bytes, mode: Mode) -> None:
    signature = sign_digest(digest, KEY, mode=mode)
    assert verify_digest(digest, signature, public()) is mode
    assert verify_digest(digest, signature, public(OTHER_KEY)) is None


PEMS = st.text(max_size=60) | st.builds(
    lambda raw: f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(raw).decode()}\n-----END PUBLIC KEY-----\n",
    st.binary(max_size=100),
)
FIELDS = ("schema_version", "developer_name", "public_key_pem", "revoked_keys", "contact", "domain")
DOCUMENTS = st.dictionaries(
    st.sampled_from(FIELDS) | KEYS, VALUES | PEMS | st.just("1.1") | st.lists(st.text()), max_size=8
)


@given(DOCUMENTS | st.binary() | st.text().map(lambda text: text.encode("utf-8", "replace")))
@example({"schema_version": "1.1", "public_key_pem": public_pem(KEY.public_key())})
def test_any_document_gives_an_answer(document: Any) -> None:
    assert _code_of(lambda: parse_well_known(document)) in (None, "discovery_invalid")


@given(
    st.none() | st.builds(lambda value: schema_digest({"name": value}), st.text()),
    st.text() | st.just(base64.b64encode(DER).decode()),
    st.builds(WellKnown, public_key_pem=PEMS)
    | st.just(parse_well_known({"schema_version": "1.1", "public_key_pem": public().pem})),
    st.none() | st.text(),
    st.none() | st.text(),
)
def test_verification_never_raises_and_never_accepts_what_is_not_signed(
    digest: Any, signature: str, document: WellKnown, pinned: str | None, domain: str | None
) -> None:
    found = verify(digest, signature, document, pinned_fingerprint=pinned, domain=domain)
    assert not found.valid
    assert found.error_code is not None
    assert found.error_code in SchemaPinErrorCode
