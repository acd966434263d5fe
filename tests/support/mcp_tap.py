"""A program that runs ``run_tap`` and writes to a file: the tap without the command line around it.

python tests/support/mcp_tap.py SERVER_ID OBSERVER_ID OUTPUT COMMAND...
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from assay_stream.observe import FileSink, Vantage, run_tap


async def main(server_id: str, observer_id: str, output: str, *command: str) -> int:
    """Run the tap and return the server's exit code."""
    sink = FileSink(Path(output))
    try:
        return await run_tap(command, vantage=Vantage(server_id=server_id, observer_id=observer_id), sink=sink)
    finally:
        await sink.aclose()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
