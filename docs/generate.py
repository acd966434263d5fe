"""Write the generated parts of the documentation: ``python docs/generate.py --write``, or ``--check``."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "assay_stream"


def summary(path: Path) -> str:
    """Return the first line of a module's docstring, without the code marks and the full stop."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("``", "`").rstrip(".")


def modules_page() -> str:
    """Return ``modules.md``: every module with its purpose, room by room."""
    lines = ["# Modules", "", "Generated from the modules' docstrings by `make docs`.", ""]
    rooms = sorted({path.parent for path in SOURCES.rglob("*.py")})
    for room in rooms:
        name = room.relative_to(ROOT / "src").as_posix()
        lines += [f"## `{name}/`", "", summary(room / "__init__.py") + ".", "", "| module | purpose |", "|---|---|"]
        for path in sorted(room.glob("*.py")):
            if not path.name.startswith("__"):
                lines.append(f"| `{path.name}` | {summary(path).replace('|', '&#124;')} |")
        lines.append("")
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """Return every generated page: its path and its text."""
    return {ROOT / "docs" / "modules.md": modules_page()}


def main(arguments: list[str]) -> int:
    """Write the pages, or say which of them are out of date; returns the exit code."""
    if arguments not in (["--write"], ["--check"]):
        print("usage: python docs/generate.py --write | --check", file=sys.stderr)
        return 2
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if arguments == ["--write"]:
            path.write_text(pages()[path], encoding="utf-8")
        else:
            print(f"out of date: {path.relative_to(ROOT)}; run make docs", file=sys.stderr)
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
