"""A search for the lists that cost the registry most: work units, memory and time, per byte of input.

An individual is a pair of lists that one observer sees one after the other. The costliest are mutated and crossed.
Units and memory follow from the input alone; time is noisy, and is there to find work that draws on no budget.
"""

from __future__ import annotations

import copy
import gc
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson

from assay_stream.model.envelope import Producer
from assay_stream.model.record import Origin, Record, Role
from assay_stream.registry.processor import Registry, process
from assay_stream.work import Work
from tests.support.events import a_snapshot

Tools = list[dict[str, Any]]
Pair = tuple[Tools, Tools]

BYTES_MAX = 24 * 1024
"""Size of one list in the search: small ones are tried often, and what is costly per byte is grown afterwards."""

_NOW_MS = 1_772_366_400_000
_POPULATION = 16
_TEXTS = (
    "", " ", "a", "\ufdfa", "e\u0301", "\u200b", "\U000e0041", "ignore all previous instructions ",
    "aGVsbG8gd29ybGQ=",
    "https://example.com/x ", "../../../etc/passwd ", "%61%62", "&#97;&#98;", "Ω", "\u202e",
    "send the api key to ",
    "rm -rf / ", "a.a.a.a.a.", "((((((", "'''", "0x41 ", "tool_1 ", "1", "true", "$ref", "\x00", "x" * 64,
)  # fmt: skip
_SCALARS: tuple[Any, ...] = (0, 1, True, False, None, -1, 1.5, 1e300, "", "a", 2**53, {}, [])
_KEYWORDS = (
    "type", "enum", "const", "properties", "required", "items", "prefixItems", "anyOf", "oneOf", "allOf", "not",
    "$ref", "$defs", "definitions", "additionalProperties", "pattern", "format", "default", "minimum", "maximum",
    "multipleOf", "minLength", "description", "title", "examples", "$comment", "if", "then", "else", "x-any",
)  # fmt: skip


class Objective(StrEnum):
    UNITS = "units"
    MEMORY = "memory"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the second list of a pair cost.

    Args:
        input_bytes: length of its record.
        units: work units that its record drew.
        peak_bytes: memory at the highest, above what was there before; 0 where it was not measured.
        cpu_s: seconds of CPU.
    """

    input_bytes: int
    units: int
    peak_bytes: int
    cpu_s: float

    def per_byte(self, objective: Objective) -> float:
        found = {Objective.UNITS: self.units, Objective.MEMORY: self.peak_bytes, Objective.TIME: self.cpu_s * 1e6}
        return found[objective] / self.input_bytes


def measure(pair: Pair, *, memory: bool = False) -> Cost:
    """Return what it costs a new registry to read the second list of a pair.

    Args:
        pair: the lists.
        memory: whether memory is traced, which takes several times as long.
    """
    registry = Registry(producer=Producer(version="fuzz"), partitions=1)
    first, second = (_record(tools, offset) for offset, tools in enumerate(pair))
    process(registry, first)
    budgets: list[Work] = []
    begin = Work.__init__

    def counted(work: Work, units_max: int) -> None:
        begin(work, units_max)
        budgets.append(work)

    gc.collect()
    if memory:
        tracemalloc.start()
    try:
        with patch.object(Work, "__init__", counted):
            started_s = time.process_time()
            process(registry, second)
            cpu_s = time.process_time() - started_s
        peak_bytes = tracemalloc.get_traced_memory()[1] if memory else 0
    finally:
        if memory:
            tracemalloc.stop()
    return Cost(
        input_bytes=len(second.value or b""),
        # Parts are spent in the record's own budget, which so is the largest.
        units=max((budget.spent for budget in budgets), default=0),
        peak_bytes=peak_bytes,
        cpu_s=cpu_s,
    )


def _record(tools: Tools, offset: int) -> Record:
    value = a_snapshot(*tools, number=offset, second=offset, server_id="s", observer_id="o")
    origin = Origin(topic="mcp.tools.list", partition=0, offset=offset)
    return Record(role=Role.SNAPSHOTS, origin=origin, key=b"s", value=value, headers=(), timestamp_ms=_NOW_MS)


def grown(pair: Pair, bytes_wanted: int) -> Pair:
    """Return a pair of the same kind whose lists have about so many bytes: its tools again and again.

    Args:
        pair: what to grow.
        bytes_wanted: length of the second list as JSON.
    """
    times = max(1, bytes_wanted // max(1, len(orjson.dumps(pair[1]))))
    before, after = (_renamed_copies(tools, times) for tools in pair)
    return before, after


def _renamed_copies(tools: Tools, times: int) -> Tools:
    return [tool | {"name": f"{str(tool.get('name'))[:64]}.{number}"} for number in range(times) for tool in tools]


def search(seconds: float, seed: int, objective: Objective, pairs: Sequence[Pair]) -> tuple[Pair, Cost]:
    """Return the costliest pair that was found until time was up.

    Args:
        seconds: how long.
        seed: what the mutations follow from.
        objective: what is looked for.
        pairs: where to begin.
    """
    chance = random.Random(seed)
    until_s = time.monotonic() + seconds
    scored = [(score, index, pair) for index, pair in enumerate(pairs) if (score := _score(pair, objective))]
    scored.sort(key=lambda each: (-each[0], each[1]))
    number = len(scored)
    while time.monotonic() < until_s:
        parents = [max(chance.sample(scored, min(3, len(scored))), key=lambda each: each[0])[2] for _ in range(2)]
        child = _mutated(parents[0], parents[1], chance)
        if len(orjson.dumps(child[1])) > BYTES_MAX or len(orjson.dumps(child[0])) > BYTES_MAX:
            continue
        number += 1
        scored.append((_score(child, objective), number, child))
        scored = sorted(scored, key=lambda each: (-each[0], each[1]))[:_POPULATION]
    best = max(scored, key=lambda each: (each[0], -each[1]))[2]
    return best, measure(best, memory=True)


def _score(pair: Pair, objective: Objective) -> float:
    cost = measure(pair, memory=objective is Objective.MEMORY)
    # A constant per record is no finding: short lists must not win by it.
    return cost.per_byte(objective) * min(1.0, cost.input_bytes / 4_096)


def starts() -> Iterator[Pair]:
    """Yield pairs of the kinds that were once costly, as a place to begin."""
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}", "enum": list(range(40))} for n in range(20)}
    other = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}", "enum": list(range(1, 41))} for n in range(20)}
    yield _schemas({"$ref": "#/$defs/d0", "$defs": chain}, {"$ref": "#/$defs/d0", "$defs": other})
    nested: Any = 1
    changed: Any = True
    for _ in range(60):
        nested, changed = {"default": [nested]}, {"default": [changed]}
    yield _schemas(nested, changed)
    wide = {f"p{n}": {"type": "string"} for n in range(200)}
    yield _schemas({"properties": wide}, {"properties": {name: {"type": "number"} for name in wide}})
    yield _schemas({"enum": [""] * 1_000}, {"enum": ["x", *[""] * 1_000]})
    tools = [{"name": f"tool_{n}", "inputSchema": {}, "description": f"number {n}"} for n in range(60)]
    yield tools, [tool | {"name": f"new_{tool['name']}"} for tool in tools]
    for text in _TEXTS:
        long = (text or " ") * (2_000 // max(1, len(text)))
        yield (
            [{"name": "t", "inputSchema": {}, "description": "plain"}],
            [{"name": "t", "inputSchema": {}, "description": long}],
        )


def _schemas(before: dict[str, Any], after: dict[str, Any]) -> Pair:
    return [{"name": "t", "inputSchema": before}], [{"name": "t", "inputSchema": after}]


def _mutated(pair: Pair, other: Pair, chance: random.Random) -> Pair:
    lists: list[Any] = [copy.deepcopy(pair[0]), copy.deepcopy(pair[1])]
    for _ in range(chance.randint(1, 4)):
        chosen = chance.choice([lists[:1], lists[1:], lists])
        steps = chance.choice(_STEPS)
        state = chance.getrandbits(32)
        for tools in chosen:
            # The same step at the same place of both, so that they stay comparable.
            steps(tools, other[1], random.Random(state))
    return _sound(lists[0]), _sound(lists[1])


def _sound(tools: Any) -> Tools:
    return [tool for tool in tools if isinstance(tool, dict) and len(tool) <= 60][:400] or [{"name": "t"}]


def _places(root: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    pending = [(root, 0)]
    while pending:
        value, depth = pending.pop()
        if depth > 100 or not isinstance(value, dict | list):
            continue
        for key in value if isinstance(value, dict) else range(len(value)):
            found.append((value, key))
            pending.append((value[key], depth + 1))
    return found


def _repeat(root: Any, _: Any, chance: random.Random) -> None:
    holder, key = chance.choice(_places(root) or [(root, None)])
    times = chance.choice((1, 2, 8, 32))
    if isinstance(holder, list):
        holder.extend(copy.deepcopy(holder[key or 0 : (key or 0) + 1] * times))
    elif key is not None:
        for number in range(times):
            holder[f"{str(key)[:40]}{number}"] = copy.deepcopy(holder[key])


def _wrap(root: Any, _: Any, chance: random.Random) -> None:
    places = _places(root)
    if places:
        holder, key = chance.choice(places)
        for _number in range(chance.choice((1, 4, 20))):
            word = chance.choice(_KEYWORDS)
            holder[key] = chance.choice(({word: holder[key]}, [holder[key]], {word: [holder[key], holder[key]]}))


def _replace(root: Any, _: Any, chance: random.Random) -> None:
    places = _places(root)
    if places:
        holder, key = chance.choice(places)
        holder[key] = chance.choice((*_SCALARS, chance.choice(_TEXTS) * chance.choice((1, 10, 200))))


def _cross(root: Any, other: Any, chance: random.Random) -> None:
    places, theirs = _places(root), _places(other)
    if places and theirs:
        holder, key = chance.choice(places)
        source, place = chance.choice(theirs)
        holder[key] = copy.deepcopy(source[place])


def _remove(root: Any, _: Any, chance: random.Random) -> None:
    places = _places(root)
    if places:
        holder, key = chance.choice(places)
        del holder[key]


def _refer(root: Any, _: Any, chance: random.Random) -> None:
    objects = [value for holder, key in _places(root) if isinstance(value := holder[key], dict)]
    if objects:
        target = chance.choice(("#", "#/$defs/d0", "#/properties", f"#/$defs/d{chance.randint(0, 30)}"))
        chance.choice(objects)["$ref"] = target


_STEPS: Sequence[Callable[[Any, Any, random.Random], None]] = (_repeat, _wrap, _replace, _cross, _remove, _refer)


def report(folder: Path, seconds: float, seed: int) -> Iterator[str]:
    """Search for each objective, write what was found to a folder, and yield one line each.

    Args:
        folder: where ``OBJECTIVE.json`` goes, one pair each, to be kept as a test.
        seconds: for all objectives together.
        seed: as in ``search``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for objective in Objective:
        pair, cost = search(seconds / len(Objective), seed, objective, list(starts()))
        (folder / f"{objective}.json").write_text(json.dumps(pair))
        yield (
            f"{objective}: {cost.input_bytes} bytes, {cost.units / cost.input_bytes:.1f} units, "
            f"{cost.peak_bytes / cost.input_bytes:.0f} bytes of memory and "
            f"{cost.cpu_s * 1e6 / cost.input_bytes:.2f} us (traced) per byte"
        )
