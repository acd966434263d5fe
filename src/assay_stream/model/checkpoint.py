"""Checkpoints: what is signed of the evidence in one partition, and which bytes of a record it covers.

The tree is cumulative: its leaves are all evidence records of the partition from the first sealed one on, in the
order of their offsets. A checkpoint holds the tree's size, root and frontier after its own range, so that the next
one is made, and checked, without what came before. It also holds how many partitions there are, and the latest
head of each other one, so that a partition that loses its end is missed by the others.

A leaf's entry is: ``assay-stream.leaf.v1`` and a zero byte; the offset and the log's timestamp in milliseconds,
eight bytes each; the key; the value; the number of headers, four bytes; and name and value of each. Numbers are
signed and big endian. A field is its length in four bytes and its bytes; of a null key or value the length is -1.
Topic and partition stand in the checkpoint. Offsets may have gaps: transactions leave markers in the log.

The signature is that of a note (C2SP tlog-checkpoint) over origin, tree size and root; its extension line,
``assay-stream.checkpoint.v1`` and the digest of the checkpoint as canonical JSON, covers all the rest.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from struct import pack, unpack_from
from typing import Annotated, Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field
from typing_extensions import TypedDict

from assay_stream.canonical.decode import decode_base64, decode_json
from assay_stream.canonical.digest import Digest, canonicalize, sha256_of
from assay_stream.errors import InputError
from assay_stream.model.fields import BareHex, Base64, DigestText, Natural, Positive
from assay_stream.model.record import Record
from assay_stream.model.wire import Wire, read_record, write_record
from assay_stream.schemes.tlog import (
    HASH_BYTES,
    Frontier,
    Keys,
    TlogCheckpoint,
    key_id,
    leaf_hash,
    open_checkpoint_note,
    sign_note,
)

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


_LEAF_BYTES = 8 + HASH_BYTES
_EXTENSION = "assay-stream.checkpoint.v1"
"""Begins the line of a note that holds the checkpoint's digest."""
_LEAF_TAG = b"assay-stream.leaf.v1\0"

TreeLeaf = tuple[int, bytes]
"""Offset and leaf hash of one record."""


class Sealed(NamedTuple):
    """One record of the checkpoint topic.

    Args:
        leaves: offset and leaf hash of every record of the range.
        note: the signed note.
        key_ids: the keys whose signatures verified.
    """

    checkpoint: Checkpoint
    leaves: tuple[TreeLeaf, ...]
    note: str
    key_ids: tuple[str, ...]

    def signed(self) -> dict[str, Any]:
        """Return the checkpoint and its note, as records and proofs carry them."""
        return {"checkpoint": write_record(self.checkpoint), "note": self.note}


def origin_of(log_name: str, topic: str, partition: int) -> str:
    """Return the origin of a partition's log, which is also the name of its key (tlog-checkpoint, Signatures).

    Args:
        log_name: the deployment, for example ``example.com/production``.
    """
    return f"{log_name}/{topic}/{partition}"


def leaf_of(record: Record, *, offset: int | None = None) -> bytes:
    """Return the leaf hash of an evidence record.

    Args:
        offset: another offset to take in place of its own.
    """
    place = record.origin.offset if offset is None else offset
    parts = [_LEAF_TAG, pack(">qq", place, record.timestamp_ms), _field(record.key), _field(record.value)]
    parts.append(pack(">i", len(record.headers)))
    for name, value in record.headers:
        parts += (_field(name.encode()), _field(value))
    return leaf_hash(b"".join(parts))


def _field(raw: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if raw is None else pack(">i", len(raw)) + raw


def sealed(
    before: Checkpoint | None,
    leaves: list[TreeLeaf],
    *,
    topic: str,
    partition: int,
    sealed_at: str,
    key: Ed25519PrivateKey,
    software: str,
    partitions: int,
    siblings: Iterable[Head],
    log_name: str,
) -> Sealed:
    """Return the checkpoint of the next range.

    Args:
        before: the last checkpoint of the partition, checked; ``None`` for the first.
        leaves: offset and leaf hash of each record of the range, 1 to ``RANGE_RECORDS_MAX``, in order.
        sealed_at: the time, RFC 3339.
        partitions: how many partitions the evidence topic has.
        siblings: the latest committed head of each other partition that has one; the nearest are kept.
        log_name: begins the origin of the signed note.
    """
    if not 0 < len(leaves) <= RANGE_RECORDS_MAX:
        raise AssertionError("a range has records, and a bound")
    tree = Frontier() if before is None else Frontier(before.tree_size, before.frontier)
    for _, leaf in leaves:
        tree.append(leaf)
    made = Checkpoint(
        topic=topic,
        partition=partition,
        sequence=0 if before is None else before.sequence + 1,
        first_offset=leaves[0][0],
        last_offset=leaves[-1][0],
        records=len(leaves),
        tree_size=tree.size,
        root=Digest(tree.root().hex()),
        frontier=tuple(tree.peaks),
        leaves=sha256_of(_packed(leaves)),
        previous=None if before is None else before.digest(),
        sealed_at=sealed_at,
        key_id=key_id(key.public_key()),
        software=software,
        partitions=partitions,
        siblings=tuple(
            sorted(head for head in siblings if 0 < (head.partition - partition) % partitions <= SIBLINGS_MAX)
        ),
    )
    note = sign_note(_stated(made, log_name).text, origin_of(log_name, topic, partition), key)
    return Sealed(made, tuple(leaves), note, (made.key_id,))


def _stated(made: Checkpoint, log_name: str) -> TlogCheckpoint:
    origin = origin_of(log_name, made.topic, made.partition)
    return TlogCheckpoint(origin, made.tree_size, bytes.fromhex(made.root.hex), (f"{_EXTENSION} {made.digest()}",))


def encode(of: Sealed) -> bytes:
    return canonicalize({**of.signed(), "leaves": base64.b64encode(_packed(of.leaves)).decode()})


def decode(raw: bytes | None, keys: Keys) -> Sealed:
    """Decode a checkpoint record, and verify its signature and leaves.

    Raises:
        InputError: ``bad_checkpoint``; as ``open_checkpoint``; as ``decode_json``.
    """
    content = decode_json(raw or b"")
    if not isinstance(content, dict):
        raise _bad("$")
    leaves = _unpacked(content.pop("leaves", None))
    checkpoint, key_ids = open_checkpoint(content, keys)
    if sha256_of(_packed(leaves)) != checkpoint.leaves or len(leaves) != checkpoint.records:
        raise _bad("$.leaves")
    offsets = [offset for offset, _ in leaves]
    ends = (checkpoint.first_offset, checkpoint.last_offset)
    if offsets != sorted(set(offsets)) or (offsets[0], offsets[-1]) != ends:
        raise _bad("$.leaves")
    return Sealed(checkpoint, leaves, content["note"], key_ids)


def stated(raw: bytes | None) -> tuple[Checkpoint, tuple[TreeLeaf, ...]]:
    """Return what a checkpoint record states, without verifying it.

    Raises:
        InputError: ``bad_checkpoint``; as ``decode_json``.
    """
    content = decode_json(raw or b"")
    if not isinstance(content, dict) or not isinstance(content.get("checkpoint"), dict):
        raise _bad("$")
    try:
        return read_record(Checkpoint, content["checkpoint"]), _unpacked(content.get("leaves"))
    except (TypeError, ValueError, KeyError, AttributeError):
        raise _bad("$.checkpoint") from None


def open_checkpoint(signed: Any, keys: Keys) -> tuple[Checkpoint, tuple[str, ...]]:
    """Verify a signed checkpoint; return it and the keys whose signatures verified.

    Args:
        signed: as ``Sealed.signed`` returns it.

    Raises:
        InputError: ``bad_checkpoint``; as ``open_checkpoint_note``.
    """
    if not isinstance(signed, dict) or signed.keys() != {"checkpoint", "note"}:
        raise _bad("$")
    fields, note = signed["checkpoint"], signed["note"]
    if not isinstance(fields, dict) or not isinstance(note, str):
        raise _bad("$.checkpoint" if isinstance(note, str) else "$.note")
    stated, key_ids = open_checkpoint_note(note, keys)
    try:
        checkpoint = read_record(Checkpoint, fields)
        tree = Frontier(checkpoint.tree_size, checkpoint.frontier)
        is_sound = checkpoint.payload() == canonicalize(fields) and tree.root().hex() == checkpoint.root.hex
    except (TypeError, ValueError, KeyError, AttributeError, InputError):
        raise _bad("$.checkpoint") from None
    if not is_sound or not _is_plausible(checkpoint) or checkpoint.key_id not in key_ids:
        raise _bad("$.checkpoint")
    log_name = stated.origin.removesuffix(origin_of("", checkpoint.topic, checkpoint.partition))
    if stated != _stated(checkpoint, log_name):
        raise _bad("$.note")
    return checkpoint, key_ids


def follows(found: Sealed, last: Sealed | None) -> str | None:
    """Return why a checkpoint does not continue the last one, ``None`` if it does."""
    made, before = found.checkpoint, None if last is None else last.checkpoint
    if made.sequence != (0 if before is None else before.sequence + 1):
        return "checkpoint_out_of_sequence"
    if made.previous != (None if before is None else before.digest()):
        return "checkpoint_chain_broken"
    if before is not None and (made.topic, made.partition) != (before.topic, before.partition):
        return "checkpoint_chain_broken"
    if before is not None:
        sizes = {head.partition: head.tree_size for head in made.siblings}
        is_smaller = any(sizes.get(head.partition, head.tree_size) < head.tree_size for head in before.siblings)
        if made.partitions < before.partitions or is_smaller:
            return "checkpoint_siblings_went_back"
    if before is not None and made.first_offset <= before.last_offset:
        return "checkpoint_range_overlaps"
    tree = Frontier() if before is None else Frontier(before.tree_size, before.frontier)
    for _, leaf in found.leaves:
        tree.append(leaf)
    if (tree.size, tree.root().hex()) != (made.tree_size, made.root.hex):
        return "checkpoint_root_differs"
    return None


def _is_plausible(made: Checkpoint) -> bool:
    siblings = [head.partition for head in made.siblings]
    return (
        all(type(number) is int for head in made.siblings for number in head[:2])
        and min(made.partition, made.sequence, made.first_offset) >= 0
        and 0 < made.records <= min(made.tree_size, RANGE_RECORDS_MAX)
        and made.first_offset + made.records - 1 <= made.last_offset
        and made.partition < made.partitions
        and len(siblings) <= SIBLINGS_MAX
        and siblings == sorted(set(siblings) - {made.partition})
        and all(0 <= number < made.partitions for number in siblings)
        and all(head.tree_size > 0 for head in made.siblings)
    )


def _bad(path: str) -> InputError:
    return InputError("bad_checkpoint", "not a checkpoint of this version, or its parts disagree", path=path)


def _packed(leaves: tuple[TreeLeaf, ...] | list[TreeLeaf]) -> bytes:
    return b"".join(pack(">q", offset) + leaf for offset, leaf in leaves)


def _unpacked(text: Any) -> tuple[TreeLeaf, ...]:
    raw = decode_base64(text) if isinstance(text, str) else None
    if not raw or len(raw) % _LEAF_BYTES:
        raise _bad("$.leaves")
    return tuple(
        (unpack_from(">q", raw, at)[0], raw[at + 8 : at + _LEAF_BYTES]) for at in range(0, len(raw), _LEAF_BYTES)
    )
