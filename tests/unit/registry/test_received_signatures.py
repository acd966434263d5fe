"""Signatures as they come with a snapshot, their check against a key, and what is kept of a key document."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from assay_stream.bindings.offers import Offers
from assay_stream.canonical.digest import jcs_digest
from assay_stream.limits import Limits
from assay_stream.model.control import Discovery, Signatures, Signed
from assay_stream.model.observation import SnapshotData
from assay_stream.registry.step import check_against, read_document, signatures_of
from assay_stream.schemes.schemapin_canonical import schema_digest
from tests.support.controls import a_document, fingerprint_of, signature_of
from tests.support.events import SERVER, snapshot_data
from tests.support.facts import a_discovery
from tests.support.schemapin import KEY, OTHER_KEY, TOOL, public, public_pem


def taken(*tools: dict[str, Any], limits: Limits | None = None, **fields: Any) -> Signatures | None:
    data = SnapshotData.model_validate(snapshot_data(*tools, **fields))
    bounds = limits or Limits()
    return signatures_of(data, Offers(bounds).of(data), bounds)


def entry_of(given: Any, tool: dict[str, Any] = TOOL) -> Signed:
    signatures = taken(tool, signatures={"t": given})
    assert signatures is not None
    ((name, entry),) = signatures.tools.items()
    assert name == "t"
    return entry


def document_of(key: ec.EllipticCurvePrivateKey) -> Discovery:
    found = public(key)
    discovery = a_discovery(found.fingerprint, time_us=0, offset=0)
    object.__setattr__(discovery, "public_key_pem", found.pem)
    return discovery


DIGEST = schema_digest(TOOL).hex


def test_a_snapshot_without_signatures_has_none() -> None:
    assert taken(TOOL) is None
    assert taken(TOOL, signatures={}) is None
    assert taken(TOOL, signatures={"ghost": "c2ln"}) is None


@pytest.mark.parametrize(
    ("given", "entry"),
    [
        ("c2ln", (None, "c2ln", DIGEST)),
        ({"signature": "c2ln"}, (None, "c2ln", DIGEST)),
        ({"signature": "c2ln", "domain": "example.com"}, ("example.com", "c2ln", DIGEST)),
        ({"signature": "c2ln", "domain": "Example.COM."}, ("example.com", "c2ln", DIGEST)),
        ({"signature": "c2ln", "domain": "example.com:8443"}, ("example.com:8443", "c2ln", DIGEST)),
    ],
    ids=["text", "object", "with domain", "domain in capitals", "domain with port"],
)
def test_a_signature_comes_as_text_or_with_its_domain(given: Any, entry: tuple[str | None, str, str]) -> None:
    assert entry_of(given) == Signed(*entry)


@pytest.mark.parametrize("given", [7, [], {}, {"signature": 7}, "x" * 1_025, "sign\u00e9"])
def test_a_signature_of_a_wrong_form_is_there_and_matches_nothing(given: Any) -> None:
    """It is not missing: whoever sent it meant to sign."""
    entry = entry_of(given)
    assert entry == Signed(None, "", DIGEST)
    signatures = taken(TOOL, signatures={"t": given})
    assert signatures is not None
    assert check_against(signatures, document_of(KEY)).modes == {}


@pytest.mark.parametrize("domain", [7, "", "two words", "a\nb", "x" * 2_000, "bücher.example", "<b>"])
def test_a_domain_of_a_wrong_form_is_nobody_s(domain: Any) -> None:
    """Whatever a sender writes there, only a host goes on into evidence."""
    assert entry_of({"signature": "c2ln", "domain": domain})[0] == ""


def test_a_name_that_stands_twice_has_no_signature() -> None:
    assert taken(TOOL, TOOL | {"description": "other"}, signatures={"t": "c2ln"}) is None


def test_the_digest_covers_all_that_was_signed() -> None:
    signatures = taken(TOOL, signatures={"t": {"signature": "c2ln", "domain": "example.com"}})
    assert signatures is not None
    assert signatures.server_id == SERVER
    assert signatures.digest == str(jcs_digest([["t", "example.com", "c2ln", DIGEST]]))


def test_a_tool_without_a_canonical_form_matches_nothing() -> None:
    signatures = Signatures(server_id=SERVER, digest="set", tools={"t": Signed(None, signature_of(TOOL), None)})
    assert check_against(signatures, document_of(KEY)).modes == {}


@pytest.mark.parametrize(
    ("document", "status"),
    [
        (None, "invalid"),
        ({}, "invalid"),
        (a_document() | {"schema_version": "one"}, "invalid"),
        (a_document() | {"public_key_pem": "none"}, "invalid"),
        (a_document() | {"revoked_keys": "all"}, "invalid"),
        (a_document() | {"public_key_pem": "-----BEGIN PUBLIC KEY-----\n"}, "no_key"),
        (a_document() | {"public_key_pem": public_pem(ec.generate_private_key(ec.SECP384R1()).public_key())}, "no_key"),
        (a_document() | {"domain": "example.org"}, "other_domain"),
    ],
    ids=["nothing", "empty", "version", "no PEM", "revoked", "broken key", "other curve", "other domain"],
)
def test_a_document_of_no_use_gives_no_key(document: dict[str, Any] | None, status: str) -> None:
    assert read_document(document, "example.com") == (status, None, ())


@pytest.mark.parametrize("domain", ["example.com", "EXAMPLE.com", "example.com."])
def test_a_document_may_name_its_own_domain(domain: str) -> None:
    assert read_document(a_document() | {"domain": domain}, "example.com")[0] == "observed"


def test_a_revocation_document_counts_beside_the_list() -> None:
    """A key that either of the two names is revoked (SchemaPin 1.2, section 8.7)."""
    listed, alone = (f"sha256:{digit * 64}" for digit in "ab")
    revocations = {"domain": "example.com", "revoked_keys": [{"fingerprint": alone, "reason": "key_compromise"}]}
    assert read_document(a_document(revoked=(listed,)), "example.com", revocations)[2] == (listed, alone)


@pytest.mark.parametrize(
    ("revocations", "status"),
    [
        ({"domain": "example.com"}, "invalid"),
        ({"domain": "example.com", "revoked_keys": ["x"]}, "invalid"),
        ({"domain": "example.org", "revoked_keys": []}, "other_domain"),
    ],
)
def test_a_revocation_document_of_no_use_gives_no_key(revocations: dict[str, Any], status: str) -> None:
    """Whoever can spoil it must not bring a revoked key back."""
    assert read_document(a_document(), "example.com", revocations) == (status, None, ())


def test_of_revoked_keys_only_fingerprints_are_kept() -> None:
    """The rest is the domain's own text: it can name no key, and does not go into evidence."""
    listed = (fingerprint_of(OTHER_KEY).upper().replace("SHA256", "sha256"), "call me", "sha256:12")
    assert read_document(a_document(revoked=listed), "example.com")[2] == (fingerprint_of(OTHER_KEY),)
