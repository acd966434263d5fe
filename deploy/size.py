"""Print the lines of each package beside its budget, and fail where one has more.

Physical lines are what an editor counts. Code lines are those that hold a statement: no docstrings, comments, blank
lines or imports. The budgets are in ``size.toml``; a package that it does not name has none to spend.

    python deploy/size.py
"""

from __future__ import annotations

import ast
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = ROOT / "deploy" / "size.toml"
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


class Size(NamedTuple):
    """Files, their physical lines, and their lines of code."""

    files: int = 0
    lines: int = 0
    code: int = 0

    def plus(self, path: Path) -> Size:
        """Return the size with one more file."""
        return Size(self.files + 1, self.lines + len(path.read_bytes().splitlines()), self.code + code_lines(path))


def code_lines(path: Path) -> int:
    """Count the lines of a Python file that hold code."""
    with tokenize.open(path) as file:
        text = file.read()
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    held: set[int] = set()
    for token in tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__):
        if token.type not in _NO_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    return len(held - left_out)


def packages() -> Iterator[tuple[str, Path]]:
    """Yield each measured package by name: those of ``src`` one by one, then the other folders."""
    source = ROOT / "src" / "assay_stream"
    yield "assay_stream", source
    for path in sorted(source.iterdir()):
        if path.is_dir() and path.name != "__pycache__":
            yield f"assay_stream.{path.name}", path
    for name in ("bench", "deploy", "tests"):
        yield name, ROOT / name


def main() -> int:
    """Print the table; the exit code is 1 where a budget is exceeded."""
    budgets = tomllib.loads(BUDGETS.read_text())
    limits: dict[str, int] = budgets["lines_max"]
    totals: dict[str, int] = budgets["src"]
    source = Size()
    exceeded = []
    print(f"{'package':28} {'files':>6} {'lines':>8} {'budget':>8} {'code':>8}")
    for name, folder in packages():
        size = Size()
        for path in folder.glob("*.py") if name == "assay_stream" else folder.rglob("*.py"):
            size = size.plus(path)
        if name.startswith("assay_stream"):
            source = Size(*map(sum, zip(source, size, strict=True)))
        budget = limits.get(name, 0)
        print(f"{name:28} {size.files:6,} {size.lines:8,} {budget:8,} {size.code:8,}")
        if size.lines > budget:
            exceeded.append(f"{name} has {size.lines:,} lines, {size.lines - budget:,} more than its budget")
    print(f"{'src':28} {source.files:6,} {source.lines:8,} {totals['lines_max']:8,} {source.code:8,}")
    for what, count in zip(("files", "lines", "code"), source, strict=True):
        if count > totals[f"{what}_max"]:
            exceeded.append(f"src exceeds {what}_max by {count - totals[f'{what}_max']:,}")
    for line in exceeded:
        print(f"{line}: delete something, or raise it in deploy/size.toml and say why in the commit", file=sys.stderr)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
