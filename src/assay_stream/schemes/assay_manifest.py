"""Assay manifests (P60): digests of whole tool lists, the records that declare and observe them, and their drift.

A manifest is the set of tools that one server lists. An *observed* manifest is what an observer saw, a *declared*
one is the baseline an operator set. ``compare_manifests`` compares them. Records are read strictly, and unknown
fields of them ignored. Source: Rul1an/assay, docs/reference/mcp-manifest-drift.md.

Drift is a difference between digests. It does not mean malice, and its absence does not mean safety. Rules, in order:

1. A baseline whose digest does not match its own tools, or that lists a tool twice, is not compared.
2. Neither is a baseline of another server or projection, nor a list that is unobserved or ambiguous.
3. Additions and changes are reported regardless of completeness, removals only for a complete list; otherwise the
   result notes once that removals could not be determined.
4. A change of a tool that either side calls privileged is a privileged change.
5. Where both sides carry field digests, each field that differs gets a finding of its own.

Field findings are the second step (P60d-v2) of that plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from assay_stream.canonical.decode import Members
from assay_stream.canonical.digest import Digest, jcs_digest
from assay_stream.errors import InputError
from assay_stream.schemes.assay_tool import Tool, first_present, name_of

MANIFEST_PROJECTION = "assay.mcp_manifest_projection.v0"
"""The id of the projection that manifest drift compares; the manifest digest covers it."""

FIELD_PROJECTION = "assay.mcp_tool_field.v0"
"""The id of the projection of one field in manifest drift; the field's digest covers it."""

MANIFEST_FIELDS = ("description", "input_schema", "output_schema", "annotations")

OBSERVED_SCHEMA = "assay.mcp_manifest_observed.v0"
DECLARED_SCHEMA = "assay.declared_mcp_manifest.v0"

ACTION_CLASSES: Mapping[str, str] = {
    "add_deploy_key": "github_deploy_key",
    "create_deploy_key": "github_deploy_key",
    "add_member": "slack_add_member",
    "invite": "slack_add_member",
    "grant_admin": "workspace_admin",
    "change_role": "workspace_admin",
    "invite_external": "workspace_admin",
    "modify_org_policy": "workspace_admin",
    "create_workspace_token": "workspace_admin",
}
"""What Assay's classifier takes for privileged: the name after its last dot, and the class of the action.

A name that is not here is unclassified, which does not mean that the tool is harmless. The server's own
annotations never decide it: whoever is judged by them writes them.
"""

Completeness = Literal["complete", "partial", "unknown"]
ManifestStatus = Literal["observed", "not_observed", "ambiguous"]


def manifest_projection(tool: Tool) -> dict[str, Any]:
    """Return the projection of a tool that manifest drift compares: absent fields are null."""
    return {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "input_schema": first_present(tool, "inputSchema", "input_schema")[1],
        "output_schema": first_present(tool, "outputSchema", "output_schema")[1],
        "annotations": tool.get("annotations"),
    }


def manifest_tool_digest(tool: Tool) -> Digest:
    """Return the digest of a tool in a manifest (scheme ``assay.p60``).

    Raises:
        InputError: ``tool_name_missing``, or as ``canonicalize``.
    """
    name_of(tool)
    return jcs_digest(manifest_projection(tool))


def manifest_field_digests(tool: Tool) -> dict[str, Digest]:
    """Return the digest of each field that manifest drift reports; its name is part of the hashed input."""
    projection = manifest_projection(tool)
    return {
        name: jcs_digest({"projection": FIELD_PROJECTION, "field": name, "value": projection[name]})
        for name in MANIFEST_FIELDS
    }


def digest_of_entries(entries: Iterable[tuple[str, Digest]]) -> Digest:
    # Code point order is UTF-8 byte order, which is how Rust sorts text.
    listed = [{"name": name, "tool_digest": str(digest)} for name, digest in sorted(entries)]
    return jcs_digest({"projection": MANIFEST_PROJECTION, "tools": listed})


def action_class(tool_name: str) -> str | None:
    """Return the privileged action class that Assay gives a tool by its name alone, ignoring dotted prefixes."""
    return ACTION_CLASSES.get(tool_name.rpartition(".")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestTool:
    """Digests of one tool in a manifest.

    Args:
        digest: its ``assay.p60`` digest.
        privileged: whether the classifier knows the tool's name. ``False`` means "unclassified", never "harmless".
        field_digests: digest of each of ``MANIFEST_FIELDS``, ``None`` if the manifest has none.
    """

    name: str
    digest: Digest
    privileged: bool
    field_digests: Mapping[str, Digest] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedManifest:
    """A server's tools as seen by one observer (``assay.mcp_manifest_observed.v0``).

    Args:
        status: ``ambiguous`` if two tools share a name; there is no manifest digest then.
        completeness: as declared by the observer; never inferred.
        canonicalization: id of the projection that the digests cover.
    """

    server_id: str
    status: ManifestStatus
    completeness: Completeness
    tools: tuple[ManifestTool, ...]
    canonicalization: str = MANIFEST_PROJECTION

    def digest(self) -> Digest | None:
        """Return the manifest digest, or ``None`` if the list is unobserved, ambiguous or under another projection."""
        ours = self.canonicalization == MANIFEST_PROJECTION
        if not ours or self.status != "observed" or has_duplicates(self.tools):
            return None
        return digest_of_entries((tool.name, tool.digest) for tool in self.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredManifest:
    """The baseline set by an operator for a server (``assay.declared_mcp_manifest.v0``): declared, not trusted.

    Args:
        digest: the declared manifest digest; checked against the tools only on use.
    """

    server_id: str
    digest: Digest
    tools: tuple[ManifestTool, ...]
    canonicalization: str = MANIFEST_PROJECTION


def has_duplicates(tools: Iterable[ManifestTool]) -> bool:
    return any(count > 1 for count in Counter(tool.name for tool in tools).values())


def observe_manifest(server_id: str, tools: Iterable[Tool] | None, completeness: Completeness) -> ObservedManifest:
    """Build the observed manifest of one tool list.

    Raises:
        InputError: ``tool_name_missing``, or as ``canonicalize``.
    """
    if tools is None:
        return ObservedManifest(server_id=server_id, status="not_observed", completeness="unknown", tools=())
    entries = tuple(
        ManifestTool(
            name=name_of(tool),
            digest=manifest_tool_digest(tool),
            privileged=action_class(name_of(tool)) is not None,
            field_digests=manifest_field_digests(tool),
        )
        for tool in tools
    )
    status: ManifestStatus = "ambiguous" if has_duplicates(entries) else "observed"
    return ObservedManifest(server_id=server_id, status=status, completeness=completeness, tools=entries)


def declare_manifest(observed: ObservedManifest) -> DeclaredManifest:
    """Make a baseline of an observed manifest that an operator has accepted.

    Raises:
        InputError: ``manifest_not_declarable``: a baseline needs a complete list with each name once.
    """
    digest = observed.digest()
    if digest is None or observed.completeness != "complete":
        raise InputError(
            "manifest_not_declarable",
            "a baseline is declared from a complete list with each name once: observe the list again",
        )
    return DeclaredManifest(
        server_id=observed.server_id, digest=digest, tools=observed.tools, canonicalization=observed.canonicalization
    )


def read_observed(record: Any) -> ObservedManifest:
    """Parse an ``assay.mcp_manifest_observed.v0`` record.

    Raises:
        InputError: ``wrong_type``, ``missing_field``, ``unknown_value`` or ``bad_digest``, with the path of the field.
    """
    whole = Members(record)
    whole.one_of("schema", (OBSERVED_SCHEMA,))
    status: ManifestStatus = whole.one_of("status", get_args(ManifestStatus))
    observed = whole.object("observed")
    completeness: Completeness = observed.one_of("tools_list_complete", get_args(Completeness))
    return ObservedManifest(
        server_id=whole.object("server").take("id", str),
        status=status if observed.take("tools_list_observed", bool) else "not_observed",
        completeness=completeness,
        tools=tuple(map(_tool, observed.objects("tool_digests"))),
        canonicalization=observed.take("canonicalization", str),
    )


def read_declared(record: Any) -> DeclaredManifest:
    """Parse an ``assay.declared_mcp_manifest.v0`` record.

    Raises:
        InputError: ``wrong_type``, ``missing_field``, ``unknown_value`` or ``bad_digest``, with the path of the field.
    """
    whole = Members(record)
    whole.one_of("schema", (DECLARED_SCHEMA,))
    return DeclaredManifest(
        server_id=whole.object("server").take("id", str),
        digest=whole.digest("manifest_digest"),
        tools=tuple(map(_tool, whole.objects("tools"))),
        canonicalization=whole.take("canonicalization", str),
    )


def _tool(entry: Members) -> ManifestTool:
    digests = None
    if entry.rest.get("field_digests") is not None:
        listed = entry.object("field_digests")
        digests = {field: listed.digest(field) for field in MANIFEST_FIELDS}
    return ManifestTool(
        name=entry.take("name", str),
        digest=entry.digest("tool_digest"),
        privileged=entry.take("privileged", bool),
        field_digests=digests,
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
    """One difference in one tool, a key of ``SEVERITIES``, and whether either side calls the tool privileged."""

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
    changes: list[str] = []
    if before is None:
        changes = ["tool_added"]
    elif after is None:
        changes = ["tool_removed"] if complete else []
    elif before.digest != after.digest:
        was, now = before.field_digests, after.field_digests
        # A field that one side does not carry is unknown.
        differing = () if was is None or now is None else (each for each in MANIFEST_FIELDS if was[each] != now[each])
        changes = ["tool_changed", *(f"{field}_changed" for field in differing)]
    for change in changes:
        yield ManifestFinding(tool_name=name, change=change, privileged=privileged)
