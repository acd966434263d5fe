"""Drift as a peer reports it, with its codes and severities: Assay's manifest drift (P60), and MCPTrust's check.

Either side may be a recording. The earlier one may also be the peer's own baseline (a declared manifest, a lockfile),
and the later one an observed manifest. What was not recorded on both sides is not compared, and an incomplete recording
removes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from assay_stream.canonical.decode import decode_json
from assay_stream.drift.severity import MCPTRUST_LEVELS, Level
from assay_stream.limits.core import PIN_FILE_LIMITS
from assay_stream.model.fields import Subject
from assay_stream.report.drift import LISTS, read_offer
from assay_stream.schemes.assay.manifest import (
    DECLARED_SCHEMA,
    OBSERVED_SCHEMA,
    ObservedManifest,
    declare_manifest,
    observe_manifest,
    read_declared,
    read_observed,
)
from assay_stream.schemes.assay.manifest_drift import compare_manifests
from assay_stream.schemes.mcptrust.drift import McpTrustSeverity, check_result, drift
from assay_stream.schemes.mcptrust.lock import lock as lock_of
from assay_stream.schemes.mcptrust.lockfile import read_lockfile

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
