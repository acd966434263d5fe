"""A raw MCP server on stdio, for ``list-watch``, that behaves as its first argument says.

python -m tests.support.scripted_lister_server BEHAVIOUR [FILE]
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

SCHEMA = {"type": "object"}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": SCHEMA, **fields}


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def pages(behaviour: str, params: dict[str, Any]) -> dict[str, Any]:
    number = int(params.get("cursor", "0"))
    result: dict[str, Any] = {"tools": [tool(f"tool_{number}")]}
    if behaviour == "endless":
        result["nextCursor"] = str(number + 1)
    elif behaviour == "circular":
        result["nextCursor"] = "1"
    return result


def list_tools(behaviour: str, number: object, params: dict[str, Any], edition: int) -> None:
    match behaviour:
        case "huge":
            sys.stdout.write('{"jsonrpc":"2.0","id":' + str(number) + ',"result":{"tools":[{"name":"')
            for _ in range(100):
                sys.stdout.write("x" * 2**20)
            sys.stdout.flush()
        case "chatty":
            while True:
                say(method="notifications/tools/list_changed")
        case "failing":
            say(id=number, error={"code": -32603, "message": "secret detail"})
        case "dying":
            say(id=number, result={"tools": [tool("first")], "nextCursor": "2"})
            sys.exit()
        case "announcing":
            say(id=number, result={"tools": [tool("echo", title=f"edition {edition}")]})
            if edition == 1:
                time.sleep(0.2)
                say(method="notifications/tools/list_changed")
        case "restless":
            say(method="notifications/tools/list_changed")
            say(id=number, result={"tools": [tool("echo")]})
        case _:
            if behaviour == "asking":
                say(id="a", method="ping")
                say(id="b", method="sampling/createMessage", params={})
            say(id=str(number) if behaviour == "texts" else number, result=pages(behaviour, params))


def main() -> None:
    behaviour, *rest = sys.argv[1:]
    edition = 0
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if behaviour == "hanging" or (behaviour == "deaf" and method == "server/discover"):
            continue
        if behaviour == "fragile" and method == "server/discover":
            return
        if rest and method is None and "result" in message:
            Path(rest[0]).write_text(line, encoding="utf-8")
        if number is None or method is None:
            continue
        if method == "initialize":
            capabilities = {"tools": {"listChanged": behaviour in ("announcing", "chatty", "restless")}}
            info = {"name": "scripted", "version": "1"}
            version = message["params"]["protocolVersion"]
            say(id=number, result={"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})
        elif method == "tools/list":
            edition += 1
            list_tools(behaviour, number, message["params"], edition)
        else:
            say(id=number, error={"code": -32601, "message": "unknown"})


if __name__ == "__main__":
    main()
