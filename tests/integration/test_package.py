"""The built wheel, installed as a proxy's author would: without the worker's extra."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.servers

ROOT = Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "tests/data/captures/mcp-server-time@2026.10.19.tools_list.json"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment that holds the wheel and its base requirements; returns its bin folder."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("assay_stream-*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = str(folder / "venv" / "bin" / "python")
    # Without the hashes: pip would ask for that of the wheel too.
    constraints = folder / "constraints.txt"
    pins = re.findall(r"^[^#\s][^\\\n]*", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    constraints.write_text("\n".join(pins), encoding="utf-8")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-c", str(constraints), str(wheel)], check=True)
    return folder / "venv" / "bin"


def test_the_base_install_has_no_faust(installed: Path) -> None:
    """The publishing side, the digests and the replay install without Faust."""
    code = (
        "import importlib.util as u, assay_stream.observe, assay_stream.replay.run; "
        "print(u.find_spec('faust'), u.find_spec('prometheus_client'))"
    )
    done = subprocess.run([installed / "python", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None None"


def test_the_installed_command_prints_fingerprints(installed: Path) -> None:
    """The console script of the wheel works on a captured list."""
    done = subprocess.run(
        [installed / "assay-stream", "fingerprint", str(CAPTURE)], capture_output=True, text=True, check=True
    )
    tools = [json.loads(line)["tool"] for line in done.stdout.splitlines()]
    assert tools == [tool["name"] for tool in json.loads(CAPTURE.read_bytes())["result"]["tools"]]


def test_the_worker_names_the_extra_it_needs(installed: Path) -> None:
    """Without the extra the worker says what to install."""
    done = subprocess.run([installed / "assay-stream", "worker"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "extra_missing" in done.stderr
    assert "assay-stream[worker]" in done.stderr
