"""Which digests a record of evidence contains: those shared by many calls, and those of one call alone."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from struct import unpack

import msgspec
from msgspec import Struct

from assay_stream.readmodel.rows import DigestValue

Digests = list[tuple[str, str, str]]
"""Role, scheme and value of each."""

_HEX_DIGITS = 64
_HASH_BYTES = 8


class _Identity(Struct, gc=False):
    schema_hash: str | None = None
    meta_hash: str | None = None


class _Binding(Struct, gc=False):
    scope: str
    full_digest: str | None = None
    catalogue_digest: str | None = None


class _Pin(Struct, gc=False):
    scheme: str | None = None
    expected: str | None = None
    observed: str | None = None


class _Signature(Struct, gc=False):
    key_fingerprint: str | None = None
    previous_hash: str | None = None


class _Inputs(Struct, gc=False):
    requests_hash: str | None = None


class _Task(Struct, gc=False):
    id_hash: str | None = None


class _Actor(Struct, gc=False):
    agent_id: str | None = None


class CallData(Struct, gc=False):
    """The members of a decision that the store has columns or digests of."""

    server_id: str
    tool: str
    observer_id: str
    tool_call_id: str
    binding: _Binding
    pin: _Pin
    decision: str | None = None
    ok: bool | None = None
    unbound_reason: str | None = None
    actor: _Actor | None = None
    trace_id: str | None = None
    args_hash: str | None = None
    args_schema_hash: str | None = None
    result_hash: str | None = None
    policy_digest: str | None = None
    policy_snapshot_digest: str | None = None
    redaction: str | None = None
    tool_definition_digest: str | None = None
    tool_identity: _Identity | None = None
    signature: _Signature | None = None
    inputs: _Inputs | None = None
    task: _Task | None = None


class EvidenceLine(Struct, gc=False):
    """The members of a record of evidence that the store has columns or digests of."""

    id: str
    time: str
    assaycontenthash: str
    data: CallData
    traceparent: str | None = None


EVIDENCE_LINES: msgspec.json.Decoder[EvidenceLine] = msgspec.json.Decoder(EvidenceLine)


def shared_digests(data: CallData) -> Digests:
    """Return the digests that calls with the same definition share: sorted, without absent ones."""
    binding, pin, identity, signature = data.binding, data.pin, data.tool_identity, data.signature
    found = [
        ("arguments_schema", "args_schema_hash", data.args_schema_hash),
        ("definition", "full", binding.full_digest),
        ("list", "catalogue", binding.catalogue_digest),
        ("pin_expected", pin.scheme or "", pin.expected),
        ("pin_observed", pin.scheme or "", pin.observed),
        ("policy", "policy_digest", data.policy_digest),
        ("policy_snapshot", "policy_snapshot_digest", data.policy_snapshot_digest),
        ("redaction", "redaction", data.redaction),
        ("tool_definition", "assay.v1", data.tool_definition_digest),
    ]
    if identity is not None:
        found += [
            ("tool_definition", "assay.schema_hash", identity.schema_hash),
            ("tool_definition", "assay.meta_hash", identity.meta_hash),
        ]
    if signature is not None:
        found += [
            ("signing_key", "schemapin.v1", signature.key_fingerprint),
            ("signature_previous", "schemapin.v1", signature.previous_hash),
        ]
    return [(role, scheme, value) for role, scheme, value in found if value]


_OWN = (
    ("record", "assaycontenthash"),
    ("evidence", "id"),
    ("arguments", "args_hash"),
    ("result", "result_hash"),
    ("call", "tool_call_id"),
    ("trace", "trace_id"),
    ("trace", "traceparent"),
    ("inputs", "requests_hash"),
    ("task", "id_hash"),
)


def _own(line: EvidenceLine) -> tuple[str | None, ...]:
    data = line.data
    return (
        line.assaycontenthash,
        line.id,
        data.args_hash,
        data.result_hash,
        data.tool_call_id,
        data.trace_id,
        line.traceparent,
        None if data.inputs is None else data.inputs.requests_hash,
        None if data.task is None else data.task.id_hash,
    )


def own_values(line: EvidenceLine) -> list[str]:
    return [value for value in _own(line) if value]


def own_digests(line: EvidenceLine) -> Digests:
    """Return the digests of one call alone, and the identifiers by which it can be found."""
    return [(role, scheme, value) for (role, scheme), value in zip(_OWN, _own(line), strict=True) if value]


def digest_key(value: str) -> str:
    """Return the lookup key of a digest: bare hexadecimal, however its scheme prints it; other text unchanged."""
    bare = value.strip().removeprefix("sha256:")
    return bare.lower() if len(bare) == _HEX_DIGITS else bare


class Marks:
    """Hashes that index the digests of single calls. They are keyed, so that collisions cannot be constructed.

    Args:
        secret: the key, the store's own.
    """

    def __init__(self, secret: bytes) -> None:
        # As a prefix, a key of 16 bytes and a digest are one block to hash; as BLAKE2's own key they are two.
        self._keyed = blake2b(secret, digest_size=_HASH_BYTES).copy

    def hashes(self, values: Iterable[str]) -> tuple[int, ...]:
        """Return the hash of each digest, equal for all spellings that ``digest_key`` unifies."""
        found = []
        for value in values:
            hashed = self._keyed()
            hashed.update(digest_key(value).encode("utf-8", "surrogatepass"))
            found.append(hashed.digest())
        return unpack(f">{len(found)}q", b"".join(found))


def values_of(digests: Digests) -> tuple[DigestValue, ...]:
    return tuple(DigestValue(role=role, scheme=scheme, value=value) for role, scheme, value in digests)
