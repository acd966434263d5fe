"""Drift findings for a person, for a program, and for code scanning (SARIF 2.1.0)."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import orjson

from assay_stream import __version__
from assay_stream.canonical.digest import canonicalize
from assay_stream.drift import CODES, Change
from assay_stream.drift.severity import Level
from assay_stream.report.drift import KIND_TITLES, DriftFinding
from assay_stream.text.escaping import json_text, visible

_SARIF_LEVELS = {
    Level.CRITICAL: "error",
    Level.HIGH: "error",
    Level.MEDIUM: "warning",
    Level.LOW: "note",
    Level.INFORMATIONAL: "note",
}


def as_json(findings: Sequence[DriftFinding]) -> str:
    return json_text(orjson.dumps({"findings": [finding.as_json() for finding in findings]}).decode())


def as_lines(findings: Sequence[DriftFinding]) -> Iterator[tuple[Level | None, str]]:
    """Yield text lines, the first of each finding with its level."""
    for finding in findings:
        new_name = f" -> {visible(finding.renamed_to)}" if finding.renamed_to is not None else ""
        yield finding.level, f"{finding.level!s:13}  {finding.kind:20}  {visible(finding.name)}{new_name}"
        shown = {change.code for change in finding.changes}
        for code in finding.codes:
            if code not in shown:
                yield None, f"    {code}"
        for change in finding.changes:
            yield from ((None, line) for line in _change_lines(change))
    count = len(findings)
    yield None, f"{count} finding{'s' if count > 1 else ''}" if count else "no drift found"


def _change_lines(change: Change) -> Iterator[str]:
    way = "" if change.direction == "neutral" else f", {change.direction}"
    yield f"    {visible(change.path)}: {CODES[change.code].title} ({change.code}{way})"
    before, after = _shown(change.before), _shown(change.after)
    for mark, side, value in (("-", before, change.before), ("+", after, change.after)):
        if value is not None:
            yield f"      {mark} {side}"


def _shown(value: Any) -> str:
    return visible(value if isinstance(value, str) else canonicalize(value).decode())


def as_sarif(findings: Sequence[DriftFinding], *, after_uri: str) -> str:
    """Return the findings as a SARIF 2.1.0 log with one run."""
    uri = quote(after_uri, safe="/:.-_~")
    kinds = list(KIND_TITLES)
    driver = {
        "name": "assay-stream",
        "semanticVersion": __version__,
        "rules": [
            {"id": kind, "name": kind.title().replace("_", ""), "shortDescription": {"text": f"{title}."}}
            for kind, title in KIND_TITLES.items()
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(finding, kinds.index(finding.kind), uri) for finding in findings],
    }
    log = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json_text(orjson.dumps(log, option=orjson.OPT_INDENT_2).decode())


def _sarif_result(finding: DriftFinding, rule_index: int, uri: str) -> dict[str, Any]:
    name = visible(finding.name)
    words = "; ".join(CODES[code].title if code in CODES else code for code in finding.codes)
    new_name = f" -> {visible(finding.renamed_to)}" if finding.renamed_to is not None else ""
    identity = canonicalize([finding.as_json(), [list(change) for change in finding.changes]])
    return {
        "ruleId": finding.kind,
        "ruleIndex": rule_index,
        "level": _SARIF_LEVELS[finding.level],
        "message": {"text": f"{KIND_TITLES[finding.kind]}: {name}{new_name}{'. ' + words if words else ''}"},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}},
                "logicalLocations": [{"name": name, "fullyQualifiedName": name}],
            }
        ],
        "partialFingerprints": {"assayStreamDrift/v1": sha256(identity).hexdigest()},
        "properties": {key: value for key, value in finding.as_json().items() if key != "kind"},
    }
