"""The options of a tap over HTTP: what is wrong is said before anything listens."""

import socket

from tests.support.command import run_command_text

LISTEN = ("tap", "--listen", "127.0.0.1:0", "--output", "/dev/null")
ONE = ("--server-id", "a", "--upstream", "https://a.example/mcp")


def test_an_address_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_command_text("tap", "--listen", address, "--output", "/dev/null", *ONE)
    assert done.returncode == 2
    assert f"cannot listen on {address}: Address already in use. Give a free host:port" in done.stderr
