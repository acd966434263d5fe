"""Proofs over sealed evidence, for readers who have neither the log nor its leaves.

An *inclusion* proof shows that a record is in the tree that a checkpoint signs; a *consistency* proof, that the tree of
one checkpoint starts with that of an earlier one. A proof carries the signed checkpoints that it is about, so that
public keys suffice to check it. Inclusion proofs also come in the text form of C2SP tlog-proof.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError, named_in_errors
from assay_stream.model.checkpoint import Checkpoint, Sealed, decode, follows, leaf_of, open_checkpoint, origin_of
from assay_stream.model.record import Record
from assay_stream.schemes import tlog
from assay_stream.schemes.tlog import Keys, consistency_holds, consistency_proof, inclusion_holds, inclusion_proof

PROOF_SCHEMA = "assay.evidence.proof.v1"
_INCLUSION_FIELDS = {"schema", "kind", "offset", "leaf_index", "leaf", "path", "checkpoint"}
_CONSISTENCY_FIELDS = {"schema", "kind", "path", "first", "second"}

Chain = Callable[[], Iterator[Sealed]]
"""Gives the checkpoints of one partition from the first on, as often as it is called."""


def chain_of(values: Iterable[tuple[int, bytes | None]], keys: Keys) -> Iterator[Sealed]:
    """Yield checkpoints that each continue the one before.

    Args:
        values: place and value of each record of the checkpoint topic's partition, in order.

    Raises:
        InputError: ``checkpoint_chain_faulty``, and as ``checkpoint.decode``, with the place in the message.
    """
    last: Sealed | None = None
    for number, raw in values:
        with named_in_errors(f"checkpoint record {number}"):
            found = decode(raw, keys)
        why = follows(found, last)
        if why is not None:
            raise InputError(
                "checkpoint_chain_faulty", f"checkpoint record {number} does not continue the chain: {why}"
            )
        last = found
        yield found


class Included(NamedTuple):
    """A record's place in the tree of the last checkpoint.

    Args:
        path: the inclusion proof (RFC 9162, section 2.1.3).
        last: the checkpoint that signs the tree.
    """

    offset: int
    leaf_index: int
    leaf: bytes
    path: list[bytes]
    last: Sealed

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": PROOF_SCHEMA,
            "kind": "inclusion",
            "offset": self.offset,
            "leaf_index": self.leaf_index,
            "leaf": self.leaf.hex(),
            "path": [node.hex() for node in self.path],
            "checkpoint": self.last.signed(),
        }

    def as_tlog(self) -> str:
        """Return the proof as text (C2SP tlog-proof)."""
        return tlog.write_proof(self.leaf_index, self.path, self.last.note)


def last_of(chain: Chain) -> Sealed:
    """Return the last checkpoint of a partition.

    Raises:
        InputError: ``checkpoint_not_found``; as ``chain_of``.
    """
    tail = deque(chain(), maxlen=1)
    if not tail:
        raise InputError("checkpoint_not_found", "the partition has no checkpoint")
    return tail[0]


def inclusion(chain: Chain, offset: int) -> Included:
    """Return the proof that the record at an offset is in the tree of the last checkpoint.

    Raises:
        InputError: ``offset_not_sealed``; as ``chain_of``.
    """
    found: tuple[int, bytes] | None = None
    last: Sealed | None = None
    for last in chain():
        made = last.checkpoint
        if made.first_offset <= offset <= made.last_offset:
            for number, (place, leaf) in enumerate(last.leaves, start=made.tree_size - made.records):
                if place == offset:
                    found = (number, leaf)
    if found is None or last is None:
        raise InputError("offset_not_sealed", "no checkpoint covers a record at this offset of this partition")
    index, leaf = found
    path = inclusion_proof(_leaves(chain), index, last.checkpoint.tree_size)
    return Included(offset, index, leaf, list(path), last)


def consistency(chain: Chain, first: int, second: int) -> dict[str, Any]:
    """Return the proof that the tree of one checkpoint begins with that of an earlier one.

    Raises:
        InputError: ``checkpoint_not_found``; ``proof_out_of_range`` where the second is the earlier one; as
            ``chain_of``.
    """
    found = {sealed.checkpoint.sequence: sealed for sealed in chain() if sealed.checkpoint.sequence in (first, second)}
    if not {first, second} <= found.keys():
        raise InputError("checkpoint_not_found", "the partition has no checkpoint of that number")
    sizes = found[first].checkpoint.tree_size, found[second].checkpoint.tree_size
    path = consistency_proof(_leaves(chain), *sizes)
    return {
        "schema": PROOF_SCHEMA,
        "kind": "consistency",
        "path": [node.hex() for node in path],
        "first": found[first].signed(),
        "second": found[second].signed(),
    }


def check_proof(raw: bytes, keys: Keys, record: Record | None = None) -> dict[str, Any]:
    """Return what a proof shows, if it holds, as a JSON object.

    Args:
        record: for inclusion, the record that should be the leaf: without one, only the proof names its offset.

    Raises:
        InputError: ``bad_proof``; ``proof_fails``; ``proof_of_another_record``; as ``open_checkpoint``.
    """
    proof = decode_json(raw)
    if not isinstance(proof, dict) or proof.get("schema") != PROOF_SCHEMA:
        raise _bad("$.schema")
    path, kind = _hashes(proof.get("path")), proof.get("kind")
    if proof.keys() == _INCLUSION_FIELDS and kind == "inclusion":
        made, shown = _check_inclusion(proof, path, keys, record)
    elif proof.keys() == _CONSISTENCY_FIELDS and kind == "consistency":
        if record is not None:
            raise InputError("bad_proof", "a consistency proof is about no record: leave the record out")
        made, shown = _check_consistency(proof, path, keys)
    else:
        raise _bad("$.kind")
    return {
        "kind": kind,
        "topic": made.topic,
        "partition": made.partition,
        **shown,
        "checkpoint": made.sequence,
        "tree_size": made.tree_size,
        "root": str(made.root),
        "sealed_at": made.sealed_at,
        "key_id": made.key_id,
    }


def check_tlog_proof(raw: bytes, keys: Keys, record: Record) -> dict[str, Any]:
    """Check an inclusion proof in text form (C2SP tlog-proof, Verifying a tlog proof), and return what it shows.

    1. Compute the leaf hash: of the record, which a tlog proof does not name.
    2. Check that the origin names the record's partition, and that one of the keys signed the checkpoint.
    3. Cosignatures of witnesses are ignored: no witness is configured.
    4. Check the inclusion proof.

    Raises:
        InputError: ``bad_proof``, ``bad_note``, ``seal_key_unknown``, ``seal_signature_invalid``,
            ``proof_of_another_record`` or ``proof_fails``.
    """
    proof = tlog.read_proof(raw)
    leaf = leaf_of(record)
    signed, _ = tlog.open_checkpoint_note(proof.note, keys)
    origin = record.origin
    if not signed.origin.endswith(origin_of("", origin.topic, origin.partition)):
        raise InputError("proof_of_another_record", "the proof is about another topic or partition than the record's")
    if not inclusion_holds(
        leaf=leaf, index=proof.leaf_index, size=signed.tree_size, proof=list(proof.path), root=signed.root
    ):
        raise InputError("proof_fails", "the hashes do not lead from the record to the signed root: one was altered")
    return {
        "kind": "inclusion",
        "origin": signed.origin,
        "offset": origin.offset,
        "leaf_index": proof.leaf_index,
        "record_checked": True,
        "tree_size": signed.tree_size,
        "root": f"sha256:{signed.root.hex()}",
    }


def _check_inclusion(
    proof: dict[str, Any], path: list[bytes], keys: Keys, record: Record | None
) -> tuple[Checkpoint, dict[str, Any]]:
    made, _ = open_checkpoint(proof["checkpoint"], keys)
    offset, index = proof["offset"], proof["leaf_index"]
    if type(offset) is not int or type(index) is not int:
        raise _bad("$.offset" if type(offset) is not int else "$.leaf_index")
    [leaf] = _hashes([proof["leaf"]])
    if not inclusion_holds(leaf=leaf, index=index, size=made.tree_size, proof=path, root=bytes.fromhex(made.root.hex)):
        raise _fails()
    if record is not None:
        origin = record.origin
        if (origin.topic, origin.partition, origin.offset) != (made.topic, made.partition, offset):
            raise InputError("proof_of_another_record", "the proof is about another topic, partition or offset")
        if leaf_of(record) != leaf:
            raise InputError("proof_of_another_record", "the record is not the one that was sealed at its offset")
    return made, {"offset": offset, "leaf_index": index, "record_checked": record is not None}


def _check_consistency(proof: dict[str, Any], path: list[bytes], keys: Keys) -> tuple[Checkpoint, dict[str, Any]]:
    first, _ = open_checkpoint(proof["first"], keys)
    second, _ = open_checkpoint(proof["second"], keys)
    if (first.topic, first.partition) != (second.topic, second.partition):
        raise InputError("proof_fails", "the two checkpoints are about different logs")
    if not consistency_holds(
        first=first.tree_size,
        first_root=bytes.fromhex(first.root.hex),
        second=second.tree_size,
        second_root=bytes.fromhex(second.root.hex),
        proof=path,
    ):
        raise _fails()
    return second, {"first_checkpoint": first.sequence, "first_tree_size": first.tree_size}


def _leaves(chain: Chain) -> Iterator[bytes]:
    for sealed in chain():
        for _, leaf in sealed.leaves:
            yield leaf


def _hashes(texts: Any) -> list[bytes]:
    try:
        return [bytes.fromhex(text) for text in texts]
    except (TypeError, ValueError):
        raise _bad("$.path") from None


def _bad(path: str) -> InputError:
    return InputError("bad_proof", f"not a proof of this version ({PROOF_SCHEMA})", path=path)


def _fails() -> InputError:
    return InputError("proof_fails", "the hashes do not lead to the signed root: treat the proof as altered")
