"""``assay-stream fingerprint``: every digest of a definition, without Kafka."""

from pathlib import Path
from typing import Annotated, Any

import typer

from assay_stream.canonical.decode import decode_json
from assay_stream.cli.files import STANDARD_INPUT, read_input, tools_in
from assay_stream.cli.output import print_json
from assay_stream.cli.shared import named_in_errors
from assay_stream.errors import InputError
from assay_stream.schemes import fingerprint as core

_OF_A_TOOL = ("name", "description", "inputSchema", "input_schema")


def fingerprint(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Tool objects or tools/list results. Default: stdin.")
    ] = None,
    server_id: Annotated[str | None, typer.Option(help="Server that the definitions are scoped to (assay.v1).")] = None,
) -> None:
    """Print the fingerprints of tool definitions: one JSON object per tool.

    FILE holds one Tool object, a tools/list result, or the JSON-RPC response around one.
    """
    for path in files or [STANDARD_INPUT]:
        raw = read_input(path)
        with named_in_errors("standard input" if path == STANDARD_INPUT else path):
            lines = [_line(tool, server_id) for tool in _tools(decode_json(raw))]
        for line in lines:
            print_json(line)


def _tools(content: Any) -> list[dict[str, Any]]:
    tools = tools_in(content)
    if tools is not None:
        return tools
    if not isinstance(content, dict) or content.keys().isdisjoint(_OF_A_TOOL):
        raise InputError("not_a_tool", "give a Tool object or a tools/list result", path="$")
    return [content]


def _line(tool: dict[str, Any], server_id: str | None) -> dict[str, Any]:
    found = core.fingerprint(tool, server_id=server_id)
    name = tool.get("name")
    return {
        "tool": name if isinstance(name, str) else None,
        "fingerprints": {scheme: found.schemes.get(scheme) for scheme in core.SCHEMES},
        "errors": dict(found.errors),
    }
