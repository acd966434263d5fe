"""``assay-stream console user``, and signing in to a console with what it wrote."""

import http.cookiejar
import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from tests.support.command import run_command_text
from tests.support.console import a_store
from tests.support.console_process import console
from tests.support.readmodel import history

PASSWORD = "correct horse battery"


def test_a_newcomer_makes_a_user_and_signs_in(tmp_path: Path) -> None:
    """Two commands: the first writes the identity file, too."""
    a_store(tmp_path / "store", history())
    identity = tmp_path / "console.toml"
    added = run_command_text(
        "console", "user", "add", "alice", "--identity", str(identity), stdin=f"{PASSWORD}\n".encode()
    )
    assert added.returncode == 0, added.stderr
    assert PASSWORD not in added.stdout + added.stderr + identity.read_text()
    with console(tmp_path / "store", "--identity", str(identity)) as address:
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        with browser.open(f"{address}/alerts") as answer:
            assert answer.url == f"{address}/sign-in?next=%2Falerts"
        form = urllib.parse.urlencode({"user": "alice", "password": PASSWORD, "next": "/servers"}).encode()
        headers = {"Origin": address}
        with browser.open(urllib.request.Request(f"{address}/sign-in", form, headers)) as answer:  # noqa: S310
            assert answer.url == f"{address}/servers"
            text = answer.read().decode()
            assert "server-0" in text
            assert "local:alice (read-only)" in text


def test_users_are_added_changed_listed_and_removed(tmp_path: Path) -> None:
    """In the file that the identity file names."""
    identity = ("--identity", str(tmp_path / "console.toml"))

    def listed() -> dict[str, str]:
        done = run_command_text("console", "user", "list", "--json", *identity)
        assert done.returncode == 0, done.stderr
        return {row["name"]: row["role"] for row in map(json.loads, done.stdout.splitlines())}

    for name, role in (("alice", "viewer"), ("bob", "viewer"), ("alice", "operator")):
        done = run_command_text("console", "user", "add", name, "--role", role, *identity, stdin=PASSWORD.encode())
        assert done.returncode == 0, done.stderr
    assert listed() == {"alice": "operator", "bob": "viewer"}
    assert run_command_text("console", "user", "remove", "bob", *identity).returncode == 0
    assert listed() == {"alice": "operator"}
    assert (tmp_path / "console.users").stat().st_mode & 0o777 == 0o600


def test_a_lost_identity_file_takes_no_user_with_it(tmp_path: Path) -> None:
    """The users' own file is still there: a new user comes to those in it."""
    identity = tmp_path / "console.toml"
    for name in ("alice", "bob"):
        done = run_command_text("console", "user", "add", name, "--identity", str(identity), stdin=PASSWORD.encode())
        assert done.returncode == 0, done.stderr
        users = (tmp_path / "console.users").read_text()
        identity.unlink()
    assert [line.partition(":")[0] for line in users.splitlines() if not line.startswith("#")] == ["alice", "bob"]


def test_a_short_password_is_refused(tmp_path: Path) -> None:
    identity = tmp_path / "console.toml"
    done = run_command_text("console", "user", "add", "alice", "--identity", str(identity), stdin=b"hunter2\n")
    assert (done.returncode, "12 to" in done.stderr, "hunter2" in done.stderr) == (2, True, False)
    assert not identity.exists()
