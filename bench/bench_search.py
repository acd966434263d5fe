"""What searching the text of new definitions costs, beside SHA-256 of the same bytes.

python -m bench.bench_search [--rounds N]
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count as numbers, islice, repeat
from typing import Any

import orjson

from assay_stream.detect import ToolNames, detect_indicators
from assay_stream.detect.page import forget
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import UNLIMITED, Work
from bench.bench_core import captured_tools
from tests.support.hostile_texts import WORST, repeated

TOOL_BYTES = 1_000
HOSTILE_BYTES = 32_000

Tool = Mapping[str, Any]

_WORD_IN_TEXT = re.compile(r"(?<= )[a-z]{5}(?= )")
"""One word in ten."""


def tools_of_a_kilobyte(count: int) -> list[dict[str, Any]]:
    """Real tools under names of their own, each filled up with words of others to about a kilobyte.

    Args:
        count: how many.
    """
    real = captured_tools()["tools"]
    tools = []
    for index in range(count):
        tool = {**real[index % len(real)], "name": f"{real[index % len(real)]['name']}_{index}"}
        words = " ".join(other["description"] for other in real[index % 7 :])
        tools.append({**tool, "title": words[: max(0, TOOL_BYTES - len(orjson.dumps(tool)))]})
    return tools


def reworded(tools: Sequence[Tool], number: int) -> list[Tool]:
    """Return tools with other words in every sentence, so that no text and no sentence of them was read before.

    Args:
        tools: what is reworded.
        number: which wording.
    """
    ending = "".join(chr(ord("a") + int(digit)) for digit in str(number))
    texts = (_WORD_IN_TEXT.sub(rf"\g<0>{ending}", orjson.dumps(tool).decode()) for tool in tools)
    return [orjson.loads(text) for text in texts]


def search(tools: Sequence[Tool]) -> int:
    """Search a list of new tools, and return the units that it took.

    Args:
        tools: the list.
    """
    work = Work(UNLIMITED)
    names = ToolNames([str(tool["name"]) for tool in tools], work)
    for tool in tools:
        detect_indicators(None, tool, tool_names=names, work=work)
    return work.spent


def main() -> None:
    """Measure, and print the cost of honest lists and of each class of hostile text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    gc.set_threshold(50_000, 50, 100)  # as the worker does
    for count in (1, 50, 2_000):
        tools = tools_of_a_kilobyte(count)
        size = len(orjson.dumps(tools))
        unread: Iterator[Sequence[Tool]] = (reworded(tools, number) for number in numbers())
        for lists, how in ((unread, "never read before"), (repeat(tools), "in texts that were read before")):
            us, sha_us, units = _measured(lists, rounds)
            print(
                f"{count} new tools {how}, {size / 1_000:.0f} kB: {us / count:.0f} us a tool,"
                f" {us / 1_000:.1f} ms in all, {us * 1_000 / units:.0f} ns a unit, {us / sha_us:.0f} times SHA-256"
            )
    print(f"hostile texts of {HOSTILE_BYTES / 1_000:.0f} kB, as far as one definition's share of work goes")
    for name, part in WORST.items():
        tool = {"name": "t", "description": repeated(part, HOSTILE_BYTES)}
        us, sha_us, units = _measured(_forgotten([tool]), rounds)
        cut = ", cut short" if units >= DEFAULT_LIMITS.definition_work_units_max else ""
        print(
            f"  {name}: {us * 1_000 / HOSTILE_BYTES:.0f} us a kB, {us * 1_000 / units:.0f} ns a unit,"
            f" {us / sha_us:.0f} times SHA-256{cut}"
        )


def _forgotten(tools: Sequence[Tool]) -> Iterator[Sequence[Tool]]:
    """Yield a list again and again, each time as if none of its texts had been read before."""
    while True:
        forget()
        yield tools


def _measured(lists: Iterator[Sequence[Tool]], rounds: int) -> tuple[float, float, int]:
    """Take the search and the hash in turn, so that what else the machine does falls on both; keep the best."""
    units = search(next(lists))
    times = []
    for tools in islice(lists, rounds):
        content = orjson.dumps(tools)
        times.append((_us(partial(search, tools)), _us(partial(hashlib.sha256, content))))
    us, sha_us = (min(column) for column in zip(*times, strict=True))
    return us, sha_us, units


def _us(run: Callable[[], object]) -> float:
    started_ns = time.process_time_ns()
    run()
    return (time.process_time_ns() - started_ns) / 1_000


if __name__ == "__main__":
    main()
