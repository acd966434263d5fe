"""Holds today's code against another checkout, over as many random histories as asked for, and shows what differs.

git worktree add /tmp/before 59456b3
python -m tests.golden.against /tmp/before 0 1000
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.golden.difference import differences
from tests.golden.outputs import Outputs

ROOT = Path(__file__).parents[2]
FORMER = {
    "assay_stream.engine": "assay_stream.core.engine",
    "assay_stream.model.envelope": "assay_stream.core.evidence",
    "assay_stream.model.record": "assay_stream.core.record",
}
"""Today's modules that ``stages.py`` imports, and what they were called at the golden commit."""


def main() -> int:
    """Compare, print, and return 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child is not None:
        _write(chosen.child, chosen.first, chosen.end)
        return 0
    found: list[str] = []
    with TemporaryDirectory() as folder:
        sources = {"before": chosen.checkout.resolve() / "src", "today": ROOT / "src"}
        for name, source in sources.items():
            env = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
            seeds = (str(chosen.checkout), str(chosen.first), str(chosen.end))
            command = [sys.executable, "-m", "tests.golden.against", *seeds, "--child", f"{folder}/{name}"]
            subprocess.run(command, env=env, cwd=ROOT, check=True)
        for seed in range(chosen.first, chosen.end):
            before, today = (_read(Path(folder) / name / str(seed)) for name in sources)
            found.extend(f"seed {seed}: {line}" for line in differences(before, today))
    print("\n".join(found) or f"{chosen.end - chosen.first} histories: every output is equal")
    return 1 if found else 0


def _write(folder: Path, first: int, end: int) -> None:
    for new, former in FORMER.items():
        try:
            sys.modules[new] = import_module(former)
        except ModuleNotFoundError:
            break
    engine: Any = import_module("assay_stream.engine")
    if not hasattr(engine, "process"):
        engine.process = lambda state, record: engine.step(state, record)[1]
    from tests.golden.scenarios import outputs_of_history

    then = contextlib.nullcontext
    with contextlib.suppress(ModuleNotFoundError):
        then = import_module("tests.golden.then").decisions_of_then
    for seed in range(first, end):
        with TemporaryDirectory() as work, then():
            for name, content in outputs_of_history(seed, Path(work)).items():
                path = folder / str(seed) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


def _read(folder: Path) -> Outputs:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


if __name__ == "__main__":
    sys.exit(main())
