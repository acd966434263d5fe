"""A package whose detection data was damaged: every command says so by name, and none of them starts."""

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
_READ = """
from assay_stream.errors import ConfigurationError
try:
    import assay_stream.detect
except ConfigurationError as error:
    print(error)
"""


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


def run(data: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(data.parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_an_undamaged_copy_starts(data: Path) -> None:
    assert run(data, _RUN, "--version").returncode == 0


@pytest.mark.parametrize("arguments", [("worker",), ("drift", "a", "b"), ("replay", "a")])
def test_every_command_refuses_altered_weights(data: Path, arguments: tuple[str, ...]) -> None:
    """No command judges anything with weights that nobody vouches for."""
    weights = data / "weights.tsv"
    weights.write_bytes(weights.read_bytes().replace(b"\t1", b"\t9", 1))
    done = run(data, _RUN, *arguments)
    [line] = done.stderr.splitlines()
    assert (done.returncode, line.startswith("assay-stream: detection_data_altered: detect/data/weights.tsv")) == (
        2,
        True,
    )


def folder_in_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *((name, Path.unlink) for name in ("weights.tsv", "model.toml", "rules.toml", "lists.toml", "relations.toml")),
        ("weights.tsv", folder_in_place),
        ("model.toml", lambda path: path.write_bytes(path.read_bytes() + b"\xff")),
        ("relations.toml", lambda path: path.write_text(path.read_text().replace("$call $between", "$calling", 1))),
        ("relations.toml", lambda path: path.write_text(path.read_text().replace('run_asked"\nlevel', '"\nlevel'))),
        ("concepts.toml", lambda path: path.write_text(path.read_text()[:1_000])),
    ],
)
def test_a_damaged_file_is_named(data: Path, file: str, damage: Callable[[Path], object]) -> None:
    damage(data / file)
    said = run(data, _READ).stdout
    assert said.startswith(f"detection_data_altered: detect/data/{file}")
    assert "reinstall assay-stream" in said
