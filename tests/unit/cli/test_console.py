"""``assay-stream console`` as a process, and where it refuses to start."""

import http.cookiejar
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

from assay_stream.cli.console import pause_s
from assay_stream.limits import CONSOLE_LIMITS
from tests.support.command import run_command_text
from tests.support.console import a_store
from tests.support.console_process import console
from tests.support.deployment import free_port
from tests.support.readmodel import history


def test_it_serves_until_told_to_stop(tmp_path: Path) -> None:
    a_store(tmp_path, history())
    command = [sys.executable, "-m", "assay_stream", "console", "--listen", "127.0.0.1:0", "--store", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            address = line.split()[1]
            assert address.startswith("http://127.0.0.1:"), line
            with urllib.request.urlopen(address) as answer:  # noqa: S310 -- ours
                assert b"server-0" in answer.read()
            with urllib.request.urlopen(f"{address}events"):  # noqa: S310 -- an open page does not keep it
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 0
        finally:
            process.kill()


# --- a console that fills its store ---------------------------------------------------------------------------


COMMAND = [sys.executable, "-m", "assay_stream", "console", "--fill", "--store"]


def test_pauses_grow_to_a_bound() -> None:
    """1, 2, 4, 8, 16, 32 s, then a minute each, however often it fails."""
    assert [pause_s(failures) for failures in (1, 2, 6, 7, 1_000_000)] == [1, 2, 32, 60, 60]
    assert pause_s(10**9) == CONSOLE_LIMITS.filler_pause_max_s


def no_broker() -> dict[str, str]:
    return os.environ | {
        "ASSAY_STREAM_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}",
        "ASSAY_STREAM_COMMAND_CONNECT_LIMIT_S": "1",
        "ASSAY_STREAM_LOG_LEVEL": "ERROR",
    }


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310 -- ours
        return str(answer.read().decode())


def test_a_failure_to_fill_is_shown_and_filling_is_tried_again(tmp_path: Path) -> None:
    """On the Health page and on standard error; pages of what the store holds are served all the while."""
    folder, said = tmp_path / "store", tmp_path / "said"
    folder.mkdir()
    a_store(folder, history())
    with said.open("w") as stderr:
        process = subprocess.Popen(
            [*COMMAND, str(folder), "--listen", "127.0.0.1:0"], env=no_broker(), stderr=stderr, text=True
        )
    try:
        until(lambda: "http://" in said.read_text())
        [address] = re.findall(r"http://\S+", said.read_text())
        until(lambda: said.read_text().count("Next try in") >= 1)
        assert re.search(r"Filling the store failed \(broker_unreachable: .*\)\. Next try in 1 s\.", said.read_text())
        assert "server-0" in get(address)
        assert "Filling the store failed" in get(f"{address}health")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, said.read_text()
    finally:
        process.kill()
        process.wait(10)


def test_a_console_without_a_store_ends(tmp_path: Path) -> None:
    """As every command that reads one: a misspelt folder would serve pages that show nothing but an error."""
    done = run_command_text("console", "--listen", "127.0.0.1:0", "--store", str(tmp_path / "nosuch"))
    assert done.returncode == 2
    assert done.stderr.startswith("assay-stream: store_missing: ")


def test_a_console_that_cannot_listen_ends(tmp_path: Path) -> None:
    """It says why, with the exit code of the command, and fills nothing."""
    store = tmp_path / "store"
    done = subprocess.run(
        [*COMMAND, str(store), "--listen", "192.0.2.1:80", "--behind-login", "--allow-host", "x"],
        env=no_broker(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("assay-stream: cannot_listen: ")
    assert not store.exists()


# --- users of the console -------------------------------------------------------------------------------------


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
