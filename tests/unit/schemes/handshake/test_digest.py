"""Handshake's digest of arguments: the canonical form at its edges, and redaction in its way."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.schemes.handshake.digest import args_digest, canonical_form, redact_text
from tests.support.counting import passes


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (None, "null"),
        ([], "[]"),
        ({"b": [1, {"d": 1, "c": 2}], "a": True}, '{"a":true,"b":[1,{"c":2,"d":1}]}'),
        ("é", r'"\u00E9"'),
        ("\U0001f600", r'"\uD83D\uDE00"'),
        ("\x00\x1f\x7f", '"\\u0000\\u001F\x7f"'),
        ('"\\/\b\f\n\r\t', r'"\"\\/\b\f\n\r\t"'),
        # UTF-8 order, which is not UTF-16's: U+FB01 comes before U+1F600.
        ({"\U0001f600": 1, "\ufb01": 2}, r'{"\uFB01":2,"\uD83D\uDE00":1}'),
        ((1, 2), "[1,2]"),
    ],
)
def test_the_canonical_form(value: Any, form: str) -> None:
    """Sorted, compact, ASCII, with one line feed behind it; the digest is over these bytes."""
    assert canonical_form(value) == f"{form}\n".encode()
    assert args_digest(value) == hashlib.sha256(f"{form}\n".encode()).hexdigest()


@pytest.mark.parametrize(
    ("number", "form"),
    [
        (2**64 - 1, "18446744073709551615"),
        (-(2**63), "-9223372036854775808"),
        (2**64, "1.8446744073709552e19"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e16"),
        (1.5e300, "1.5e300"),
        (1e-5, "0.00001"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
    ],
)
def test_numbers_are_printed_as_rust_does(number: float, form: str) -> None:
    """Integers of 64 bits exactly; all else as the shortest double, in serde_json's notation."""
    assert canonical_form(number) == f"{form}\n".encode()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (float("nan"), "not_canonicalizable"),
        (float("-inf"), "not_canonicalizable"),
        (10**400, "not_canonicalizable"),
        (b"bytes", "not_canonicalizable"),
        ({1: 2}, "not_canonicalizable"),
        ({1: 2, "a": 3}, "not_canonicalizable"),
        ("\ud800", "lone_surrogate"),
        ({"\udc00": 1}, "lone_surrogate"),
    ],
)
def test_what_is_no_json_has_no_digest(value: Any, code: str) -> None:
    """It is refused by name."""
    with pytest.raises(InputError) as caught:
        args_digest(value)
    assert caught.value.code == code


def test_nesting_has_a_bound() -> None:
    """254 containers are written; more, or a value that holds itself, are refused."""
    value: list[Any] = []
    for _ in range(253):
        value = [value]
    assert canonical_form(value)
    with pytest.raises(InputError, match="too_deep"):
        args_digest([value])
    value[0] = value
    with pytest.raises(InputError, match="too_deep"):
        args_digest(value)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("mail ann@example.org now", "mail [REDACTED:pii:pii_email] now"),
        ("key AKIAIOSFODNN7EXAMPLE.", "key [REDACTED:aws:secret_aws]."),
        ("ghp_" + "a" * 36, "[REDACTED:api_key:secret_github_pat]"),
        ("open /home/ann/notes.txt", "open [REDACTED:path:path_absolute]"),
        (r"open C:\Users\ann", "open [REDACTED:path:path_absolute]"),
        ("/var/log/x", "[REDACTED:path:path_absolute]"),
        ("echo $HOME", "echo [REDACTED:env:env_var]"),
        ("a.txt", "a.txt"),
        ("/etc/hosts", "/etc/hosts"),
        ("/homework", "/homework"),
    ],
)  # fmt: skip
def test_texts_are_redacted_under_handshake_s_categories(text: str, redacted: str) -> None:
    """Secrets, personal data, machine paths and variables are replaced; other paths are not."""
    assert redact_text(text) == redacted
    assert canonical_form({"path": text}) == canonical_form({"path": redacted})


@pytest.mark.parametrize(
    ("piece", "usual"),
    [
        ("-----BEGIN PRIVATE KEY-----", 5),
        ("eyJa.", 120),
        ("a@", 105),
        ("/home", 0.8),
        ("\\\\", 0.8),
        ("password=", 0.8),
        ("$", 105),
        ("+1 ", 105),
    ],
)
def test_redaction_is_linear(piece: str, usual: float) -> None:
    """Texts made of the beginnings of matches cost what is usual, in passes over them, whatever their length."""
    for chars in (250_000, 1_000_000):
        assert passes(redact_text, piece * (chars // len(piece))) < 8 * usual
