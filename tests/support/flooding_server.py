"""A hostile MCP server: fifty tools in every list, none of them ever seen before."""

import itertools
import json
import sys
from typing import Any

TOOLS = 50
_numbers = itertools.count()


def _a_tool() -> dict[str, Any]:
    number = next(_numbers)
    properties = {
        f"field_{index}": {"type": "string", "description": f"Field {index} of {number}."} for index in range(8)
    }
    return {
        "name": f"tool_{number}",
        "description": f"Fetches report number {number} for the given customer and sends it to the caller. " * 3,
        "inputSchema": {"type": "object", "properties": properties, "required": ["field_0"]},
    }


def _answer(method: str) -> dict[str, Any]:
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "flooding", "version": "1"},
        }
    return {"tools": [_a_tool() for _ in range(TOOLS)]} if method == "tools/list" else {}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": _answer(request["method"])}), flush=True)


if __name__ == "__main__":
    main()
