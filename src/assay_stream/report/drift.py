"""Drift between two recordings of what a server offers: as findings, for people and programs, and as peers report it.

1. What was not recorded on both sides is not compared: a recording without prompts says nothing about prompts. Held
   against a recording without any item, all of the later one is new: that is how a server's first list is judged.
2. An incomplete recording removes nothing. A single Tool object is complete only against another one.
3. What a profile does not look at is left out: the table of a peer finds what the peer finds.

In a peer's report, the earlier side may also be the peer's own baseline (a declared manifest, a lockfile), and the
later one an observed manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from itertools import chain
from typing import Any
from urllib.parse import quote

import orjson

from assay_stream import __version__
from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import canonicalize, jcs_digest
from assay_stream.detect import (
    CUT_SHORT,
    NO_TOOLS,
    Indicator,
    Siblings,
    ToolNames,
    detect_indicators,
    level_beside,
    rules_shown,
)
from assay_stream.drift import CODES, Change, ItemDrift, compare_lists
from assay_stream.drift.definition import differing_fields
from assay_stream.drift.severity import MCPTRUST_LEVELS, Level, SeverityProfile, assess, covers
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, PIN_FILE_LIMITS
from assay_stream.model.fields import Subject, as_item
from assay_stream.model.kinds import KINDS, RELEASE_KINDS, Kind
from assay_stream.schemes.assay_manifest import (
    DECLARED_SCHEMA,
    OBSERVED_SCHEMA,
    ObservedManifest,
    action_class,
    compare_manifests,
    declare_manifest,
    observe_manifest,
    read_declared,
    read_observed,
)
from assay_stream.schemes.handshake_contract import contract, contract_drift
from assay_stream.schemes.mcptrust_hashes import RISK_LEVELS, risk_level
from assay_stream.schemes.mcptrust_lockfile import McpTrustSeverity, check_result, drift, lock as lock_of, read_lockfile
from assay_stream.text.escaping import json_text, sarif_text, visible
from assay_stream.work import Work, WorkExhaustedError

Item = Mapping[str, Any]

LISTS = {
    Subject.TOOL: "tools",
    Subject.PROMPT: "prompts",
    Subject.TEMPLATE: "resourceTemplates",
    Subject.INSTRUCTIONS: "instructions",
}

_OF_A_LIST = (Kind.LIST_CACHED_LONG, Kind.ANALYSIS_CUT_SHORT)
KIND_TITLES: Mapping[str, str] = {kind.value: KINDS[kind].title for kind in (*RELEASE_KINDS, *_OF_A_LIST)} | {
    # A report also says where it fell, ...
    "risk_level_changed": "MCPTrust's risk level of a tool changed",
    # ... of prompts and templates too, ...
    "definition_ambiguous": "A list has one name more than once, with different definitions",
    # ... and that a contract is gone, or has an older version.
    "contract_violation": "A tool broke its Handshake contract",
}
"""The kinds of finding in a report, and their titles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLists:
    """The recorded lists of a server, whether they are complete, and whether it is a single Tool object.

    Args:
        ttl_ms: how long clients may cache them, 0 if not stated.
    """

    lists: Mapping[Subject, list[dict[str, Any]]]
    complete: bool
    is_single: bool = False
    ttl_ms: int = 0

    @property
    def is_cached_long(self) -> bool:
        return self.ttl_ms > DEFAULT_LIMITS.list_ttl_ms_max


NOTHING = RecordedLists(lists={}, complete=True)
"""The recording of a server that nobody had listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFinding:
    """One finding of a report.

    Args:
        kind: a key of ``KIND_TITLES``.
        codes: codes of what changed, and ids of the rules for what new text brings; sorted, without duplicates.
        fields: top-level fields that differ, sorted.
    """

    kind: str
    name: str
    level: Level
    codes: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    renamed_to: str | None = None

    def as_json(self) -> dict[str, Any]:
        finding: dict[str, Any] = {"kind": self.kind, "tool": self.name, "severity": str(self.level)}
        finding |= {"codes": list(self.codes), "fields": list(self.fields)}
        return finding if self.renamed_to is None else finding | {"renamed_to": self.renamed_to}


def read_offer(content: Any) -> RecordedLists:
    """Parse a recording.

    Args:
        content: a Tool object, a list result, the JSON-RPC response around one, a snapshot event, or a manifest
            ``{"tools": [...], "prompts": [...], "resourceTemplates": [...], "instructions": "..."}``.

    Raises:
        InputError: ``not_a_tool``, ``wrong_type``, ``too_long`` or ``too_many_tools``.
    """
    if not isinstance(content, dict):
        raise InputError("not_a_tool", "give a Tool object, a list result, a snapshot or a manifest", path="$")
    for name in ("result", "data"):
        inner = content.get(name)
        if isinstance(inner, dict) and (name == "result" or "tools" in inner):
            return _read_lists(inner, f"$.{name}")
    return _read_lists(content, "$")


def _read_lists(content: dict[str, Any], path: str) -> RecordedLists:
    lists = {}
    for subject, name in LISTS.items():
        if name in content:
            lists[subject] = _read_items(subject, content[name], f"{path}.{name}")
    if not lists or (lists.keys() == {Subject.INSTRUCTIONS} and "name" in content):
        if not isinstance(content.get("name"), str):
            message = "there is neither a list of tools nor a Tool object with its name"
            raise InputError("not_a_tool", message, path=path)
        return RecordedLists(lists={Subject.TOOL: [content]}, complete=False, is_single=True)
    # A cursor says that there are more pages, also an empty one.
    complete = content.get("nextCursor") is None and content.get("completeness", "complete") == "complete"
    ttl_ms = content.get("ttlMs", content.get("ttl_ms"))
    if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int):
        ttl_ms = 0
    return RecordedLists(lists=lists, complete=complete, ttl_ms=ttl_ms)


def _read_items(subject: Subject, value: Any, path: str) -> list[dict[str, Any]]:
    if subject is Subject.INSTRUCTIONS:
        if value is not None and not isinstance(value, str):
            raise InputError("wrong_type", "must be a string", path=path)
        if len(value or "") > DEFAULT_LIMITS.instructions_chars_max:
            message = f"instructions may have {DEFAULT_LIMITS.instructions_chars_max} characters"
            raise InputError("too_long", message, path=path)
        return as_item(value or "")
    if not isinstance(value, list):
        raise InputError("wrong_type", "must be a list", path=path)
    if len(value) > DEFAULT_LIMITS.tools_max:
        raise InputError("too_many_tools", f"{DEFAULT_LIMITS.tools_max} are allowed in one list", path=path)
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise InputError("not_a_tool", "must be a JSON object", path=f"{path}[{index}]")
    return value


def drift_findings(
    before: RecordedLists, after: RecordedLists, *, profile: SeverityProfile, known: Collection[str] = ()
) -> list[DriftFinding]:
    """Return the findings: tools, prompts, templates, then instructions, each ordered by name and kind.

    Raises:
        InputError: as ``compare_lists``.
    """
    complete = after.complete or (before.is_single and after.is_single)
    found: list[DriftFinding] = []
    judged = partial(_judged, profile)
    # One budget for all lists, as one record of a stream has.
    work = Work(DEFAULT_LIMITS.work_units_max)
    is_first = not any(before.lists.values())
    for subject in Subject:
        if subject in after.lists and (is_first or subject in before.lists):
            was, now = before.lists.get(subject, []), after.lists[subject]
            try:
                drifts = compare_lists(was, now, subject=subject, complete=complete, work=work)
            except InputError as error:
                path = f"$.{LISTS[subject]}{error.path.removeprefix('$')}"
                raise InputError(error.code, error.message, path=path) from None
            # Prompts, templates and instructions may speak of everything that the server offers.
            names = _names(now if subject is Subject.TOOL else chain(*after.lists.values()), work)
            siblings = Siblings(now if subject is Subject.TOOL else ())
            shown = cache(partial(_rules_shown, was if subject is Subject.TOOL else (), work))
            for drift in drifts:
                if not known or drift.after is None or str(jcs_digest(dict(drift.after))) not in known:
                    found.extend(_findings(judged, drift, names, siblings, shown, work))
    if after.is_cached_long and not before.is_cached_long:
        found.extend(judged(ItemDrift("list_cached_long", "*")))
    if work.is_exhausted:
        found.extend(judged(ItemDrift("analysis_cut_short", "*")))
    return found


def _names(items: Iterable[Item], work: Work) -> ToolNames:
    try:
        return ToolNames({item["name"] for item in items if isinstance(item.get("name"), str)}, work)
    except WorkExhaustedError:
        return NO_TOOLS  # Nothing more is searched either, and the signs say so.


def _rules_shown(items: Sequence[Item], work: Work) -> frozenset[str]:
    with work.quarter() as part:
        try:
            return rules_shown(items, _names(items, part), part)
        except WorkExhaustedError:
            return frozenset()


def _findings(
    judged: Callable[..., Iterator[DriftFinding]],
    drift: ItemDrift,
    names: ToolNames,
    siblings: Siblings,
    shown: Callable[[], frozenset[str]],
    work: Work,
) -> Iterator[DriftFinding]:
    before, after = drift.before, drift.after
    signs: Sequence[Indicator] = ()
    if after is not None:
        try:
            signs = detect_indicators(before, after, tool_names=names, work=work)
            signs = [*signs, *siblings.imitated(before, after, work)]
        except WorkExhaustedError:
            signs = (*signs, CUT_SHORT)
        if any(sign.level == Level.MEDIUM for sign in signs):
            signs = [sign._replace(level=level_beside(shown(), sign.rule, sign.level)) for sign in signs]
    fields = () if before is None or after is None else tuple(differing_fields(before, after))
    yield from judged(drift, fields=fields, signs=signs)
    if before is None or after is None or not drift.kind.startswith("tool_"):
        return
    risk = _risk_change(before, after) if drift.kind == "tool_changed" else None
    if risk is not None:
        yield from judged(drift._replace(kind="risk_level_changed", changes=(risk,)), fields=("description",))
    broken = tuple(contract_drift(contract(before), contract(after)))
    if broken:
        yield from judged(drift._replace(kind="contract_violation", changes=()), fields=("_meta",), codes=broken)


def _judged(
    profile: SeverityProfile,
    drift: ItemDrift,
    *,
    fields: tuple[str, ...] = (),
    signs: Sequence[Indicator] = (),
    codes: Sequence[str] = (),
) -> Iterator[DriftFinding]:
    """Yield the finding of a drift with its level, unless the profile does not look at such findings."""
    if not covers(profile, drift.kind, drift.changes):
        return
    privileged = any(name and action_class(name) is not None for name in (drift.name, drift.renamed_to))
    yield DriftFinding(
        kind=drift.kind,
        name=drift.name,
        level=assess(profile, drift.kind, drift.changes, [sign.level for sign in signs], privileged=privileged),
        codes=tuple(sorted({*codes, *(change.code for change in drift.changes), *(sign.rule for sign in signs)})),
        fields=fields,
        changes=drift.changes,
        renamed_to=drift.renamed_to,
    )


def _risk_change(before: Item, after: Item) -> Change | None:
    try:
        was, now = risk_level(before), risk_level(after)
    except InputError:
        return None  # MCPTrust reads no such tool.
    if was == now:
        return None
    raised = RISK_LEVELS.index(was) < RISK_LEVELS.index(now)
    code = "risk_level_raised" if raised else "risk_level_lowered"
    return Change(code, "$", was, now, CODES[code].direction)


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
    for mark, value in (("-", change.before), ("+", change.after)):
        if value is not None:
            yield f"      {mark} {visible(value if isinstance(value, str) else canonicalize(value).decode())}"


def as_sarif(findings: Sequence[DriftFinding], *, after_uri: str) -> str:
    """Return the findings as a SARIF 2.1.0 log with one run."""
    uri = quote(after_uri, safe="/:.-_~", errors="surrogateescape")
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
    subject = "" if finding.kind in _OF_A_LIST else f": {name}{new_name}"
    identity = canonicalize([finding.as_json(), [list(change) for change in finding.changes]])
    return {
        "ruleId": finding.kind,
        "ruleIndex": rule_index,
        "level": _SARIF_LEVELS[finding.level],
        "message": {"text": sarif_text(f"{KIND_TITLES[finding.kind]}{subject}{'. ' + words if words else ''}")},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}},
                "logicalLocations": [{"name": name, "fullyQualifiedName": name}],
            }
        ],
        "partialFingerprints": {"assayStreamDrift/v1": sha256(identity).hexdigest()},
        "properties": {key: value for key, value in finding.as_json().items() if key != "kind"},
    }


Report = tuple[dict[str, Any], bool]
"""What to print, and whether something in it is at least as severe as was asked for, or could not be told."""


def p60_report(before: bytes, after: bytes, baseline: str, fail_on: Level) -> Report:
    """Compare the tools of two lists as Assay does.

    Args:
        baseline: name of the earlier file.

    Raises:
        InputError: as ``decode_json``, ``read_offer``, ``read_declared``, ``read_observed`` and ``declare_manifest``.
    """
    was, now = decode_json(before), decode_json(after)
    declared = read_declared(was) if _schema(was) == DECLARED_SCHEMA else declare_manifest(_observed(was, "-"))
    observed = read_observed(now) if _schema(now) == OBSERVED_SCHEMA else _observed(now, declared.server_id)
    found = compare_manifests(declared, observed)
    findings = [
        {"name": each.tool_name, "reason_code": each.reason_code, "severity": each.severity} for each in found.findings
    ]
    fails = any(Level.parse(each.severity) >= fail_on for each in found.findings) or bool(found.inconclusive)
    return {"baseline": baseline, "findings": findings, "inconclusive": list(found.inconclusive)}, fails


def _schema(content: Any) -> Any:
    return content.get("schema") if isinstance(content, dict) else None


def _observed(content: Any, server_id: str) -> ObservedManifest:
    offer = read_offer(content)
    return observe_manifest(server_id, offer.lists.get(Subject.TOOL), "complete" if offer.complete else "partial")


def mcptrust_report(before: bytes, after: bytes, baseline: str, fail_on: Level) -> Report:
    """Compare two states of a server's lists as a v3 check of MCPTrust does.

    Args:
        baseline: name of the earlier file.

    Raises:
        InputError: as ``decode_json``, ``read_offer``, ``read_lockfile`` and ``lock``.
    """
    now = read_offer(decode_json(after))
    content = decode_json(before, limits=PIN_FILE_LIMITS)
    if isinstance(content, dict) and content.keys() & {"lockFileVersion", "server_command"}:
        lockfile = read_lockfile(before)
        server, locked, recorded = lockfile.server, lockfile.lock, set(now.lists)
    else:
        was = read_offer(content)
        recorded = was.lists.keys() & now.lists.keys()
        server, locked = "", lock_of({LISTS[subject]: was.lists[subject] for subject in recorded})
    locked = replace(
        locked,
        tools=locked.tools if Subject.TOOL in recorded else {},
        prompts=locked.prompts if Subject.PROMPT in recorded else None,
        templates=locked.templates if Subject.TEMPLATE in recorded else None,
    )
    items = drift(locked, {LISTS[subject]: now.lists[subject] for subject in recorded})
    result = check_result(
        [each for each in items if now.complete or not each.type.endswith("_REMOVED")],
        server=server,
        lockfile=baseline,
        fail_on=next(each for each in McpTrustSeverity if MCPTRUST_LEVELS[each] >= fail_on),
    )
    return result, result["outcome"] == "FAIL"


PEERS: Mapping[str, Callable[[bytes, bytes, str, Level], Report]] = {"p60": p60_report, "mcptrust": mcptrust_report}
"""What reports as each peer does."""
