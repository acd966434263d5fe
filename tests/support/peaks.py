"""What units and memory a piece of work takes: in a process of its own, forked from one that holds nothing else.

Counting allocations would be exact, and several times as slow as the work itself.
"""

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import orjson

from assay_stream.detect import detect_indicators
from assay_stream.drift import compare_definitions
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Role
from assay_stream.registry.processor import Registry, process
from assay_stream.work import UNLIMITED, Work
from tests.support.events import a_snapshot, record_of
from tests.support.hostile import PAIRS

Tools = list[dict[str, Any]]

_ROOT = Path(__file__).resolve().parents[2]


class Taken(NamedTuple):
    """What a piece of work took.

    Args:
        units: of work.
        peak_mb: the most memory above what its process had before.
    """

    units: int
    peak_mb: float


def taken(kind: str, *names: str) -> dict[str, Taken]:
    """What pieces of work take, by name.

    Args:
        kind: ``comparison`` of a hostile pair of definitions, ``lists`` that once cost much,
            or ``texts`` that are searched.
        names: of such pairs, files of such lists, or names of such texts.
    """
    command = [sys.executable, "-m", "tests.support.peaks", kind, *names]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return {name: Taken(*figures) for name, figures in json.loads(done.stdout).items()}


def hostile_definitions(name: str, size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    before, after = PAIRS[name](size)
    return orjson.loads(orjson.dumps(before)), orjson.loads(orjson.dumps(after))


def units_of(before: Tools, after: Tools) -> int:
    """Return the work units that a new registry draws to read the second of two lists."""
    registry = Registry(producer=Producer(version="1"), partitions=1)
    values = [a_snapshot(*tools, number=n, second=n, observer_id="o") for n, tools in enumerate((before, after))]
    first, second = (record_of(Role.SNAPSHOTS, value, offset=offset) for offset, value in enumerate(values))
    process(registry, first)
    budgets: list[Work] = []
    begin = Work.__init__

    def counted(work: Work, units_max: int) -> None:
        begin(work, units_max)
        budgets.append(work)

    with patch.object(Work, "__init__", counted):
        process(registry, second)
    # Parts are spent in the record's own budget, which so is the largest.
    return max((budget.spent for budget in budgets), default=0)


def costly_lists(path: Path) -> list[Tools]:
    """A costly pair of lists, repeated up to half a megabyte or to as many tools as a list may have."""
    pair: list[Tools] = json.loads(path.read_text())
    times = max(1, 500_000 // len(orjson.dumps(pair[1])))
    grown = [
        [tool | {"name": f"{str(tool.get('name'))[:64]}.{n}"} for n in range(times) for tool in tools] for tools in pair
    ]
    return [tools[: DEFAULT_LIMITS.tools_max - 1] for tools in grown]


SHORT_TEXTS: dict[str, list[str]] = {
    "empty": [""] * 50_000,
    "equal": ["a"] * 50_000,
    "characters": [chr(0x4E00 + index % 20_000) for index in range(50_000)],
    "phrases": [f"do not tell the user {index}" for index in range(5_000)],
}


def deep_texts(name: str) -> dict[str, Any]:
    """A definition with so many texts, below names that make their paths long."""
    deep: dict[str, Any] = {"x": SHORT_TEXTS[name]}
    for _ in range(100):
        deep = {"\U0001f600" * 64: deep}
    return {"name": "t", **deep}


def _comparison(name: str) -> Callable[[], int]:
    before, after = hostile_definitions(name, 500_000)
    work = Work(DEFAULT_LIMITS.work_units_max)

    def compare() -> int:
        compare_definitions(before, after, work)
        return work.spent

    return compare


def _lists(name: str) -> Callable[[], int]:
    before, after = costly_lists(Path(name))
    return lambda: units_of(before, after)


def _texts(name: str) -> Callable[[], int]:
    definition = deep_texts(name)
    work = Work(UNLIMITED)

    def search() -> int:
        detect_indicators(None, definition, work=work)
        return work.spent

    return search


def begin_peak_anew() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def resident_mb(what: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:")) / 1024


_KINDS = {"comparison": _comparison, "lists": _lists, "texts": _texts}


def _measured(kind: str, name: str) -> Taken:
    work = _KINDS[kind](name)
    gc.collect()
    begin_peak_anew()
    before_mb = resident_mb("VmRSS")
    units = work()
    return Taken(units, resident_mb("VmHWM") - before_mb)


def _main(kind: str, *names: str) -> None:
    # A child for each, so that it finds no memory that another one left.
    with get_context("fork").Pool(1, maxtasksperchild=1) as children:
        print(json.dumps({name: children.apply(_measured, (kind, name)) for name in names}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
