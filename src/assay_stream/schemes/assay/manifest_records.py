"""Assay manifest records as JSON: an observed and a declared manifest, read strictly, unknown fields ignored."""

from typing import Any, get_args

from assay_stream.schemes.assay.manifest import (
    DECLARED_SCHEMA,
    MANIFEST_FIELDS,
    OBSERVED_SCHEMA,
    Completeness,
    DeclaredManifest,
    ManifestStatus,
    ManifestTool,
    ObservedManifest,
)
from assay_stream.schemes.members import Members


def read_observed(record: Any) -> ObservedManifest:
    """Return the manifest of an ``assay.mcp_manifest_observed.v0`` record.

    Raises:
        InputError: ``wrong_type``, ``missing_field``, ``unknown_value`` or ``bad_digest``, with its path.
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
    """Return the manifest of an ``assay.declared_mcp_manifest.v0`` record.

    Raises:
        InputError: ``wrong_type``, ``missing_field``, ``unknown_value`` or ``bad_digest``, with its path.
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
