"""``assay-stream schemapin``."""

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from schemapin.utils import SchemaSigningWorkflow
from schemapin.verification import KeyPinStore, verify_schema_offline

from assay_stream.canonical.decode import decode_json
from assay_stream.schemes.schemapin import parse_well_known, sign_digest
from assay_stream.schemes.schemapin_canonical import Mode, schema_digest
from tests.support.command import run_command_text
from tests.support.deployment import free_port
from tests.support.https_server import Authority, HttpsServer, serve
from tests.support.schemapin import KEY, OTHER_KEY, TOOL, a_document, private_pem, public

SIGNATURE = sign_digest(bytes.fromhex(schema_digest(TOOL).hex), KEY)
FINGERPRINT = public().fingerprint


def run_verify(files: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("verify", "--schema", files / "tool.json", "--well-known", files / "schemapin.json", *arguments)


def run(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return run_command_text("schemapin", *map(str, arguments), stdin=b"", **env)


def failed(done: subprocess.CompletedProcess[str], code: str, exit_code: int = 2) -> bool:
    assert (done.returncode, done.stdout) == (exit_code, ""), (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr.startswith(f"assay-stream: {code}")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "tool.json").write_text(json.dumps(TOOL))
    (tmp_path / "private.pem").write_bytes(private_pem())
    (tmp_path / "public.pem").write_text(public().pem)
    (tmp_path / "schemapin.json").write_text(json.dumps(a_document()))
    return tmp_path


class TestKeygen:
    def test_a_key_pair(self, tmp_path: Path) -> None:
        """The private key is for its owner only, whatever the umask; the fingerprint is the public key's."""
        private, shared = tmp_path / "private.pem", tmp_path / "public.pem"
        before = os.umask(0)
        try:
            done = run("keygen", "--private-key", private, "--public-key", shared)
        finally:
            os.umask(before)
        assert done.returncode == 0, done.stderr
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
        assert run("fingerprint", shared).stdout == done.stdout
        assert "PRIVATE" not in shared.read_text() + done.stdout + done.stderr

    @pytest.mark.parametrize("existing", ["private.pem", "public.pem"])
    def test_nothing_is_overwritten(self, tmp_path: Path, existing: str) -> None:
        """An existing file stops the command, and no half of a pair is left behind."""
        (tmp_path / existing).write_text("precious")
        done = run("keygen", "--private-key", tmp_path / "private.pem", "--public-key", tmp_path / "public.pem")
        assert failed(done, "file_exists")
        assert [path.name for path in tmp_path.iterdir()] == [existing]
        assert (tmp_path / existing).read_text() == "precious"

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        """The file that cannot be written is named."""
        path = tmp_path / "missing" / "private.pem"
        done = run("keygen", "--private-key", path, "--public-key", tmp_path / "public.pem")
        assert failed(done, "unwritable_file")
        assert str(path) in done.stderr


class TestDeveloper:
    def test_the_reference_sdk_accepts_all_of_it(self, tmp_path: Path) -> None:
        """Keys, signature and document made here verify there."""
        private, shared, tool = (tmp_path / name for name in ("private.pem", "public.pem", "tool.json"))
        tool.write_text(json.dumps(TOOL))
        run("keygen", "--private-key", private, "--public-key", shared)
        signature = run("sign", "--schema", tool, "--key", private).stdout.strip()
        document = json.loads(run("well-known", "--developer-name", "Dev", "--key", shared).stdout)
        assert SchemaSigningWorkflow(private.read_text()).sign_schema(TOOL)
        found = verify_schema_offline(TOOL, signature, "d", "t", document, None, KeyPinStore())
        assert found.valid, found.error_message

    @pytest.mark.parametrize("mode", Mode)
    def test_a_signature_of_either_mode(self, files: Path, mode: Mode) -> None:
        """What is signed in a mode verifies in that mode."""
        signature = run(
            *("sign", "--schema", files / "tool.json", "--key", files / "private.pem", "--mode", mode)
        ).stdout.strip()
        done = run_verify(files, "--signature", signature)
        assert json.loads(done.stdout)["mode"] == mode

    def test_a_document(self, files: Path) -> None:
        """It says what was given, and revoked keys stand in it as fingerprints."""
        revoked = public(OTHER_KEY).fingerprint
        done = run(
            *("well-known", "--developer-name", "Dev", "--key", files / "public.pem"),
            *("--contact", "dev@example.com", "--revoked", revoked),
        )
        said = parse_well_known(done.stdout.encode())
        stated = json.loads(done.stdout)
        assert [stated[name] for name in ("schema_version", "developer_name", "contact")] == [
            *("1.1", "Dev", "dev@example.com")
        ]
        assert (said.public_key_pem, said.revoked_keys) == (public().pem, frozenset({revoked}))

    def test_a_document_that_revokes_its_own_key(self, files: Path) -> None:
        """It would make every signature invalid: it is not made."""
        done = run(*("well-known", "--developer-name", "Dev", "--key", files / "public.pem", "--revoked", FINGERPRINT))
        assert failed(done, "bad_option")

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (("sign", "--schema", "tool.json", "--key", "public.pem"), "bad_private_key"),
            (("sign", "--schema", "tool.json", "--key", "missing.pem"), "unreadable_file"),
            (("sign", "--schema", "private.pem", "--key", "private.pem"), "not_json"),
            (("well-known", "--developer-name", "D", "--key", "private.pem"), "key_not_found"),
            (("well-known", "--developer-name", "D", "--key", "public.pem", "--revoked", "x"), "bad_digest"),
            (("fingerprint", "private.pem"), "key_not_found"),
            (("fingerprint", "tool.json"), "discovery_invalid"),
            (("fingerprint", "missing.pem"), "unreadable_file"),
        ],
    )
    def test_a_wrong_file(self, files: Path, arguments: tuple[str, ...], code: str) -> None:
        """It is named by a code; keys are never quoted."""
        done = run(*(files / text if "." in text else text for text in arguments))
        assert failed(done, code)
        assert "PRIVATE" not in done.stderr

    def test_the_fingerprint_of_a_document(self, files: Path) -> None:
        for name in ("public.pem", "schemapin.json"):
            assert run("fingerprint", files / name).stdout == f"{FINGERPRINT}\n"


def verify(files: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = run_verify(files, *arguments)
    assert done.stdout.count("\n") == 1, done.stderr
    return done.returncode, json.loads(done.stdout)


def answer(error_code: str | None, fingerprint: str | None = FINGERPRINT) -> tuple[int, dict[str, Any]]:
    valid = error_code is None
    mode = "double_sha256" if valid else None
    wanted = {"valid": valid, "mode": mode, "fingerprint": fingerprint, "error_code": error_code}
    return int(not valid), wanted


class TestVerify:
    def test_valid(self, files: Path) -> None:
        """The line has four fields in this order, and the exit code is 0."""
        done = run_verify(files, "--signature", SIGNATURE)
        assert done.stdout == (
            f'{{"valid": true, "mode": "double_sha256", "fingerprint": "{FINGERPRINT}", "error_code": null}}\n'
        )
        assert (done.returncode, done.stderr) == (0, "")

    def test_the_pinned_key(self, files: Path) -> None:
        """The pinned key is accepted, another is not."""
        signed = ("--signature", SIGNATURE)
        assert verify(files, *signed, "--pinned-fingerprint", FINGERPRINT) == answer(None)
        other = public(OTHER_KEY).fingerprint
        assert verify(files, *signed, "--pinned-fingerprint", other) == answer("key_pin_mismatch")

    def test_a_carried_signature(self, files: Path) -> None:
        """Without --signature the one that the tool carries is verified."""
        (files / "tool.json").write_text(json.dumps(TOOL | {"_meta": {"x-schema-signature": SIGNATURE}}))
        assert verify(files) == answer(None)

    @pytest.mark.parametrize("name", ["schemapin.json", "revocations.json"])
    def test_a_document_that_cannot_be_read_is_named(self, files: Path, name: str) -> None:
        (files / "revocations.json").write_text('{"domain": "example.com", "revoked_keys": []}')
        (files / name).write_text("{}")
        given = ("--schema", "tool.json", "--well-known", "schemapin.json", "--revocations", "revocations.json")
        done = run("verify", "--signature", SIGNATURE, *(files / text if "." in text else text for text in given))
        assert f": {files / name}: " in done.stderr

    @pytest.mark.parametrize("raw", [b"", b"{}", b"<html>", b"\xff", b"{" + b" " * 10_000_000 + b"}"])
    def test_no_discovery_document(self, files: Path, raw: bytes) -> None:
        """Whatever is no document is invalid, ten megabytes of it included."""
        (files / "schemapin.json").write_bytes(raw)
        assert verify(files, "--signature", SIGNATURE) == answer("discovery_invalid", None)

    @pytest.mark.parametrize(
        ("name", "raw", "code"),
        [
            ("tool.json", None, "unreadable_file"),
            ("schemapin.json", None, "unreadable_file"),
            ("tool.json", b"{", "not_json"),
            ("tool.json", b"[]", "not_a_tool"),
            ("tool.json", b'{"name":"t","name":"t"}', "duplicate_key"),
        ],
    )
    def test_files_that_cannot_be_used(self, files: Path, name: str, raw: bytes | None, code: str) -> None:
        """Without a tool or a document there is no answer: exit code 2, and the file is named."""
        path = files / name
        if raw is None:
            path.unlink()
        else:
            path.write_bytes(raw)
        done = run_verify(files, "--signature", SIGNATURE)
        assert failed(done, code)
        assert str(path) in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [((), "bad_option"), (("--signature", SIGNATURE, "--pinned-fingerprint", "abc"), "bad_digest")],
    )
    def test_options_that_cannot_be_used(self, files: Path, arguments: tuple[str, ...], code: str) -> None:
        """No signature at all, and a pin that is no fingerprint."""
        assert failed(run_verify(files, *arguments), code)


class TestFetch:
    @pytest.mark.parametrize("to_stdout", [False, True])
    def test_a_document(self, tmp_path: Path, to_stdout: bool) -> None:
        """It is written as an event for the control topic, to a file or to standard output."""
        authority = Authority(tmp_path)
        path = tmp_path / "observed.ndjson"
        with HttpsServer(serve(json.dumps(a_document()).encode()), authority.issue("localhost")) as server:
            done = run(
                *("fetch", "--domain", server.domain, "--server-id", "s", "--observer-id", "o"),
                *("--ca-file", authority.file, "--output", "-" if to_stdout else path),
            )
        assert done.returncode == 0, done.stderr
        event = decode_json((done.stdout if to_stdout else path.read_text()).rstrip("\n").encode())
        assert event["type"] == "assay.control.discovery.observed"
        assert event["source"] == "urn:assay-stream:observer:o"
        assert event["data"]["server_id"] == "s"
        assert (event["data"]["status"], event["data"]["document"]) == ("observed", a_document())

    @pytest.mark.parametrize(
        ("body", "status", "code"), [(b"", 404, "discovery_fetch_failed"), (b"{}", 200, "discovery_invalid")]
    )
    def test_a_failure_is_published_and_exits_1(self, tmp_path: Path, body: bytes, status: int, code: str) -> None:
        """The stream must hear of it, and so must whoever ran the command."""
        authority = Authority(tmp_path)
        with HttpsServer(serve(body, status), authority.issue("localhost")) as server:
            done = run(
                *("fetch", "--domain", server.domain, "--server-id", "s"),
                *("--ca-file", authority.file, "--output", "-"),
            )
        assert done.returncode == 1
        assert json.loads(done.stdout)["data"]["error_code"] == code
        assert code in done.stderr

    def test_without_a_broker_it_exits_3(self) -> None:
        """An observation that cannot be published is an error of its own."""
        done = run(
            *("fetch", "--domain", f"localhost:{free_port()}", "--server-id", "s"),
            *("--bootstrap-servers", f"127.0.0.1:{free_port()}"),
            ASSAY_STREAM_COMMAND_CONNECT_LIMIT_S="1",
        )
        assert done.returncode == 3
        assert "broker_unreachable" in done.stderr
