"""Any scanner of MCP tools: a command that reads a list a line and answers each with a line of findings.

In, tools as ``tools/list`` gives them, and out, in the same order:

    {"tools": [{"name": "search", "description": "...", "inputSchema": {...}}]}
    {"findings": [{"tool": "search", "level": "high", "rule": "id"}], "version": "1.2"}
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

Tool = Mapping[str, Any]


class ScannerError(Exception):
    """The command failed, or what it printed is not an answer to each list."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a scanner says of one tool.

    Args:
        level: the scanner's own severity.
        tool: the name of the tool; empty for a list as a whole.
        rule: what it matched, if the scanner says.
    """

    level: Literal["info", "low", "medium", "high", "critical"]
    tool: str = ""
    rule: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a scanner's output.

    Args:
        findings: what it found in the list.
        version: the scanner's version, if it says.
    """

    findings: list[Finding]
    version: str = ""


def scan(lists: Sequence[Sequence[Tool]], command: str) -> list[Answer]:
    """Return the scanner's answer to each list.

    Args:
        lists: what it reads.
        command: the program and its arguments, quoted as in a shell.

    Raises:
        ScannerError: it did not start, failed, or did not answer each list with a line in the format.
    """
    lines = b"".join(msgspec.json.encode({"tools": tools}) + b"\n" for tools in lists)
    try:
        ran = subprocess.run(shlex.split(command), input=lines, stdout=subprocess.PIPE, check=True)
        answers = [msgspec.json.decode(line, type=Answer) for line in ran.stdout.splitlines()]
    except (OSError, subprocess.CalledProcessError, msgspec.DecodeError) as error:
        raise ScannerError(f"{command}: {error}") from error
    if len(answers) != len(lists):
        raise ScannerError(f"{command}: {len(answers)} lines for {len(lists)} lists")
    return answers
