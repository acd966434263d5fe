"""Assay manifest records as JSON: an observed and a declared manifest, read strictly, unknown fields ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError
from assay_stream.schemes.assay.manifest import (
    DECLARED_SCHEMA,
    MANIFEST_FIELDS,
    OBSERVED_SCHEMA,
    Completeness,
    DeclaredManifest,
    ManifestTool,
    ObservedManifest,
    Status,
)


def read_observed(record: Any) -> ObservedManifest:
    """Return the manifest of an ``assay.mcp_manifest_observed.v0`` record.

    Raises:
        InputError: ``wrong_type``, ``missing_field``, ``unknown_value`` or ``bad_digest``, with its path.
    """
    whole = _object(record, "$")
    _one_of(whole, "schema", (OBSERVED_SCHEMA,), "$")
    status: Status = _one_of(whole, "status", get_args(Status), "$")
    observed = _object(_member(whole, "observed", "$"), "$.observed")
    completeness: Completeness = _one_of(observed, "tools_list_complete", get_args(Completeness), "$.observed")
    if _flag(observed, "tools_list_observed", "$.observed") is False:
        status = "not_observed"
    return ObservedManifest(
        server_id=_server_id(whole),
        status=status,
        completeness=completeness,
        tools=_tools(observed, "tool_digests", "$.observed"),
        canonicalization=_text(observed, "canonicalization", "$.observed"),
    )


def read_declared(record: Any) -> DeclaredManifest:
    """Return the manifest of an ``assay.declared_mcp_manifest.v0`` record.

    Raises:
        InputError: ``wrong_type``, ``missing_field``, ``unknown_value`` or ``bad_digest``, with its path.
    """
    whole = _object(record, "$")
    _one_of(whole, "schema", (DECLARED_SCHEMA,), "$")
    return DeclaredManifest(
        server_id=_server_id(whole),
        digest=_digest(whole, "manifest_digest", "$"),
        tools=_tools(whole, "tools", "$"),
        canonicalization=_text(whole, "canonicalization", "$"),
    )


def _server_id(whole: Mapping[str, Any]) -> str:
    return _text(_object(_member(whole, "server", "$"), "$.server"), "id", "$.server")


def _tools(parent: Mapping[str, Any], name: str, path: str) -> tuple[ManifestTool, ...]:
    listed = _member(parent, name, path)
    if not isinstance(listed, list):
        raise InputError("wrong_type", "the tools of a manifest stand in a list", path=f"{path}.{name}")
    return tuple(_tool(item, f"{path}.{name}[{index}]") for index, item in enumerate(listed))


def _tool(item: Any, path: str) -> ManifestTool:
    entry = _object(item, path)
    fields = entry.get("field_digests")
    digests = None
    if fields is not None:
        listed = _object(fields, f"{path}.field_digests")
        digests = {field: _digest(listed, field, f"{path}.field_digests") for field in MANIFEST_FIELDS}
    return ManifestTool(
        name=_text(entry, "name", path),
        digest=_digest(entry, "tool_digest", path),
        privileged=_flag(entry, "privileged", path),
        field_digests=digests,
    )


def _member(parent: Mapping[str, Any], name: str, path: str) -> Any:
    if name not in parent:
        raise InputError("missing_field", "a manifest record needs this field: add it", path=f"{path}.{name}")
    return parent[name]


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError("wrong_type", "this part of a manifest record is a JSON object", path=path)
    return value


def _text(parent: Mapping[str, Any], name: str, path: str) -> str:
    value = _member(parent, name, path)
    if not isinstance(value, str):
        raise InputError("wrong_type", "this field of a manifest record is text", path=f"{path}.{name}")
    return value


def _flag(parent: Mapping[str, Any], name: str, path: str) -> bool:
    value = _member(parent, name, path)
    if not isinstance(value, bool):
        raise InputError("wrong_type", "this field of a manifest record is true or false", path=f"{path}.{name}")
    return value


def _one_of(parent: Mapping[str, Any], name: str, allowed: tuple[str, ...], path: str) -> Any:
    value = _text(parent, name, path)
    if value not in allowed:
        raise InputError("unknown_value", f"must be one of: {', '.join(allowed)}", path=f"{path}.{name}")
    return value


def _digest(parent: Mapping[str, Any], name: str, path: str) -> Digest:
    try:
        return Digest.parse(_text(parent, name, path))
    except InputError as error:
        raise InputError(error.code, error.message, path=f"{path}.{name}") from None
