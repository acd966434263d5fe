"""The options of a tap over HTTP: what is wrong is said before anything listens."""

import socket
from pathlib import Path

import pytest

from tests.support.command import run_command_text

LISTEN = ("tap", "--listen", "127.0.0.1:0", "--output", "/dev/null")
ONE = ("--server-id", "a", "--upstream", "https://a.example/mcp")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tap", "--server-id", "a"), "server_not_started"),
        (("tap", "--", "cat"), "server_not_started"),
        (("tap", "--upstream", "https://a.example", "--server-id", "a", "--", "cat"), "need --listen"),
        ((*LISTEN, *ONE, "--", "cat"), "takes no command"),
        (LISTEN, "give --server-id and --upstream"),
        ((*LISTEN, "--server-id", "a"), "give --server-id and --upstream"),
        ((*LISTEN, *ONE, "--upstreams", "x.toml"), "give either"),
        ((*LISTEN, "--upstreams", "/nowhere.toml"), "cannot read /nowhere.toml"),
        ((*LISTEN, "--server-id", "a", "--upstream", "https://u:secret@a.example/mcp"), "bad_upstream"),
        (("tap", "--listen", "8080", *ONE), "cannot_listen"),
        (("tap", "--listen", "127.0.0.1:99999", *ONE), "cannot_listen"),
        ((*LISTEN, *ONE, "--tls-cert", "/nowhere.pem"), "certificate"),
        ((*LISTEN, *ONE, "--upstream-ca", "/nowhere.pem"), "certificate"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], said: str) -> None:
    done = run_command_text(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "secret" not in done.stderr


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "taps.toml"
    file.write_text("upstreams: []")
    done = run_command_text(*LISTEN, "--upstreams", str(file))
    assert done.returncode == 2
    assert f"bad_upstream: {file}: line 1: not TOML. YAML" in done.stderr


def test_an_address_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_command_text("tap", "--listen", address, "--output", "/dev/null", *ONE)
    assert done.returncode == 2
    assert f"cannot listen on {address}: Address already in use. Give a free host:port" in done.stderr
