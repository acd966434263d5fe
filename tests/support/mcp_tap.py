"""A program that runs ``run_tap`` and writes to a file: the tap without the command line around it.

[HIDDEN_TOOL=name] python -m tests.support.mcp_tap SERVER_ID OBSERVER_ID OUTPUT COMMAND...
"""

import asyncio
import os
import sys
from pathlib import Path

from assay_stream.observe import FileSink, Vantage, run_tap


async def main(server_id: str, observer_id: str, output: str, *command: str) -> int:
    sink = FileSink(Path(output))
    vantage = Vantage(server_id=server_id, observer_id=observer_id)
    hidden = os.environ.get("HIDDEN_TOOL")
    rule = None
    if hidden is not None:
        from tests.support.gates import blocking

        rule = blocking(hidden)
    try:
        return await run_tap(command, vantage=vantage, sink=sink, rule=rule, hide=rule is not None)
    finally:
        await sink.aclose()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
