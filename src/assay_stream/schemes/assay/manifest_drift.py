"""Assay manifest drift (P60): an observed manifest held against a declared one.

Drift is a difference between digests. It does not mean malice, and its absence does not mean safety. Rules, in order:

1. A baseline whose digest does not match its own tools, or that lists a tool twice, is not compared.
2. Neither is a baseline of another server or projection, nor a list that is unobserved or ambiguous.
3. Additions and changes are reported regardless of completeness, removals only for a complete list; otherwise the
   result notes once that removals could not be determined.
4. A change of a tool that either side calls privileged is a privileged change.
5. Where both sides carry field digests, each field that differs gets a finding of its own.

Source: Rul1an/assay, docs/reference/mcp-manifest-drift.md, sections on coverage and granular drift. Field findings are
the second step (P60d-v2) of that plan.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from assay_stream.schemes.assay.manifest import (
    MANIFEST_FIELDS,
    DeclaredManifest,
    ManifestTool,
    ObservedManifest,
    digest_of_entries,
    has_duplicates,
)

ManifestSeverity = Literal["low", "medium", "high"]

SEVERITIES: Mapping[str, tuple[ManifestSeverity, ManifestSeverity]] = {
    "tool_added": ("medium", "high"),
    "tool_removed": ("medium", "high"),
    "tool_changed": ("medium", "high"),
    "description_changed": ("medium", "high"),
    "input_schema_changed": ("medium", "high"),
    "output_schema_changed": ("low", "medium"),
    "annotations_changed": ("low", "medium"),
}
"""What changed, and the severity for an unclassified and for a privileged tool (profile ``assay-p60``).

Of the first three Assay says only that privileged is high and the other lower: medium, so that a finding about a
tool is never below those about its fields.
"""

REASON_CODES: Mapping[str, tuple[str, str]] = {
    "tool_added": ("mcp_tool_added", "mcp_new_privileged_tool"),
    "tool_removed": ("mcp_tool_removed", "mcp_privileged_tool_removed"),
    "tool_changed": ("mcp_tool_changed", "mcp_privileged_tool_changed"),
    **{f"{field}_changed": (f"mcp_tool_{field}_changed",) * 2 for field in MANIFEST_FIELDS},
}
"""What changed, and the reason code for an unclassified and for a privileged tool."""

_PARTIAL_OBSERVATION = "inconclusive_manifest_partial_observation"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFinding:
    """One difference in one tool.

    Args:
        change: what changed, a key of ``SEVERITIES``.
        privileged: whether either side calls the tool privileged.
    """

    tool_name: str
    change: str
    privileged: bool

    @property
    def reason_code(self) -> str:
        """Assay's stable code for the finding."""
        return REASON_CODES[self.change][self.privileged]

    @property
    def severity(self) -> ManifestSeverity:
        return SEVERITIES[self.change][self.privileged]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestDrift:
    """Result of a comparison.

    Args:
        findings: the differences, by tool name; each one asks for a review.
        inconclusive: codes for what could not be determined. If there are any, the result is never "no drift".
    """

    findings: tuple[ManifestFinding, ...] = ()
    inconclusive: tuple[str, ...] = ()


def compare_manifests(declared: DeclaredManifest, observed: ObservedManifest) -> ManifestDrift:
    obstacle = _obstacle(declared, observed)
    if obstacle is not None:
        return ManifestDrift(inconclusive=(obstacle,))
    before = {tool.name: tool for tool in declared.tools}
    after = {tool.name: tool for tool in observed.tools}
    complete = observed.completeness == "complete"
    findings: list[ManifestFinding] = []
    for name in sorted(before.keys() | after.keys()):
        findings.extend(_differences(name, before.get(name), after.get(name), complete=complete))
    untold = not complete and not before.keys() <= after.keys()
    return ManifestDrift(findings=tuple(findings), inconclusive=(_PARTIAL_OBSERVATION,) if untold else ())


def _obstacle(declared: DeclaredManifest, observed: ObservedManifest) -> str | None:
    obstacles = (
        (
            digest_of_entries((tool.name, tool.digest) for tool in declared.tools) != declared.digest,
            "declared_manifest_digest_mismatch",
        ),
        (has_duplicates(declared.tools), "declared_mcp_manifest_ambiguous"),
        (observed.server_id != declared.server_id, "mcp_manifest_server_mismatch"),
        (observed.canonicalization != declared.canonicalization, "mcp_manifest_canonicalization_mismatch"),
        (observed.status == "not_observed", "inconclusive_manifest_not_observed"),
        (observed.status == "ambiguous" or has_duplicates(observed.tools), "mcp_manifest_observation_ambiguous"),
    )
    return next((code for stands, code in obstacles if stands), None)


def _differences(
    name: str, before: ManifestTool | None, after: ManifestTool | None, *, complete: bool
) -> Iterator[ManifestFinding]:
    privileged = any(side is not None and side.privileged for side in (before, after))
    if before is None:
        yield ManifestFinding(tool_name=name, change="tool_added", privileged=privileged)
    elif after is None:
        if complete:
            yield ManifestFinding(tool_name=name, change="tool_removed", privileged=privileged)
    elif before.digest != after.digest:
        yield ManifestFinding(tool_name=name, change="tool_changed", privileged=privileged)
        for field in _changed_fields(before, after):
            yield ManifestFinding(tool_name=name, change=f"{field}_changed", privileged=privileged)


def _changed_fields(before: ManifestTool, after: ManifestTool) -> list[str]:
    """Return the fields known to differ; a field that one side does not carry is unknown."""
    was, now = before.field_digests, after.field_digests
    if was is None or now is None:
        return []
    return [field for field in MANIFEST_FIELDS if was[field] != now[field]]
