"""Builders of facts for tests of the pure core."""

from __future__ import annotations

from assay_stream.core.bindings import Bindings
from assay_stream.core.facts import Catalogue, Completeness, Rejection, Seen, ToolFact
from assay_stream.core.fingerprint import Fingerprint
from assay_stream.core.record import Origin

SERVER = "server"


def a_fingerprint(name: str) -> Fingerprint:
    """A fingerprint whose digests are made of a name, so that failures read well."""
    return Fingerprint(
        full=f"full:{name}",
        schemes={
            "assay.v1": f"v1:{name}",
            "assay.schema_hash": f"sh:{name}",
            "assay.meta_hash": f"mh:{name}",
        },
        errors={},
        fields={"name": f"field:{name}"},
    )


def a_catalogue(digest: str, tools: dict[str, str]) -> Catalogue:
    """A catalogue: tool name to the name of its definition."""
    return Catalogue(
        server_id=SERVER,
        digest=digest,
        server_scoped=True,
        tools={tool: f"full:{definition}" for tool, definition in tools.items()},
    )


def seen(
    observer_id: str,
    time_us: int,
    catalogue: str,
    *,
    offset: int,
    snapshot_id: str | None = None,
    completeness: Completeness = "complete",
    partition: int = 0,
) -> Seen:
    """An observation."""
    return Seen(
        server_id=SERVER,
        observer_id=observer_id,
        origin=Origin(topic="mcp.tools.list", partition=partition, offset=offset),
        time_us=time_us,
        snapshot_id=snapshot_id or f"snapshot-{offset}",
        catalogue=catalogue,
        completeness=completeness,
    )


def rejection(time_us: int, *, offset: int) -> Rejection:
    """A rejected snapshot."""
    return Rejection(
        server_id=SERVER,
        origin=Origin(topic="mcp.tools.list", partition=0, offset=offset),
        time_us=time_us,
        code="not_json",
    )


def bindings_with(*catalogues: Catalogue) -> Bindings:
    """A state that knows these catalogues and every definition they name."""
    bindings = Bindings()
    for catalogue in catalogues:
        for full in catalogue.tools.values():
            if full is not None:
                bindings.apply(
                    ToolFact(
                        server_id=SERVER,
                        server_scoped=True,
                        fingerprint=a_fingerprint(full.removeprefix("full:")),
                    )
                )
        bindings.apply(catalogue)
    return bindings
