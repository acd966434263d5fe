"""Keyed digests: their form, which key made them, and what is no digest."""

import pytest

from assay_stream.canonical.digest import DigestKey
from assay_stream.errors import ConfigurationError

KEY = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
PLAIN = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_a_keyed_digest_is_what_openssl_makes_of_the_plain_one() -> None:
    """``printf %s $PLAIN | openssl dgst -sha256 -mac HMAC -macopt hexkey:$KEY``, and the same of ``key id``."""
    keyed = DigestKey(KEY).keyed(PLAIN)
    assert keyed == "hmac-sha256:865174565c84e8db:69db8ebe50ddb6a7a2bfb9866ef712f5544262da155ecaa62666ba7ee9725c5a"


def test_a_digest_is_keyed_once() -> None:
    keyed = DigestKey(KEY).keyed(PLAIN)
    assert keyed is not None
    assert DigestKey("f" * 64).keyed(keyed) == keyed


@pytest.mark.parametrize("other", ["", "claimed", "44136fa3", PLAIN.removeprefix("sha256:"), "sha256:" + "A" * 64])
def test_what_is_no_plain_digest_has_no_keyed_form(other: str) -> None:
    assert DigestKey(KEY).keyed(other) is None


@pytest.mark.parametrize("text", ["", "correct horse battery staple", KEY[:-1], KEY + "0", KEY.upper()])
def test_a_key_that_could_be_guessed_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="bad_digest_key"):
        DigestKey(text)
