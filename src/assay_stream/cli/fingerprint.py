"""``assay-stream fingerprint``: every digest of a definition, without Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_stream.canonical.decode import decode_json
from assay_stream.cli.files import read_input
from assay_stream.cli.output import print_json
from assay_stream.errors import InputError
from assay_stream.schemes import fingerprint as core

_OF_A_TOOL = ("name", "description", "inputSchema", "input_schema")


def fingerprint(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Tool objects or tools/list results; standard input by default.")
    ] = None,
    server_id: Annotated[
        str | None, typer.Option(help="The observation is scoped to this server: its id enters assay.v1.")
    ] = None,
) -> None:
    """Print the fingerprints of tool definitions: one JSON object per tool.

    FILE holds one Tool object, a tools/list result, or the JSON-RPC response around one.
    """
    for name, raw in _inputs(files):
        try:
            lines = [_line(tool, server_id) for tool in _tools(decode_json(raw))]
        except InputError as error:
            raise InputError(error.code, f"{name}: {error.message}", path=error.path) from None
        for line in lines:
            print_json(line)


def _inputs(files: list[Path] | None) -> Iterator[tuple[str, bytes]]:
    if not files:
        yield "standard input", read_input(None)
    for path in files or []:
        yield str(path), read_input(path)


def _tools(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, dict):
        raise InputError("not_a_tool", "give a Tool object or a tools/list result", path="$")
    result = content.get("result", content)
    if isinstance(result, dict) and isinstance(result.get("tools"), list):
        tools: list[dict[str, Any]] = result["tools"]
        for index, tool in enumerate(tools):
            if not isinstance(tool, dict):
                raise InputError("not_a_tool", "a tool must be a JSON object", path=f"$.tools[{index}]")
        return tools
    if content.keys().isdisjoint(_OF_A_TOOL):
        raise InputError("not_a_tool", "the object is no tool: give a Tool object or a tools/list result", path="$")
    return [content]


def _line(tool: dict[str, Any], server_id: str | None) -> dict[str, Any]:
    found = core.fingerprint(tool, server_id=server_id)
    name = tool.get("name")
    return {
        "tool": name if isinstance(name, str) else None,
        "fingerprints": {scheme: found.schemes.get(scheme) for scheme in core.SCHEMES},
        "errors": dict(found.errors),
    }
