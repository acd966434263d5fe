"""A small MCP server that changes its tools when it is told to, and announces it: it speaks raw JSON-RPC on stdio.

``change`` gives ``echo`` another description and sends ``notifications/tools/list_changed`` before its own answer.
``withdraw`` takes ``echo`` off the list and announces that.
"""

import json
import sys
from typing import Any

NOTICE = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
SCHEMA = {"type": "object"}


def tools(edition: int | None) -> list[dict[str, Any]]:
    """The list; without an edition it lacks ``echo``."""
    listed = [
        {"name": name, "description": "Changes the list.", "inputSchema": SCHEMA} for name in ("change", "withdraw")
    ]
    if edition is not None:
        listed.append({"name": "echo", "description": f"Echoes, edition {edition}.", "inputSchema": SCHEMA})
    return listed


def main() -> None:
    """Answer until the input ends."""
    edition: int | None = 1
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        method, result = message.get("method"), {}
        if method == "initialize":
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "changing", "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": tools(edition)}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": "done"}]}
            name = message["params"]["name"]
            if name != "echo":
                edition = (edition or 1) + 1 if name == "change" else None
                print(json.dumps(NOTICE), flush=True)
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
