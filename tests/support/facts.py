"""Builders of facts for tests of the pure core."""

from assay_stream.bindings.controls import Controls
from assay_stream.bindings.offers import pack
from assay_stream.bindings.state import Bindings
from assay_stream.model.control import (
    AnyControlFact,
    Checked,
    Discovery,
    DiscoveryStatus,
    KeyAct,
    KeyDecision,
    Pin,
    PinAct,
    Policy,
    Signatures,
    Signed,
)
from assay_stream.model.facts import Announcement, Catalogue, Rejection, Seen, ToolFact
from assay_stream.model.fields import Completeness
from assay_stream.model.record import Origin
from assay_stream.schemes.fingerprint import Fingerprint

SERVER = "server"
PACKED = pack({"name": "t"})


def a_fingerprint(name: str) -> Fingerprint:
    """A fingerprint whose digests are made of a name, so that failures read well."""
    return Fingerprint(
        full=f"full:{name}",
        schemes={"assay.v1": f"v1:{name}", "assay.schema_hash": f"sh:{name}", "assay.meta_hash": f"mh:{name}"},
        errors={},
        fields={"name": f"field:{name}"},
    )


def a_catalogue(digest: str, tools: dict[str, str]) -> Catalogue:
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
    signatures: str | None = None,
    prompts: str | None = None,
    attributed: bool = False,
) -> Seen:
    return Seen(
        server_id=SERVER,
        observer_id=observer_id,
        origin=Origin(topic="mcp.tools.list", partition=partition, offset=offset),
        time_us=time_us,
        snapshot_id=snapshot_id or f"snapshot-{offset}",
        catalogue=catalogue,
        completeness=completeness,
        signatures=signatures,
        prompts=prompts,
        attributed=attributed,
    )


def rejection(time_us: int, *, offset: int, observer_id: str | None = None) -> Rejection:
    return Rejection(
        server_id=SERVER,
        origin=Origin(topic="mcp.tools.list", partition=0, offset=offset),
        time_us=time_us,
        code="not_json",
        observer_id=observer_id,
    )


def announcement(observer_id: str, time_us: int, *, offset: int, partition: int = 0) -> Announcement:
    return Announcement(
        server_id=SERVER,
        observer_id=observer_id,
        origin=Origin(topic="mcp.tools.list", partition=partition, offset=offset),
        time_us=time_us,
    )


def a_pin(
    value: str | None,
    *,
    time_us: int,
    offset: int,
    scheme: str = "assay.v1",
    act: PinAct | None = None,
    tool_name: str = "t",
) -> Pin:
    """A decision on a pin: set, or removed where there is no value."""
    return Pin(
        server_id=SERVER,
        tool_name=tool_name,
        scheme=scheme,
        origin=Origin(topic="assay.control", partition=0, offset=offset),
        time_us=time_us,
        act=act or ("remove" if value is None else "set"),
        value=value,
        author="ann",
        reason="review",
    )


def a_policy(
    enforcement: str | None = "block",
    unknown: str = "allow_degraded",
    *,
    time_us: int,
    offset: int,
    tool_name: str | None = None,
) -> Policy:
    return Policy(
        server_id=SERVER,
        tool_name=tool_name,
        origin=Origin(topic="assay.control", partition=0, offset=offset),
        time_us=time_us,
        enforcement=enforcement,
        unknown=None if enforcement is None else unknown,
        author="ann",
        reason="review",
    )


def a_key_decision(
    act: KeyAct, fingerprint: str, *, time_us: int, offset: int, tool_name: str | None = None
) -> KeyDecision:
    return KeyDecision(
        server_id=SERVER,
        origin=Origin(topic="assay.control", partition=0, offset=offset),
        time_us=time_us,
        act=act,
        fingerprint=fingerprint,
        domain="example.com" if act == "accept" else None,
        tool_name=tool_name,
        author="ann",
        reason="review",
    )


def a_discovery(
    key: str | None,
    *,
    time_us: int,
    offset: int,
    status: DiscoveryStatus = "observed",
    domain: str = "example.com",
    revoked: tuple[str, ...] = (),
) -> Discovery:
    return Discovery(
        server_id=SERVER,
        origin=Origin(topic="assay.control", partition=0, offset=offset),
        time_us=time_us,
        domain=domain,
        status=status,
        fingerprint=key,
        public_key_pem=None if key is None else f"pem:{key}",
        revoked=revoked,
    )


def signed_by(key: str, *tools: str, digest: str = "set", mode: str = "double_sha256") -> tuple[Signatures, Checked]:
    """Signatures of example.com over some tools, and their check against the key that made them."""
    entries = dict.fromkeys(tools, Signed("example.com", "c2lnbmF0dXJl", "0" * 64))
    return (
        Signatures(server_id=SERVER, digest=digest, tools=entries),
        Checked(server_id=SERVER, signatures=digest, fingerprint=key, modes=dict.fromkeys(tools, mode)),
    )


def bindings_with(*catalogues: Catalogue) -> Bindings:
    """A state that knows these catalogues and every definition they name."""
    bindings = Bindings()
    for catalogue in catalogues:
        for full in catalogue.tools.values():
            if full is not None:
                bindings.apply(
                    ToolFact.of(
                        server_id=SERVER,
                        server_scoped=True,
                        fingerprint=a_fingerprint(full.removeprefix("full:")),
                        packed=PACKED,
                    )
                )
        bindings.apply(catalogue)
    return bindings


def with_facts(*facts: AnyControlFact) -> Controls:
    controls = Controls()
    for fact in facts:
        controls.apply(fact)
    return controls
