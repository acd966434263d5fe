"""Files of operators: TOML, and a pointer for whoever brings another format."""

import pytest

from assay_stream.files.local import decode_toml
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    ("raw", "code", "said"),
    [
        (b"servers:\n  - server_id: docs\n", "not_toml", "line 1: not TOML. YAML and JSON are not read"),
        (b"# of ours\nservers:\n", "not_toml", "line 2: "),
        (b'{"servers": []}', "not_toml", "line 1: "),
        (b"servers = [", "not_toml", "not TOML"),
        (b"a = 1\na = 2", "not_toml", "not TOML"),
        pytest.param(b"a = " + b"[" * 50_000, "not_toml", "not TOML", id="deep"),
        pytest.param(b"a = " + b"1" * 5_000, "not_toml", "not TOML", id="long number"),
        (b"secret-\xff", "not_utf8", "byte 7"),
        pytest.param(b"#" * 20_000_000, "too_large", "allowed", id="large"),
    ],
)
def test_what_is_no_toml_is_refused_and_not_quoted(raw: bytes, code: str, said: str) -> None:
    with raises_code(code) as caught:
        decode_toml(raw)
    assert said in caught.value.message
    assert "secret" not in caught.value.message


def test_what_is_toml_is_decoded() -> None:
    assert decode_toml(b'[[servers]]\nserver_id = "docs"\n') == {"servers": [{"server_id": "docs"}]}
