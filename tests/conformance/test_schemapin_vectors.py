"""SchemaPin's vectors, and the reference SDK itself, both ways."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from schemapin.core import SchemaPinCore
from schemapin.crypto import KeyManager, SignatureManager
from schemapin.utils import SchemaSigningWorkflow
from schemapin.verification import KeyPinStore, verify_schema_offline

from assay_stream.canonical.decode import decode_json, decode_json_strict
from assay_stream.schemes.fingerprint import fingerprint
from assay_stream.schemes.schemapin import (
    PublicKey,
    SchemaPinErrorCode,
    parse_well_known,
    sign_digest,
    verify,
    verify_digest,
)
from assay_stream.schemes.schemapin_canonical import Mode, canonical, schema_digest
from tests.support.errors import raises_code
from tests.support.schemapin import KEY, OTHER_KEY, private_pem, public
from tests.support.vectors import vectors

CANONICAL = vectors("schemapin_canonical")
SIGNATURES = vectors("schemapin_signatures")
MATRIX = vectors("peers_digest_matrix")
WRITTEN = [case for case in CANONICAL["cases"] if "canonical" in case["python_1.3.0"]]
REFUSED = [case for case in CANONICAL["cases"] if "error" in case["python_1.3.0"]]
SIGNED = [entry for entry in SIGNATURES["published"] if "schema" in entry]
BUNDLES = [entry for entry in SIGNATURES["published"] if "bundle" in entry]
GENERATED = SIGNATURES["generated"]


def _id(case: dict[str, Any]) -> str:
    return str(case.get("id") or case.get("case") or case["source"])


def _digest(schema: dict[str, Any]) -> bytes:
    return bytes.fromhex(schema_digest(schema).hex)


class TestCanonical:
    def test_every_case_is_used(self) -> None:
        assert len(WRITTEN) + len(REFUSED) == len(CANONICAL["cases"]) == 38

    def test_divergent_cases_are_among_them(self) -> None:
        others = ("javascript_repo", "go_repo", "jcs")
        parted = {case["id"] for case in CANONICAL["cases"] for sdk in others if case[sdk] != case["python_1.3.0"]}
        assert len(parted) == 7
        assert parted <= set(CANONICAL["divergent_ids"])

    @pytest.mark.parametrize("case", WRITTEN, ids=_id)
    def test_bytes_and_digest(self, case: dict[str, Any]) -> None:
        wanted = case["python_1.3.0"]
        for decode in (decode_json, decode_json_strict):
            tool = decode(case["input_raw"].encode())
            assert canonical(tool) == wanted["canonical"].encode()
            assert schema_digest(tool).hex == wanted["sha256"]

    @pytest.mark.parametrize("case", REFUSED, ids=_id)
    def test_refused(self, case: dict[str, Any]) -> None:
        with raises_code("schema_canonicalization_failed"):
            schema_digest(json.loads(case["input_raw"]))

    @pytest.mark.parametrize("row", MATRIX["rows"], ids=_id)
    def test_the_scheme_in_the_matrix(self, row: dict[str, Any]) -> None:
        if row["id"] == "lone_surrogate":
            assert "Error" in row["schemapin_py"]
            return
        found = fingerprint(decode_json(row["input_raw"].encode()), server_id=None)
        assert found.schemes["schemapin.v1"] == row["schemapin_py"]


class TestSignatures:
    @pytest.mark.parametrize("entry", SIGNED, ids=_id)
    def test_published(self, entry: dict[str, Any]) -> None:
        assert canonical(entry["schema"]) == entry["canonical"].encode()
        assert schema_digest(entry["schema"]).hex == entry["schema_hash_sha256"]
        wanted = Mode.DOUBLE_SHA256 if entry["valid_as_double_sha256(python,js,rust)"] else Mode.SINGLE_SHA256
        assert entry["valid_as_single_sha256(go)"] is (wanted is Mode.SINGLE_SHA256)
        document = parse_well_known(entry["well_known"])
        found = verify(schema_digest(entry["schema"]), entry["signature_b64_der"], document)
        assert (found.valid, found.mode, found.fingerprint) == (True, wanted, entry["key_fingerprint"])

    @pytest.mark.parametrize("entry", BUNDLES, ids=_id)
    def test_published_bundle(self, entry: dict[str, Any]) -> None:
        """The signature of a trust bundle covers the bundle with an empty signature, hashed once (21.3)."""
        bundle = entry["bundle"]
        unsigned = bundle | {"signature": ""}
        assert canonical(unsigned) == entry["canonical"].encode()
        key = PublicKey.from_pem(bundle["bundle_authority"]["public_key_pem"])
        assert key.fingerprint == entry["key_fingerprint"]
        assert verify_digest(_digest(unsigned), bundle["signature"], key) is Mode.SINGLE_SHA256

    @pytest.mark.parametrize("entry", BUNDLES, ids=_id)
    def test_document_of_a_bundle(self, entry: dict[str, Any]) -> None:
        (document,) = entry["bundle"]["documents"]
        found = verify(None, "", parse_well_known(document), domain="example.com")
        assert found.error_code is SchemaPinErrorCode.KEY_NOT_FOUND

    def test_generated_key(self) -> None:
        assert PublicKey.from_pem(GENERATED["public_key_pem"]).fingerprint == GENERATED["key_fingerprint"]

    @pytest.mark.parametrize("case", GENERATED["cases"], ids=_id)
    @pytest.mark.parametrize("mode", Mode)
    def test_generated(self, case: dict[str, Any], mode: Mode) -> None:
        key = PublicKey.from_pem(GENERATED["public_key_pem"])
        assert schema_digest(case["schema"]).hex == case["schema_hash_sha256"]
        signature = case[f"sig_{mode}"]
        assert verify_digest(_digest(case["schema"]), signature, key) is mode
        tampered = case["schema"] | {"description": "Tampered."}
        assert verify_digest(_digest(tampered), signature, key) is None


class TestReferenceSdk:
    """PyPI schemapin 1.3.0 in one room with ours."""

    @pytest.mark.parametrize("case", WRITTEN, ids=_id)
    def test_they_verify_what_we_sign(self, case: dict[str, Any]) -> None:
        schema = json.loads(case["input_raw"])
        found = verify_schema_offline(
            schema,
            sign_digest(_digest(schema), KEY),
            "example.com",
            "tool",
            {"schema_version": "1.1", "public_key_pem": public().pem},
            None,
            KeyPinStore(),
        )
        assert found.valid, found.error_message

    @pytest.mark.parametrize("case", WRITTEN, ids=_id)
    def test_we_verify_what_they_sign(self, case: dict[str, Any]) -> None:
        schema = json.loads(case["input_raw"])
        signature = SchemaSigningWorkflow(private_pem().decode()).sign_schema(schema)
        found = verify(schema_digest(schema), signature, parse_well_known(_document()))
        assert (found.valid, found.mode) == (True, Mode.DOUBLE_SHA256)

    def test_they_do_not_know_the_single_mode(self) -> None:
        """What the Go SDK signs is refused by theirs and accepted here: that is why the mode is named."""
        digest = SchemaPinCore.canonicalize_and_hash({"name": "t"})
        signature = sign_digest(digest, KEY, mode=Mode.SINGLE_SHA256)
        assert not SignatureManager.verify_schema_signature(digest, signature, KEY.public_key())
        assert verify_digest(digest, signature, public()) is Mode.SINGLE_SHA256

    def test_keys_are_the_same_keys(self) -> None:
        theirs = KeyManager.export_public_key_pem(KEY.public_key())
        assert PublicKey.from_pem(theirs) == public()
        assert KeyManager.calculate_key_fingerprint_from_pem(public().pem) == public().fingerprint
        spki = serialization.PublicFormat.SubjectPublicKeyInfo
        assert public().spki_der == KEY.public_key().public_bytes(serialization.Encoding.DER, spki)

    def test_where_we_differ_on_purpose(self) -> None:
        """A bad first contact poisons their pin store, so that the right key is refused later; not ours."""
        schema = {"name": "t"}
        good = sign_digest(_digest(schema), KEY)
        intruder = {"schema_version": "1.1", "public_key_pem": public(OTHER_KEY).pem}
        store = KeyPinStore()
        assert not verify_schema_offline(schema, good, "d", "t", intruder, None, store).valid
        assert not verify_schema_offline(schema, good, "d", "t", _document(), None, store).valid

        first = verify(schema_digest(schema), good, parse_well_known(intruder))
        assert not first.valid
        later = verify(schema_digest(schema), good, parse_well_known(_document()))
        assert later.valid


def _document() -> dict[str, Any]:
    return {"schema_version": "1.1", "developer_name": "Dev", "public_key_pem": public().pem}
