"""The wheel and the sdist, installed as users install them, with the checkout out of reach."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.servers import make_environment

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("package")]

ROOT = Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "tests/data/captures/mcp-server-time@2026.10.19.tools_list.json"
NOT_IN_BASE = ("aiohttp", "cryptography", "faust", "jsonschema", "msgspec", "rich", "typer", "yaml")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # A complete environment has the locked backend.
    isolation = ["--no-isolation"] if importlib.util.find_spec("hatchling") else []
    build: list[str | Path] = [sys.executable, "-m", "build", *isolation, "--outdir", folder, ROOT]
    done = run(*build, cwd=folder)  # the sdist, and the wheel from it
    assert done.returncode == 0, done.stderr
    [found] = folder.glob("assay_stream-*.whl")
    return found


def install(wheel: Path, extra: str) -> Path:
    """A fresh virtual environment with the wheel and the locked versions of what it needs; returns its bin folder."""
    folder = wheel.parent / f"venv{extra.strip('[]')}"
    # Without the hashes: pip would ask for that of the wheel too.
    constraints = wheel.parent / "constraints.txt"
    pins = re.findall(r"^[^#\s][^\\\n]*", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    constraints.write_text("\n".join(pins), encoding="utf-8")
    make_environment(folder, f"assay-stream{extra}", "-c", str(constraints), f"assay-stream{extra} @ {wheel.as_uri()}")
    return folder / "bin"


@pytest.fixture(scope="module")
def base(wheel: Path) -> Path:
    return install(wheel, "")


@pytest.fixture(scope="module")
def cli(wheel: Path) -> Path:
    return install(wheel, "[cli]")


def test_the_base_install_is_small(base: Path) -> None:
    """It holds nothing that only the command line or the worker needs."""
    code = f"import importlib.util as u; print([name for name in {NOT_IN_BASE!r} if u.find_spec(name)])"
    assert run(base / "python", "-c", code, cwd=base).stdout.strip() == "[]"


def test_the_publisher_of_the_readme_runs_on_the_base_install(base: Path) -> None:
    """The README's Python, fed with a list: it queues a snapshot and survives an absent broker."""
    [source] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    lines = (
        ("client->server", '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'),
        ("server->client", '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"}]}}'),
    )
    feeding = "".join(f"passed({direction!r}, {line!r}.encode())\n" for direction, line in lines)
    ending = "assert publisher.stats.accepted == 1, publisher.stats\npublisher.close(timeout_ms=0)\nprint('ok')\n"
    script = base.parent / "proxy.py"
    script.write_text(source.replace("broker-1:9092", "127.0.0.1:1") + feeding + ending, encoding="utf-8")
    done = run(base / "python", script, cwd=base)
    assert done.stdout == "ok\n", done.stderr


def test_the_base_install_enforces(base: Path) -> None:
    """Tap, gate and verdict client load without an extra."""
    code = "from assay_stream.observe import VerdictClient, run_tap; import assay_stream.observe.gate; print('ok')"
    done = run(base / "python", "-c", code, cwd=base)
    assert done.stdout == "ok\n", done.stderr


def test_what_needs_an_extra_names_it(base: Path) -> None:
    """The command, and the reader of recorded traffic."""
    command = run(base / "assay-stream", "fingerprint", cwd=base)
    assert (command.returncode, command.stdout) == (2, "")
    assert "pip install '.[cli]'" in command.stderr
    reader = run(base / "python", "-c", "from assay_stream.observe import from_mcp_wire", cwd=base)
    for done in (command, reader):
        assert "extra_missing" in done.stderr
        assert "assay-stream[cli]" in done.stderr


def test_the_installed_command_prints_fingerprints(cli: Path) -> None:
    """The console script of the wheel works on a captured list."""
    done = run(cli / "assay-stream", "fingerprint", CAPTURE, cwd=cli)
    tools = [json.loads(line)["tool"] for line in done.stdout.splitlines()]
    assert tools == [tool["name"] for tool in json.loads(CAPTURE.read_bytes())["result"]["tools"]]


def test_the_demo_runs_straight_after_the_install(cli: Path, tmp_path: Path) -> None:
    """Without Kafka or Java, from the records that the wheel holds."""
    done = run(cli / "assay-stream", "demo", "--no-broker", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4. The rug pull" in done.stdout
    assert (tmp_path / "assay-stream-demo" / "evidence.ndjson").is_file()


def test_the_worker_names_the_extra_it_needs(cli: Path) -> None:
    """Without Faust the worker says what to install."""
    done = run(cli / "assay-stream", "worker", cwd=cli)
    assert done.returncode == 2
    assert "extra_missing" in done.stderr
    assert "assay-stream[worker]" in done.stderr
