"""Corpora in the public format: attacks and releases that nobody here wrote, as JSON files in any folder.

A file is ``{"source", "cases": [...]}``. Every case has ``id``, ``before`` and ``after`` (lists of tools). An attack
has also ``technique`` and ``tool``, the name of the poisoned tool; a release has ``before_version`` and
``after_version``. A release whose two versions are the same is a restart. ``instructions`` of a file
holds those of each version that gives any.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay_stream.canonical.digest import jcs_digest

Tool = Mapping[str, Any]

OVERT = "cisco_overt"
"""A source of tools that say openly what they do: not poison, so it is counted apart."""


class Listed(list[Tool]):
    """A list with the server's instructions beside it.

    Args:
        instructions: empty where the server gives none, ``None`` where that was not recorded.
    """

    def __init__(self, tools: Iterable[Tool], instructions: str | None) -> None:
        super().__init__(tools)
        self.instructions = instructions


def instructions_of(tools: Sequence[Tool]) -> str | None:
    """Return the instructions that were recorded with a list.

    Args:
        tools: the list.
    """
    return tools.instructions if isinstance(tools, Listed) else None


class PublicCorpusError(Exception):
    """A file is not in the public format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two lists of one server, one after the other.

    Args:
        id: unique name.
        source: who wrote it; of a release the package.
        before: the earlier list.
        after: the later list.
        technique: of an attack, what it does.
        tool: of an attack, the name of the poisoned tool.
        versions: of a release, the two versions.
    """

    id: str
    source: str
    before: Sequence[Tool]
    after: Sequence[Tool]
    technique: str = ""
    tool: str = ""
    versions: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstList:
    """A list that is the first one seen of a server.

    Args:
        id: unique name.
        source: who wrote it.
        tools: the list.
        tool: the name of the poisoned tool, empty in a benign list.
    """

    id: str
    source: str
    tools: Sequence[Tool]
    tool: str = ""


@dataclass(slots=True, kw_only=True)
class PublicCorpus:
    """Everything that the folders hold.

    Args:
        attacks: poisoned definitions.
        releases: consecutive releases of benign servers.
        restarts: one release listed twice.
        overt: tools that are openly offensive.
        first: the oldest benign lists, by package and version.
    """

    attacks: list[Pair] = field(default_factory=list)
    releases: list[Pair] = field(default_factory=list)
    restarts: list[Pair] = field(default_factory=list)
    overt: list[Pair] = field(default_factory=list)
    first: dict[tuple[str, str], Sequence[Tool]] = field(default_factory=dict)

    def poisoned_first_lists(self) -> list[FirstList]:
        """Return every attack's later list as the first one seen."""
        return [FirstList(id=pair.id, source=pair.source, tools=pair.after, tool=pair.tool) for pair in self.attacks]

    def benign_first_lists(self) -> list[FirstList]:
        """Return every distinct list of every release as the first one seen."""
        lists = dict(self.first)
        for pair in self.releases:
            lists |= {(pair.source, pair.versions[0]): pair.before, (pair.source, pair.versions[1]): pair.after}
        distinct = {
            (source, digests(tools), instructions_of(tools)): FirstList(
                id=f"{source} {version}", source=source, tools=tools
            )
            for (source, version), tools in lists.items()
        }
        return list(distinct.values())


def digests(tools: Sequence[Tool]) -> tuple[str, ...]:
    """Return the digest of each definition.

    Args:
        tools: a list.
    """
    return tuple(str(jcs_digest(dict(tool))) for tool in tools)


def read_public(folders: Iterable[Path]) -> PublicCorpus:
    """Return the cases of every ``*.json`` file below the folders; a case of an id that was read before is left out.

    Args:
        folders: where to look.

    Raises:
        PublicCorpusError: a folder has no file, or a file is not in the format.
    """
    corpus = PublicCorpus()
    seen: set[tuple[str, bool]] = set()
    for folder in folders:
        paths = sorted(folder.rglob("*.json"))
        if not paths:
            raise PublicCorpusError(f"{folder}: no *.json file below it")
        for path in paths:
            _read(path, corpus, seen)
    return corpus


def _read(path: Path, corpus: PublicCorpus, seen: set[tuple[str, bool]]) -> None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        pairs = [_pair(case, content["source"], content.get("instructions")) for case in content["cases"]]
    except (ValueError, KeyError, TypeError) as error:
        raise PublicCorpusError(f"{path}: {type(error).__name__} {error}: see the format in public.py") from error
    if "first" in content:
        first = content["first"]
        tools = _listed(first["tools"], first["version"], content.get("instructions"))
        corpus.first.setdefault((content["source"], first["version"]), tools)
    for pair in pairs:
        if (pair.id, bool(pair.technique)) not in seen:
            seen.add((pair.id, bool(pair.technique)))
            _place(pair, corpus)


def _place(pair: Pair, corpus: PublicCorpus) -> None:
    if pair.source == OVERT:
        corpus.overt.append(pair)
    elif pair.technique:
        corpus.attacks.append(pair)
    elif pair.versions[0] == pair.versions[1]:
        corpus.restarts.append(pair)
    else:
        corpus.releases.append(pair)


def _listed(tools: Sequence[Tool], version: str, instructions: Mapping[str, str] | None) -> Sequence[Tool]:
    return tools if instructions is None else Listed(tools, instructions.get(version, ""))


def _pair(case: Mapping[str, Any], source: str, instructions: Mapping[str, str] | None) -> Pair:
    if "technique" in case:
        return Pair(
            id=case["id"],
            source=source,
            before=case["before"],
            after=case["after"],
            technique=case["technique"],
            tool=case["tool"],
        )
    versions = case["before_version"], case["after_version"]
    return Pair(
        id=case["id"],
        source=source,
        before=_listed(case["before"], versions[0], instructions),
        after=_listed(case["after"], versions[1], instructions),
        versions=versions,
    )
