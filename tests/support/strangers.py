"""Distributions of strangers: the one that ``docs/plugins.md`` shows, as a wheel, and small ones made by hand."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
_FILE = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]


def installed_from_the_page(folder: Path) -> Path:
    """Build the wheel of the page's files, install it without a network, and return the folder that holds it."""
    source, wheels, target = (folder / name for name in ("source", "wheels", "target"))
    source.mkdir()
    for name, text in _FILE.findall(PAGE.read_text(encoding="utf-8")):
        (source / name).write_text(text, encoding="utf-8")
    build = [*_PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source)]
    subprocess.run(build, check=True, timeout=120)
    [wheel] = wheels.iterdir()
    install = [*_PIP, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run(install, check=True, timeout=120)
    return target


def put_distribution(folder: Path, name: str, group: str, plugin: str, code: str) -> None:
    """Put a distribution into a folder, with one module that has its code and one entry point to ``PLUGIN`` in it."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(f"[{group}]\n{plugin} = {module}:PLUGIN\n", encoding="utf-8")
