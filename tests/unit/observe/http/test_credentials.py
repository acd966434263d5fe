"""Authorisation contexts: comparable, and nothing of a token is in them."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from assay_stream.observe.http.connections import Contexts

CONTEXTS = Contexts(b"key", b"process")


def a_token(**claims: Any) -> str:
    usual = {"iss": "https://auth.example", "sub": "alice", "scope": "files calendar"}
    parts = [{"alg": "none"}, usual | claims]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJl"])


def label(**claims: Any) -> str | None:
    return CONTEXTS.of(f"Bearer {a_token(**claims)}").label


@pytest.mark.parametrize(
    "claims", [{"exp": 7, "jti": "x"}, {"scope": "calendar files"}, {"scope": None, "scp": ["calendar", "files"]}]
)
def test_the_same_rights_have_the_same_label(claims: dict[str, Any]) -> None:
    """A refreshed token, another order of scopes, another name for them."""
    assert label(**claims) == label()


@pytest.mark.parametrize("claims", [{"sub": "bob"}, {"iss": "https://other.example"}, {"scope": "files"}])
def test_other_rights_have_another_label(claims: dict[str, Any]) -> None:
    assert label(**claims) != label()


def test_another_key_gives_another_label() -> None:
    """Without the key nobody finds out who it is by trying."""
    assert Contexts(b"other", b"process").of(f"Bearer {a_token()}").label != label()
    assert Contexts(b"key", b"other").of(f"Bearer {a_token()}").label == label()


@pytest.mark.parametrize("credential", ["Bearer opaque", "Basic dXNlcjpwYXNz", "Bearer a.b.c", "Bearer", "x" * 10**6])
def test_opaque_credentials_share_a_label_and_are_told_apart_in_memory(credential: str) -> None:
    """What is published is the same for all; what is not names no token either."""
    context = CONTEXTS.of(credential)
    assert context.label == "opaque"
    assert context.client not in (b"", CONTEXTS.of(credential + "2").client)
    assert credential.encode() not in context.client


def test_without_credentials_the_configured_label_counts() -> None:
    assert CONTEXTS.of(None).label is None
    assert Contexts(b"", b"", default="team").of(None).label == "team"
    assert Contexts(b"", b"", default="team").of("Bearer opaque").label == "team"


@given(st.text(max_size=80), st.binary(max_size=40))
def test_any_header_has_a_context(text: str, payload: bytes) -> None:
    for header in (text, f"Bearer {text}", f"Bearer x.{base64.urlsafe_b64encode(payload).decode()}.y"):
        CONTEXTS.of(header)


@given(st.lists(st.text(), min_size=2, max_size=2, unique=True), st.text())
def test_no_two_subjects_share_a_label(subjects: list[str], issuer: str) -> None:
    """However issuer, subject and scopes are written."""
    one, two = subjects
    assert label(iss=issuer, sub=one) != label(iss=issuer, sub=two)
    assert label(iss=one, sub=two) != label(iss=two, sub=one)
