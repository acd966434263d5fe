"""A package whose detection data was damaged: every command says so by name, and none of them starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import assay_stream

PACKAGE = Path(assay_stream.__file__).parent
_RUN = "from assay_stream.cli import main; main()"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The detection data of a copy of the installed package, of which everything else is linked."""
    copy = tmp_path / PACKAGE.name
    (copy / "detect").mkdir(parents=True)
    for source, target in ((PACKAGE, copy), (PACKAGE / "detect", copy / "detect")):
        for entry in source.iterdir():
            if not (target / entry.name).exists() and entry.name not in {"data", "__pycache__"}:
                (target / entry.name).symlink_to(entry)
    return shutil.copytree(PACKAGE / "detect" / "data", copy / "detect" / "data")


def run(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(data.parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", _RUN, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def refuses(data: Path, file: str, *arguments: str) -> bool:
    """Tell whether a command ends with exit code 2 and one sentence that names the file and what to do."""
    done = run(data, *arguments)
    lines = done.stderr.splitlines()
    return (
        done.returncode == 2
        and len(lines) == 1
        and lines[0].startswith(f"assay-stream: detection_data_altered: detect/data/{file}")
        and "reinstall assay-stream" in lines[0]
    )


def test_an_undamaged_copy_starts(data: Path) -> None:
    assert run(data, "--version").returncode == 0


@pytest.mark.parametrize("arguments", [("worker",), ("drift", "a", "b"), ("replay", "a")])
def test_every_command_refuses_altered_weights(data: Path, arguments: tuple[str, ...]) -> None:
    """No command judges anything with weights that nobody vouches for."""
    weights = data / "weights.tsv"
    weights.write_bytes(weights.read_bytes().replace(b"\t1", b"\t9", 1))
    assert refuses(data, "weights.tsv", *arguments)


@pytest.mark.parametrize(
    "file", ["weights.tsv", "model.toml", "rules.toml", "lists.toml", "relations.toml", "concepts.toml"]
)
def test_a_missing_file_is_named(data: Path, file: str) -> None:
    (data / file).unlink()
    assert refuses(data, file, "worker")


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("model.toml", lambda content: content + b"\xff"),
        ("relations.toml", lambda content: content.replace(b"$call $between", b"$calling $between", 1)),
        ("concepts.toml", lambda content: content[: len(content) // 2]),
    ],
)
def test_a_malformed_file_is_named(data: Path, file: str, damage: Callable[[bytes], bytes]) -> None:
    (data / file).write_bytes(damage((data / file).read_bytes()))
    assert refuses(data, file, "worker")


def test_an_unreadable_file_is_named(data: Path) -> None:
    (data / "weights.tsv").unlink()
    (data / "weights.tsv").mkdir()
    assert refuses(data, "weights.tsv", "worker")
