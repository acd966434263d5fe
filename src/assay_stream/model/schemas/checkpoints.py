"""Models of the records of the checkpoint topic, and of what is signed in them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from assay_stream.model.fields import Base64, Closed
from assay_stream.seal.checkpoint import RANGE_RECORDS_MAX, SIBLINGS_MAX

_Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Count = Annotated[int, Field(ge=0)]


class EnvelopeSignature(Closed):
    """One signature; ``keyid`` is the digest of the public key as DER SubjectPublicKeyInfo."""

    keyid: _Digest
    sig: Base64


class CheckpointEnvelope(Closed):
    """A DSSE v1 envelope; its payload is canonical JSON, see ``assay.evidence.checkpoint.payload``.

    Payloads of type v1, of earlier sealers, have neither ``partitions`` nor ``siblings``.
    """

    payload: Base64
    payloadType: Literal[  # noqa: N815
        "application/vnd.assay.stream.checkpoint.v2+json", "application/vnd.assay.stream.checkpoint.v1+json"
    ]
    signatures: Annotated[list[EnvelopeSignature], Field(min_length=1)]


class CheckpointRecord(Closed):
    """A checkpoint and, for each record of its range, the offset (eight bytes) and the leaf hash."""

    envelope: CheckpointEnvelope
    leaves: Base64
    note: Annotated[str, Field(description="The tree head as a signed note (C2SP tlog-checkpoint).")] | None = None


class CheckpointPayload(Closed):
    """What is signed: a range of the evidence of one partition, and the tree up to its end."""

    topic: str
    partition: _Count
    sequence: _Count
    first_offset: _Count
    last_offset: _Count
    records: Annotated[int, Field(ge=1, le=RANGE_RECORDS_MAX)]
    tree_size: Annotated[int, Field(ge=1)]
    root: _Digest
    frontier: list[_Hash]
    leaves: _Digest
    previous: Annotated[_Digest | None, Field(description="Digest of the payload before; null for the first.")]
    sealed_at: str
    key_id: _Digest
    software: str
    partitions: Annotated[int, Field(ge=1, description="How many partitions the evidence topic has.")]
    siblings: Annotated[
        list[tuple[_Count, Annotated[int, Field(ge=1)], _Digest]],
        Field(
            max_length=SIBLINGS_MAX,
            description="The latest head of each other partition that has one: partition, tree size and root.",
        ),
    ]
