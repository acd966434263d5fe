"""``assay-stream seal`` and ``seal keygen``, up to the point where brokers are needed."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from assay_stream.files.seal_files import read_public_keys
from assay_stream.schemes.tlog import load_private_key
from assay_stream.seal.check import expected_of
from tests.support.command import run_command_text
from tests.support.disk import files_of_at_most
from tests.support.errors import raises_code
from tests.support.seals import write_keys

PASSWORD = "ASSAY_STREAM_SEAL_KEY_PASSWORD"


def run(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    env = {"ASSAY_STREAM_BOOTSTRAP_SERVERS": "127.0.0.1:1", "ASSAY_STREAM_CONNECT_LIMIT_S": "1", **env}
    return run_command_text("seal", *map(str, arguments), stdin=b"", **env)


def failed(done: subprocess.CompletedProcess[str], code: str) -> bool:
    assert (done.returncode, done.stdout) == (2, ""), (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr.startswith(f"assay-stream: {code}:")


def test_new_keys_are_a_pair_that_only_the_owner_can_sign_with(tmp_path: Path) -> None:
    """Whatever the umask; the id that is printed is the public key's."""
    before = os.umask(0)
    try:
        done = run("keygen", "--out", tmp_path / "seal.pem")
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE((tmp_path / "seal.pem").stat().st_mode) == 0o600
    key = load_private_key((tmp_path / "seal.pem").read_bytes())
    found = read_public_keys([tmp_path / "seal.pub.pem"])
    assert [*found] == [done.stdout.strip()]
    assert found[done.stdout.strip()].public_bytes_raw() == key.public_key().public_bytes_raw()


def test_a_new_key_is_encrypted_where_a_password_is_set(tmp_path: Path) -> None:
    """The password opens it, and is printed nowhere."""
    done = run("keygen", "--out", tmp_path / "seal.pem", **{PASSWORD: "correct horse"})
    assert done.returncode == 0, done.stderr
    pem = (tmp_path / "seal.pem").read_bytes()
    assert b"ENCRYPTED" in pem
    load_private_key(pem, b"correct horse")
    assert "horse" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["seal.pem", "seal.pub.pem"])
def test_no_key_is_overwritten(name: str, tmp_path: Path) -> None:
    """Neither file, and no half of a pair is left."""
    (tmp_path / name).write_bytes(b"kept")
    assert failed(run("keygen", "--out", tmp_path / "seal.pem"), "file_exists")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"kept"


def test_a_folder_in_place_of_a_new_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert failed(run("keygen", "--out", "."), "bad_option")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["seal", "schemapin"])
def test_no_half_of_a_key_is_left_on_a_full_disk(command: str, tmp_path: Path) -> None:
    """The rest of it would be in the way of the next try."""
    names = {"seal": ("--out",), "schemapin": ("--private-key", "--public-key")}[command]
    paths = [part for name in names for part in (name, str(tmp_path / f"{name.strip('-')}.pem"))]
    with files_of_at_most(20):
        done = run_command_text(command, "keygen", *paths)
    assert (done.returncode, "unwritable_file" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_lost_key_is_told_with_what_to_do(tmp_path: Path) -> None:
    done = run("--key", tmp_path / "seal.pem", "--once")
    assert failed(done, "seal_key_missing")
    assert "--also-trust" in done.stderr
    assert "seal keygen" in done.stderr


def test_the_other_half_of_a_key_pair_is_named(tmp_path: Path) -> None:
    """Not as exposed or malformed: a public key may be read by all."""
    write_keys(tmp_path)
    (tmp_path / "seal.pub.pem").chmod(0o644)
    done = run("--key", tmp_path / "seal.pub.pem", "--once")
    assert failed(done, "bad_seal_key")
    assert "this is a public key: give a PEM PRIVATE KEY block" in done.stderr
    done = run("--key", tmp_path / "seal.pem", "--also-trust", tmp_path / "seal.pem", "--once")
    assert "this is a private key: give a PEM PUBLIC KEY block" in done.stderr


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o602, 0o601])
def test_a_key_that_others_can_read_or_write_is_refused(mode: int, tmp_path: Path) -> None:
    """The group may read it, as secrets are mounted."""
    write_keys(tmp_path)
    (tmp_path / "seal.pem").chmod(mode)
    done = run("--key", tmp_path / "seal.pem", "--once")
    assert failed(done, "seal_key_exposed")
    assert "chmod 600" in done.stderr


@pytest.mark.parametrize(("made_with", "used_with"), [("", "x"), ("x", ""), ("x", "y")])
def test_a_wrong_password_is_told_from_a_wrong_key(made_with: str, used_with: str, tmp_path: Path) -> None:
    assert run("keygen", "--out", tmp_path / "seal.pem", **{PASSWORD: made_with}).returncode == 0
    done = run("--key", tmp_path / "seal.pem", "--once", **{PASSWORD: used_with})
    assert failed(done, "bad_seal_key_password")


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    """Another algorithm, or the public key where the private one belongs."""
    write_keys(tmp_path)
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "other.pem").write_bytes(pem)
    (tmp_path / "other.pem").chmod(0o600)
    (tmp_path / "seal.pub.pem").chmod(0o600)
    for name in ("other.pem", "seal.pub.pem"):
        assert failed(run("--key", tmp_path / name, "--once"), "bad_seal_key")
    done = run("--key", tmp_path / "seal.pem", "--also-trust", tmp_path / "seal.pem", "--once")
    assert failed(done, "bad_seal_key")
    assert "seal.pem" in done.stderr


def test_the_sealer_needs_a_key_and_its_options_stand_behind_no_command(tmp_path: Path) -> None:
    done = run()
    assert failed(done, "bad_option")
    assert "keygen" in done.stderr
    write_keys(tmp_path)
    assert failed(run("--key", tmp_path / "seal.pem", "verify", "--key", tmp_path / "seal.pub.pem"), "bad_option")


def test_help_names_the_commands_and_where_the_password_is() -> None:
    done = run("--help", COLUMNS="200")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("keygen", "verify", "prove", "check-proof", "archive", PASSWORD))


def test_an_expected_head_in_a_file_that_is_not_there_is_named_so() -> None:
    with raises_code("bad_head") as caught:
        expected_of("head.json")
    assert "there is no file head.json" in caught.value.message
