"""How large an install is and how long it takes to import: ``python -m bench.install_size [CHECKOUT [PACKAGE]]``.

Builds a wheel of a checkout (default: this one; PACKAGE is what a proxy imports of it), installs it with each extra
into a fresh virtual environment, and measures what that holds beyond an empty one, and what a proxy's imports take.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = 11
IMPORTS = {
    "publish": "from {0} import ObservationPublisher, Vantage, WireObserver",
    "enforce": "from {0} import VerdictClient; import {0}.gate",
}


def run(*command: str | Path) -> str:
    """Run a command and return what it prints."""
    return subprocess.run([*command], check=True, capture_output=True, text=True, cwd="/").stdout


def size_mb(folder: Path) -> float:
    """Return the size of the files in a folder, compiled ones left out, in megabytes."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sum(path.stat().st_size for path in found) / 1e6


def import_ms(python: Path, code: str) -> float:
    """Return the processor time that an import adds to a process, milliseconds (median)."""

    def median_s(script: str) -> float:
        times = []
        for _ in range(RUNS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run(python, "-c", script)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return statistics.median(times)

    run(python, "-c", code)  # compiles
    return (median_s(code) - median_s("pass")) * 1_000


def main(checkout: Path, package: str) -> None:
    """Measure every extra and print a table."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, checkout)
        [wheel] = folder.glob("*.whl")
        print("| install | packages | MB | publish, ms | enforce, ms |\n|---|---|---|---|---|")
        for extra in ("", "[cli]", "[worker]"):
            place = folder / f"venv{extra.strip('[]')}"
            run(sys.executable, "-m", "venv", place)
            python = place / "bin" / "python"
            empty_mb = size_mb(place)
            target = f"assay-stream{extra} @ {wheel.as_uri()}"
            run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", target)
            packages = len(run(python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check").split())
            times = " | ".join(f"{import_ms(python, code.format(package)):.0f}" for code in IMPORTS.values())
            # pip and setuptools were there before.
            print(f"| `assay-stream{extra}` | {packages - 2} | {size_mb(place) - empty_mb:.0f} | {times} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", nargs="?", type=Path, default=ROOT)
    parser.add_argument("package", nargs="?", default="assay_stream.observe")
    options = parser.parse_args()
    main(options.checkout.resolve(), options.package)
