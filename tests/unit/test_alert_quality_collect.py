"""Collecting lists of real servers: what the client reads, and how releases become pairs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.alert_quality.collect import PACKAGES, Package, read_packages, step
from bench.alert_quality.listing import ListingError, dummy, list_tools

CAN_ISOLATE = (
    sys.platform == "linux"
    and Path("/usr/bin/python3").exists()
    and shutil.which("unshare") is not None
    and subprocess.run(["unshare", "--user", "--map-root-user", "--net", "true"], check=False).returncode == 0
)
needs_isolation = pytest.mark.skipif(not CAN_ISOLATE, reason="network namespaces are not allowed here")

SERVER = """
import json, os, socket, sys
print("starting", flush=True)
if "DEMO_API_KEY" not in os.environ:
    sys.exit("set DEMO_API_KEY first")
pages = {None: ("a", "2"), "2": ("b", None)}
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "initialize":
        print(json.dumps({"jsonrpc": "2.0", "id": "s1", "method": "roots/list"}), flush=True)
        assert json.loads(sys.stdin.readline())["error"]["code"] == -32601
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}, "instructions": "Be kind."}
    elif request.get("method") == "tools/list":
        name, cursor = pages[request["params"].get("cursor")]
        try:
            socket.create_connection(("192.0.2.1", 9), timeout=1).close()
            name = "reached"
        except OSError:
            pass
        result = {"tools": [{"name": name, "x-unknown": 1}], **({"nextCursor": cursor} if cursor else {})}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that everybody may use: as root, servers run as nobody."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def serve(home: Path, program: str) -> list[str]:
    """Return the command of a server."""
    (home / "server.py").write_text(program, encoding="utf-8")
    return ["/usr/bin/python3", str(home / "server.py")]


@needs_isolation
def test_every_page_is_read_as_it_came_without_a_network(home: Path) -> None:
    """What servers print beside the protocol and what they ask of the client stop nothing; a setting is made up."""
    listing = list_tools(serve(home, SERVER), env={}, home=home)
    assert listing.tools == [{"name": "a", "x-unknown": 1}, {"name": "b", "x-unknown": 1}]
    assert listing.instructions == "Be kind."


@needs_isolation
def test_a_server_that_ends_is_an_error_with_what_it_said(home: Path) -> None:
    """The end of its error output says why."""
    with pytest.raises(ListingError, match="no such thing"):
        list_tools(serve(home, "import sys; sys.exit('no such thing')"), env={}, home=home)


@needs_isolation
def test_a_server_without_tools_is_an_error(home: Path) -> None:
    """It hides them until it is set up; an empty list would pass for a release."""
    empty = SERVER.replace('"tools": [{"name": name, "x-unknown": 1}]', '"tools": []')
    with pytest.raises(ListingError, match="no tools"):
        list_tools(serve(home, empty), env={"DEMO_API_KEY": "x"}, home=home)


@needs_isolation
def test_no_server_outlives_its_listing(home: Path) -> None:
    """Not even one that stays when its input ends."""
    stays = SERVER.replace('print("starting", flush=True)', "") + "\nimport time\ntime.sleep(60)\n"
    list_tools(serve(home, stays), env={"DEMO_API_KEY": "x"}, home=home)
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(str(home).encode() in line for line in lines)


@pytest.mark.parametrize(
    ("name", "value"), [("X_URL", "http://127.0.0.1:9"), ("X_HOST", "127.0.0.1"), ("X_PORT", "9"), ("X_KEY", "dummy")]
)
def test_dummy_settings_have_the_form_that_is_asked_for(name: str, value: str) -> None:
    """Addresses point to this machine, where nothing listens."""
    assert dummy(name) == value


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("1.0.0", "1.0.1", "patch"),
        ("1.0.9", "1.1.0", "minor"),
        ("1.9.0", "2.0.0", "major"),
        ("2025.1.2", "2025.3.4", "dated"),
        ("0.6.2", "2025.1.2", "dated"),
        ("1.0.0", "1.0.0", "restart"),
    ],
)
def test_steps_are_named_after_the_first_number_that_differs(old: str, new: str, kind: str) -> None:
    """Or after the form of the version."""
    assert step(old, new) == kind


def test_our_list_of_packages_can_be_read() -> None:
    """Every line is a package, and none stands twice."""
    packages = list(read_packages(PACKAGES))
    assert len({package.file_name for package in packages}) == len(packages)
    assert all(json.loads(json.dumps(package.settings)) == package.settings for package in packages)


def test_settings_are_given_or_made_up() -> None:
    """``NAME=value`` is given, ``NAME`` made up."""
    assert Package(registry="npm", package="x", env=["A_KEY", "B=2"]).settings == {"A_KEY": "dummy", "B": "2"}
