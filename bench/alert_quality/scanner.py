"""A public scanner of MCP tools as a judge: Cisco's mcp-scanner, its YARA rules alone, in an environment of its own.

As a program, run by the Python of that environment, it reads a Tool object a line and answers each with its findings:

    .scanner-venv/bin/python bench/alert_quality/scanner.py < tools.ndjson
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

Tool = Mapping[str, Any]

PACKAGE = "cisco-ai-mcp-scanner"


def scan(tools: Iterable[Tool], python: Path) -> tuple[str, list[dict[str, str]]]:
    """Return the scanner's version, and for each tool the severity of each rule that matched.

    Args:
        tools: the definitions.
        python: the Python of the scanner's environment.

    Raises:
        subprocess.CalledProcessError: the scanner failed.
    """
    lines = "".join(json.dumps(tool) + "\n" for tool in tools)
    ran = subprocess.run([python, Path(__file__).resolve()], input=lines, capture_output=True, text=True, check=True)
    first, *answers = ran.stdout.splitlines()
    return first, [json.loads(answer) for answer in answers]


def _answer(lines: Sequence[str]) -> None:
    # It is installed in the scanner's environment only.
    from mcpscanner.core.analyzers.yara_analyzer import YaraAnalyzer

    analyzer = YaraAnalyzer()

    async def rules(tool: Tool) -> dict[str, str]:
        """Search the description and the rest apart, as the scanner does with a tool of a live server."""
        rest = json.dumps({name: value for name, value in tool.items() if name != "description"})
        found = [*await analyzer.analyze(tool.get("description") or ""), *await analyzer.analyze(rest)]
        return {finding.details["raw_response"]["rule"]: finding.severity.lower() for finding in found}

    print(version(PACKAGE))
    for line in lines:
        print(json.dumps(asyncio.run(rules(json.loads(line)))))


if __name__ == "__main__":
    _answer(sys.stdin.readlines())
