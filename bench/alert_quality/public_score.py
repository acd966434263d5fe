"""The figures of one judge on a public corpus: recall on attacks, noise on releases, first lists and restarts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from assay_stream.drift import CODES
from bench.alert_quality.judges import HIGH, MEDIUM
from bench.alert_quality.public import FirstList, Pair, PublicCorpus
from bench.alert_quality.public_judges import (
    INSTRUCTIONS,
    NOT_COMPARED,
    WHOLE_LIST,
    PublicJudge,
    Verdict,
    Verdicts,
    differing,
)

_Z = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many of so many.

    Args:
        found: how many.
        of: of how many.
    """

    found: int
    of: int

    @property
    def value(self) -> float:
        """The share; 0 of nothing."""
        return self.found / self.of if self.of else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval."""
        if not self.of:
            return 0.0, 1.0
        share, spread = self.value, _Z * _Z / self.of
        centre = share + spread / 2
        reach = _Z * math.sqrt(share * (1 - share) / self.of + spread / (4 * self.of))
        return max(0.0, (centre - reach) / (1 + spread)), min(1.0, (centre + reach) / (1 + spread))


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """An attack below high.

    Args:
        id: of the case.
        source: who wrote it.
        technique: what it does.
        cause: what was seen of it instead.
    """

    id: str
    source: str
    technique: str
    cause: str


@dataclass(slots=True, kw_only=True)
class Figures:
    """What one judge reaches.

    Args:
        attacks: attacks at high or above.
        attacks_medium: attacks at medium or above.
        by_source: attacks at high, by source.
        by_technique: attacks at high, by technique.
        overt: openly offensive tools at high.
        releases: benign releases with anything at high.
        releases_medium: the same at medium.
        changed_tools: changed tools of benign releases at high.
        first_poisoned: poisoned tools at high in a first list.
        servers: benign servers with anything at high in a first list: lists of one server are much alike.
        servers_medium: the same at medium.
        first_benign: benign first lists with anything at high.
        first_benign_tools: tools of benign first lists at high.
        restarts: restarts with anything at high.
        restarts_medium: the same at medium.
        misses: every attack below high.
        false_alarms: tools at high of releases and first lists, by the indicators that were named.
    """

    attacks: Share
    attacks_medium: Share
    by_source: dict[str, Share]
    by_technique: dict[str, Share]
    overt: Share
    releases: Share
    releases_medium: Share
    changed_tools: Share
    first_poisoned: Share
    servers: Share
    servers_medium: Share
    first_benign: Share
    first_benign_tools: Share
    restarts: Share
    restarts_medium: Share
    misses: list[Miss] = field(default_factory=list)
    false_alarms: dict[str, list[str]] = field(default_factory=dict)

    @property
    def mean_of_sources(self) -> float:
        """The mean of the sources' shares: a large source counts no more than a small one."""
        return sum(share.value for share in self.by_source.values()) / max(len(self.by_source), 1)


def measure(corpus: PublicCorpus, judge: PublicJudge, judge_first: PublicJudge | None = None) -> Figures:
    """Return the figures of one judge.

    Args:
        corpus: what is judged.
        judge: who judges.
        judge_first: who judges first lists; without it ``judge``, beside an empty list.
    """
    judge_first = judge_first or judge
    attacks = [(pair, judge(pair.before, pair.after)) for pair in corpus.attacks]
    overt = [judge(pair.before, pair.after) for pair in corpus.overt]
    releases = [(pair, judge(pair.before, pair.after)) for pair in corpus.releases]
    restarts = [judge(pair.before, pair.after) for pair in corpus.restarts]
    poisoned = [(first, judge_first([], first.tools)) for first in corpus.poisoned_first_lists()]
    benign = [(first, judge_first([], first.tools)) for first in corpus.benign_first_lists()]
    judged = [verdicts for _, verdicts in attacks]
    return Figures(
        attacks=_reaching(judged, HIGH),
        attacks_medium=_reaching(judged, MEDIUM),
        by_source=_by((pair.source, verdicts) for pair, verdicts in attacks),
        by_technique=_by((pair.technique, verdicts) for pair, verdicts in attacks),
        overt=_reaching(overt, HIGH),
        releases=_reaching([verdicts for _, verdicts in releases], HIGH),
        releases_medium=_reaching([verdicts for _, verdicts in releases], MEDIUM),
        changed_tools=Share(
            found=sum(_tools_at_high(verdicts) for _, verdicts in releases),
            of=sum(len(differing(pair.before, pair.after)) for pair, _ in releases),
        ),
        first_poisoned=Share(found=sum(_finds(verdicts, first) for first, verdicts in poisoned), of=len(poisoned)),
        servers=_servers(benign, HIGH),
        servers_medium=_servers(benign, MEDIUM),
        first_benign=_reaching([verdicts for _, verdicts in benign], HIGH),
        first_benign_tools=Share(
            found=sum(_tools_at_high(verdicts) for _, verdicts in benign),
            of=sum(len(first.tools) for first, _ in benign),
        ),
        restarts=_reaching(restarts, HIGH),
        restarts_medium=_reaching(restarts, MEDIUM),
        misses=[_miss(pair, verdicts) for pair, verdicts in attacks if _level(verdicts) < HIGH],
        false_alarms=_false_alarms([*releases, *benign]),
    )


def _level(verdicts: Verdicts) -> int:
    return max((verdict.level for verdict in verdicts.values()), default=0)


def _tools_at_high(verdicts: Verdicts) -> int:
    return sum(verdict.level >= HIGH for name, verdict in verdicts.items() if name not in (WHOLE_LIST, INSTRUCTIONS))


def _reaching(judged: Sequence[Verdicts], level: int) -> Share:
    return Share(found=sum(_level(verdicts) >= level for verdicts in judged), of=len(judged))


def _servers(benign: Sequence[tuple[FirstList, Verdicts]], level: int) -> Share:
    return Share(
        found=len({first.source for first, verdicts in benign if _level(verdicts) >= level}),
        of=len({first.source for first, _ in benign}),
    )


def _by(judged: Iterable[tuple[str, Verdicts]]) -> dict[str, Share]:
    groups: dict[str, list[Verdicts]] = defaultdict(list)
    for name, verdicts in judged:
        groups[name].append(verdicts)
    return {name: _reaching(groups[name], HIGH) for name in sorted(groups, key=lambda name: (-len(groups[name]), name))}


def _finds(verdicts: Verdicts, first: FirstList) -> bool:
    """Whether the poisoned tool itself is at high; in a list that does not name it, any tool."""
    if any(tool.get("name") == first.tool for tool in first.tools):
        return first.tool in verdicts and verdicts[first.tool].level >= HIGH
    return _level(verdicts) >= HIGH


def _miss(pair: Pair, verdicts: Verdicts) -> Miss:
    return Miss(id=pair.id, source=pair.source, technique=pair.technique, cause=_cause(verdicts))


def _cause(verdicts: Verdicts) -> str:
    """Return what was seen of a missed attack, by the indicators: codes of the structure say nothing of a text."""
    codes = {code for verdict in verdicts.values() for code in verdict.codes}
    refused = sorted(code for code in codes if code.startswith(NOT_COMPARED))
    if refused:
        return refused[0]
    indicators = sorted({code for verdict in verdicts.values() for code in _indicators(verdict)})
    return f"below high: {', '.join(indicators)}" if indicators else "no indicator"


def _indicators(verdict: Verdict) -> list[str]:
    return [code for code in verdict.codes if code not in CODES]


def _false_alarms(judged: Sequence[tuple[Pair | FirstList, Verdicts]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for case, verdicts in judged:
        for name, verdict in verdicts.items():
            if verdict.level >= HIGH:
                found[", ".join(_indicators(verdict)) or "structure alone"].append(f"{case.id}: {name}")
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))
