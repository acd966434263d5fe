"""Checkpoints: what is signed of the evidence in one partition, and the records that carry it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from assay_stream.canonical.digest import Digest, canonicalize, sha256_of
from assay_stream.model.fields import BareHex, Base64, DigestText, Natural, Positive
from assay_stream.model.wire import Wire, write_record

SIBLINGS_MAX = 1_024
"""Heads of other partitions in one checkpoint: 130 KB in base64, beside the leaves of a full range."""
RANGE_RECORDS_MAX = 16_384
"""Records of one range: their leaves, forty bytes each and in base64, must fit a Kafka message of a mebibyte."""


class Head(NamedTuple):
    """The tree of a partition at one of its checkpoints.

    Args:
        tree_size: records sealed.
        root: root of the tree of that size.
    """

    partition: int
    tree_size: int
    root: Digest


_SIBLINGS_TEXT = "The latest head of each other partition that has one: partition, tree size and root."
_Siblings = Annotated[
    list[tuple[Natural, Positive, DigestText]], Field(max_length=SIBLINGS_MAX, description=_SIBLINGS_TEXT)
]
_Root = Annotated[Digest, Wire(DigestText, str, Digest.parse)]
_PREVIOUS_TEXT = "Digest of the payload before; null for the first."
_Previous = Wire(
    Annotated[DigestText | None, Field(description=_PREVIOUS_TEXT)],
    lambda digest: None if digest is None else str(digest),
    lambda text: None if text is None else Digest.parse(text),
)


def _heads(rows: Iterable[list[Any]]) -> tuple[Head, ...]:
    return tuple(Head(partition, size, Digest.parse(root)) for partition, size, root in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A range of the evidence of one partition, and the tree up to its end.

    Args:
        topic: the evidence topic, prefix included.
        sequence: number of the checkpoint in its partition, from 0.
        tree_size: records sealed so far, this range included.
        frontier: its largest complete subtrees, left to right.
        leaves: digest of the leaves of the range, as they stand beside the checkpoint.
        previous: digest of the payload of the checkpoint before, ``None`` for the first.
        sealed_at: RFC 3339, by the sealer's clock: a claim, nothing rests on it.
        key_id: who signs.
        partitions: how many partitions the evidence topic has.
        siblings: the latest committed head of each other partition that has one; of ``SIBLINGS_MAX`` partitions
            behind this one, in a circle, where there are more.
    """

    topic: str
    partition: Natural
    sequence: Natural
    first_offset: Natural
    last_offset: Natural
    records: Annotated[int, Field(ge=1, le=RANGE_RECORDS_MAX)]
    tree_size: Positive
    root: _Root
    frontier: Annotated[
        tuple[bytes, ...],
        Wire(
            list[BareHex], lambda peaks: [peak.hex() for peak in peaks], lambda given: tuple(map(bytes.fromhex, given))
        ),
    ]
    leaves: _Root
    previous: Annotated[Digest | None, _Previous]
    sealed_at: str
    key_id: DigestText
    software: str
    partitions: Annotated[int, Field(ge=1, description="How many partitions the evidence topic has.")]
    siblings: Annotated[
        tuple[Head, ...],
        Wire(_Siblings, lambda heads: [[head.partition, head.tree_size, str(head.root)] for head in heads], _heads),
    ]

    @property
    def head(self) -> Head:
        return Head(self.partition, self.tree_size, self.root)

    def payload(self) -> bytes:
        """Return the bytes whose digest is signed: canonical JSON (RFC 8785)."""
        return canonicalize(write_record(self))

    def digest(self) -> Digest:
        return sha256_of(self.payload())


class CheckpointRecord(TypedDict):
    """A checkpoint, the note that signs it, and for each record of its range the offset (eight bytes) and leaf hash."""

    checkpoint: Annotated[dict[str, Any], Field(description="As ``assay.evidence.checkpoint.payload`` describes.")]
    leaves: Base64
    note: Annotated[
        str, Field(description="A signed note (C2SP tlog-checkpoint); an extension line holds the checkpoint's digest.")
    ]
