"""A real MCP server (stdio) that serves the lists of a file in turn: one ``tools/list`` result on each line.

python -m tests.support.scripted_server FILE
"""

import json
import sys
from pathlib import Path
from typing import Any

_HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": False}},
    "serverInfo": {"name": "scripted", "version": "1"},
}


def main() -> None:
    """Answer requests until there are no more; the last list is served again and again."""
    results = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    served = 0
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if "id" not in request:
            continue
        answers = {"initialize": json.dumps(_HELLO), "tools/call": '{"content":[]}'}
        if request["method"] == "tools/list":
            answers["tools/list"] = results[min(served, len(results) - 1)]
            served += 1
        result = answers.get(request["method"], "{}")
        print(f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},"result":{result}}}', flush=True)


if __name__ == "__main__":
    main()
