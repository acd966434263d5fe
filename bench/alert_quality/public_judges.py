"""Who judges a pair of lists of the public format: each judge gives the level of every tool that it reports.

assay-stream judges by ``drift_findings``, the function behind ``assay-stream drift``, under the profile ``soc``, and a
first list by the stages of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay_stream.drift.severity import DEFAULT_PROFILE
from assay_stream.errors import InputError
from assay_stream.report.drift import drift_findings, read_offer
from assay_stream.schemes import mcptrust_lockfile as mcptrust_drift
from assay_stream.schemes.mcptrust_lockfile import lock as mcptrust_lock
from bench.alert_quality.first_sight import alerts_of_first_list
from bench.alert_quality.judges import CRITICAL, HIGH, LOW, MCPTRUST_LEVELS, MEDIUM
from bench.alert_quality.public import PublicCorpus, Tool, digests, instructions_of
from bench.alert_quality.scanner import Finding, scan

WHOLE_LIST = "*"
"""The name that stands for a list as a whole."""

INSTRUCTIONS = "* (instructions)"
"""The name that stands for a server's instructions."""

LEVELS: Mapping[str, int] = {"info": 0, "low": LOW, "medium": MEDIUM, "high": HIGH, "critical": CRITICAL}
"""What a scanner calls our levels."""

NOT_COMPARED = "not compared: "
"""What the code of a pair starts with that a judge refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge says of one tool.

    Args:
        level: the gravest level; 0 where a pair could not be judged.
        codes: what it names, sorted.
    """

    level: int
    codes: tuple[str, ...] = ()


Verdicts = Mapping[str, Verdict]
"""By the name of the tool."""

PublicJudge = Callable[[Sequence[Tool], Sequence[Tool]], Verdicts]


def assay_stream(before: Sequence[Tool], after: Sequence[Tool]) -> Verdicts:
    """Judge as ``assay-stream drift`` does.

    Args:
        before: the earlier list.
        after: the later list.
    """
    try:
        was, now = (read_offer(_recording(tools)) for tools in (before, after))
        findings = drift_findings(was, now, profile=DEFAULT_PROFILE)
    except InputError as error:
        return {WHOLE_LIST: Verdict(level=0, codes=(NOT_COMPARED + error.code,))}
    return _gravest((_name(f.name, f.kind), int(f.level), f.codes) for f in findings)


def _recording(tools: Sequence[Tool]) -> dict[str, Any]:
    recording: dict[str, Any] = {"tools": [dict(tool) for tool in tools]}
    instructions = instructions_of(tools)
    return recording if instructions is None else recording | {"instructions": instructions}


def _name(name: str, kind: str) -> str:
    return INSTRUCTIONS if kind.startswith("instructions_") else name


def assay_stream_first(before: Sequence[Tool], after: Sequence[Tool]) -> Verdicts:  # noqa: ARG001 -- a PublicJudge
    """Judge the first list of a server as the stream does.

    Args:
        before: not looked at.
        after: the list.
    """
    alerts = [(alert, alert["unmapped"]) for alert in alerts_of_first_list(after)]
    return _gravest(
        (_name(more.get("mcp_tool_name", WHOLE_LIST), more["mcp_finding_kind"]), alert["severity_id"], _codes(more))
        for alert, more in alerts
    )


def _codes(more: Mapping[str, Any]) -> list[str]:
    named = more.get("mcp_indicators")
    return named.split(",") if named else [more["mcp_finding_kind"]]


def any_change(before: Sequence[Tool], after: Sequence[Tool]) -> Verdicts:
    """Judge as a plain comparison does: whatever differs is high.

    Args:
        before: the earlier list.
        after: the later list.
    """
    names = differing(before, after)
    if not names and list(before) != list(after):
        names = {WHOLE_LIST}
    if instructions_of(before) != instructions_of(after):
        names.add(INSTRUCTIONS)
    return {name: Verdict(level=HIGH, codes=("changed",)) for name in names}


def mcptrust(before: Sequence[Tool], after: Sequence[Tool]) -> Verdicts:
    """Judge by the severity table that MCPTrust publishes, and nothing of ours.

    Args:
        before: the earlier list.
        after: the later list.
    """
    try:
        items = mcptrust_drift.drift(mcptrust_lock({"tools": list(before)}), {"tools": list(after)})
    except InputError as error:
        return {WHOLE_LIST: Verdict(level=0, codes=(NOT_COMPARED + error.code,))}
    levels = MCPTRUST_LEVELS
    return _gravest((i.identifier, levels[mcptrust_drift.PUBLISHED[i.change]], (str(i.change),)) for i in items)


def differing(before: Sequence[Tool], after: Sequence[Tool]) -> set[str]:
    """Return the names of the tools that are added, removed or changed.

    Args:
        before: the earlier list.
        after: the later list.
    """
    was, now = ({(str(tool.get("name")), *digests([tool])) for tool in tools} for tools in (before, after))
    return {name for name, _ in was ^ now}


def scanner_judge(corpus: PublicCorpus, command: str) -> tuple[str, PublicJudge]:
    """Return the scanner's version and a judge that reports what it finds in a list and did not in the one before.

    Args:
        corpus: whose lists are scanned, each distinct one once.
        command: a program that meets the protocol of ``scanner.py``.

    Raises:
        ScannerError: the scanner failed.
    """
    pairs = [*corpus.attacks, *corpus.releases, *corpus.restarts, *corpus.overt]
    every = [tools for pair in pairs for tools in (pair.before, pair.after)]
    every += [first.tools for first in corpus.benign_first_lists()]
    lists = {digests(tools): tools for tools in every if tools}
    answers = dict(zip(lists, scan(list(lists.values()), command), strict=True))
    version = next((answer.version for answer in answers.values() if answer.version), "")

    def findings(tools: Sequence[Tool]) -> Sequence[Finding]:
        return answers[digests(tools)].findings if tools else []

    def judge(before: Sequence[Tool], after: Sequence[Tool]) -> Verdicts:
        known = {(finding.tool, finding.rule) for finding in findings(before)}
        return _gravest(
            (finding.tool or WHOLE_LIST, LEVELS[finding.level], (finding.rule,))
            for finding in findings(after)
            if (finding.tool, finding.rule) not in known
        )

    return version, judge


def _gravest(found: Iterable[tuple[Any, int, Sequence[str]]]) -> dict[str, Verdict]:
    verdicts: dict[str, Verdict] = {}
    for name, level, codes in found:
        old = verdicts.get(name, Verdict(level=0))
        verdicts[name] = Verdict(level=max(level, old.level), codes=tuple(sorted({*codes, *old.codes})))
    return verdicts
