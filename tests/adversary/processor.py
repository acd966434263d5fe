"""How fast this processor is: limits of processor time, and the rate of a flood, were chosen on another."""

import json
import time
from collections import Counter
from functools import cache

_READ_S = 0.019
"""What ``_read_s`` takes on the processor on which limits were chosen, where 50 new tools take the registry 32 ms."""


@cache
def slowness() -> float:
    """Return how many times slower this processor is than that of the limits, 1 if it is not."""
    return max(1.0, min(_read_s() for _ in range(5)) / _READ_S)


def _read_s() -> float:
    """Return what reading, counting and writing some megabytes of text takes, none of it by code of ours."""
    entry = {"description": "a tool that does this and that " * 8, "list": list(range(10))}
    text = json.dumps([{f"name_{number}": entry} for number in range(4_000)])
    started_s = time.process_time()
    found = json.loads(text)
    Counter(word for each in found for entry in each.values() for word in entry["description"].split())
    json.dumps(found, sort_keys=True)
    return time.process_time() - started_s
