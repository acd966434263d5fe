"""``assay-stream topics migrate`` that kills itself at a step: ``python -m tests.chaos.dying_migration STEP``.

Steps are counted from 1: before and after each request to create a topic, and before and after each wait for one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from assay_stream.cli import main
from assay_stream.kafka import migration

DISK_FREE_BYTES = str(10**12)


def _dying(step: Callable[..., Awaitable[Any]], numbers: count[int], last: int) -> Callable[..., Awaitable[Any]]:
    def pass_one() -> None:
        if next(numbers) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    async def passed(*arguments: Any) -> Any:
        pass_one()
        result = await step(*arguments)
        pass_one()
        return result

    return passed


if __name__ == "__main__":
    numbers, last = count(1), int(sys.argv[1])
    for name in ("create_topics", "wait_for_topics"):
        setattr(migration, name, _dying(getattr(migration, name), numbers, last))
    sys.argv[1:] = ["topics", "migrate", "--disk-free-bytes", DISK_FREE_BYTES]
    main()
