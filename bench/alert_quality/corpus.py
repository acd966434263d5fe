"""The labelled corpus: cases of benign change and of attack, as data files beside this module."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CASES = Path(__file__).resolve().parent / "cases"
CAPTURES = Path(__file__).resolve().parents[2] / "tests" / "data" / "captures"

LABELS = ("attack", "benign")

Tool = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One observer's list arriving: one session start.

    Args:
        observer: who saw the list.
        tools: the list, as received.
        is_complete: whether every page of it was seen.
    """

    observer: str
    tools: Sequence[Tool]
    is_complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case of the corpus.

    Args:
        id: unique name.
        label: ``attack`` or ``benign``.
        family: what kind of case it is.
        source: where the pattern is described, in our own words.
        arrivals: the lists in the order of arrival; the first one is what was known.
        part: the file it stands in, without its ending.
        fleet: the tools of other servers, by server.
    """

    id: str
    label: str
    family: str
    source: str
    arrivals: Sequence[Arrival]
    part: str = ""
    fleet: Mapping[str, Sequence[Tool]] = field(default_factory=dict)


class CorpusError(Exception):
    """The corpus is not as it has to be."""


def load(folder: Path = CASES) -> list[Case]:
    """Return every case, by file and line.

    Args:
        folder: where the ``*.ndjson`` files are.

    Raises:
        CorpusError: an id stands twice, a label is unknown or missing altogether, or a case has no two lists.
    """
    cases = [
        _case(json.loads(line), path.stem)
        for path in sorted(folder.glob("*.ndjson"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    check(cases)
    return cases


def check(cases: Sequence[Case]) -> None:
    """Check what every corpus must keep.

    Args:
        cases: the corpus.

    Raises:
        CorpusError: as ``load``.
    """
    ids: set[str] = set()
    for case in cases:
        if case.id in ids:
            raise CorpusError(f"the id {case.id} stands twice")
        ids.add(case.id)
        if case.label not in LABELS:
            raise CorpusError(f"{case.id}: the label must be one of {', '.join(LABELS)}")
        if len(case.arrivals) < 2:
            raise CorpusError(f"{case.id}: needs a list before and one after")
        if not case.family or not case.source:
            raise CorpusError(f"{case.id}: needs a family and a source")
    if {case.label for case in cases} != set(LABELS):
        raise CorpusError("both labels must be there")


def _case(item: Mapping[str, Any], part: str) -> Case:
    return Case(
        id=item["id"],
        label=item["label"],
        family=item["family"],
        source=item["source"],
        arrivals=tuple(_arrivals(item)),
        part=part,
        fleet=item.get("fleet", {}),
    )


def _arrivals(item: Mapping[str, Any]) -> Iterator[Arrival]:
    if "sequence" in item:
        for step in item["sequence"]:
            yield Arrival(
                observer=step["observer"],
                tools=step["tools"],
                is_complete=step.get("completeness", "complete") == "complete",
            )
        return
    captured = item.get("capture", {})
    for side in ("before", "after"):
        yield Arrival(observer="proxy-1", tools=_captured(captured[side]) if captured else item[side])


def _captured(name: str) -> Sequence[Tool]:
    tools: Sequence[Tool] = json.loads((CAPTURES / name).read_text(encoding="utf-8"))["result"]["tools"]
    return tools
