"""What the commands refuse that read what a server offers."""

import pytest

from tests.support.command import run_command

FINGERPRINT = ("fingerprint",)
DRIFT = ("drift", "-")
HANDSHAKE = ("handshake", "check", "--server-id", "s")


@pytest.mark.parametrize(
    ("command", "raw", "code"),
    [
        (FINGERPRINT, b"", "not_json"),
        (FINGERPRINT, b"\xff", "not_utf8"),
        (FINGERPRINT, b'{"name":NaN}', "non_finite_number"),
        (FINGERPRINT, b'{"name":"t","x":{"a":1,"a":1}}', "duplicate_key"),
        (FINGERPRINT, b"[]", "not_a_tool"),
        (FINGERPRINT, b'"text"', "not_a_tool"),
        (FINGERPRINT, b'{"tools":[1]}', "not_a_tool"),
        (DRIFT, b"{", "not_json"),
        (DRIFT, b'{"name":"t","name":"u"}', "duplicate_key"),
        (DRIFT, b"{}", "not_a_tool"),
        (DRIFT, b"[]", "not_a_tool"),
        (DRIFT, b'{"tools":[1]}', "not_a_tool"),
        (DRIFT, b'{"error":{"code":1}}', "not_a_tool"),
        (DRIFT, b'{"tools":{}}', "wrong_type"),
        (DRIFT, b'{"tools":[{}]}', "missing_field"),
        (HANDSHAKE, b"{", "not_json"),
        (HANDSHAKE, b"{}", "not_a_list"),
        (HANDSHAKE, b"[]", "not_a_list"),
        (HANDSHAKE, b'{"result":7}', "not_a_list"),
        (HANDSHAKE, b'{"tools":[7]}', "not_a_tool"),
        (HANDSHAKE, b'{"tools":[],"tools":[]}', "duplicate_key"),
    ],
)
def test_what_is_no_list_is_refused_with_its_code_and_source(command: tuple[str, ...], raw: bytes, code: str) -> None:
    """Exit code 2, and nothing on standard output."""
    done = run_command(*command, stdin=raw)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(f"assay-stream: {code}".encode())
    assert b"standard input" in done.stderr
    assert b"Traceback" not in done.stderr
