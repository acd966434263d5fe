"""Merkle trees of Certificate Transparency version 2 (RFC 9162, section 2.1), over SHA-256.

A tree is identified by its size and root and never held in memory: roots and proofs take one pass over the leaf hashes
and O(log n) memory.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from assay_stream.errors import InputError

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    """Hash a leaf (2.1.1)."""
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash an inner node (2.1.1)."""
    return sha256(b"\x01" + left + right).digest()


class Frontier:
    """The right edge of a growing tree: the hashes of its largest complete subtrees, left to right.

    Args:
        size: leaves so far.
        peaks: one hash for each bit set in the size, the highest first.

    Raises:
        InputError: ``bad_frontier`` if the number of hashes does not fit the size.
    """

    __slots__ = ("peaks", "size")

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size = size
        self.peaks = list(peaks)
        if size < 0 or len(self.peaks) != size.bit_count() or any(len(p) != HASH_BYTES for p in self.peaks):
            raise InputError("bad_frontier", "a frontier has one hash of 32 bytes for each bit set in its size")

    def append(self, leaf: bytes) -> None:
        size = self.size
        while size & 1:
            leaf = node_hash(self.peaks.pop(), leaf)
            size >>= 1
        self.peaks.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        if not self.peaks:
            return EMPTY_ROOT
        found = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            found = node_hash(peak, found)
        return found


def inclusion_proof(leaves: Iterable[bytes], index: int, size: int) -> list[bytes]:
    """Return the audit path of a leaf, nearest node first (2.1.3.1).

    Args:
        leaves: leaf hashes of the tree, in order; more than ``size`` are not read.
        index: leaf index, from 0.

    Raises:
        InputError: ``proof_out_of_range``; ``proof_leaves_missing`` if there are fewer leaves than ``size``.
    """
    if not 0 <= index < size:
        raise InputError("proof_out_of_range", "the tree has no such leaf: give an index below its size")
    return _hashes(leaves, size, _path_ranges(index, size))


def consistency_proof(leaves: Iterable[bytes], first: int, second: int) -> list[bytes]:
    """Return the proof that the larger tree extends the smaller (2.1.4.1).

    Args:
        leaves: leaf hashes of the larger tree, in order; more than ``second`` are not read.
        first: leaves of the smaller tree, 1 or more.

    Raises:
        InputError: as ``inclusion_proof``.
    """
    if not 0 < first <= second:
        raise InputError("proof_out_of_range", "a consistency proof goes from 1 or more leaves to as many or more")
    if first == second:
        return []
    return _hashes(leaves, second, _consistency_ranges(first, second))


def inclusion_holds(*, leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Return True if the proof shows that the leaf is at this index of the tree (2.1.3.2)."""
    if not 0 <= index < size or not _are_hashes([leaf, root, *proof]):
        return False
    number, last, found = index, size - 1, leaf
    for node in proof:
        if last == 0:
            return False
        if number & 1 or number == last:
            found = node_hash(node, found)
            while number and not number & 1:
                number, last = number >> 1, last >> 1
        else:
            found = node_hash(found, node)
        number, last = number >> 1, last >> 1
    return last == 0 and found == root


def consistency_holds(
    *, first: int, first_root: bytes, second: int, second_root: bytes, proof: Sequence[bytes]
) -> bool:
    """Return True if the proof shows that the second tree extends the first (2.1.4.2).

    Args:
        first: leaves of the smaller tree, 1 or more.
    """
    if first == second and first > 0:
        return not proof and first_root == second_root
    if not 0 < first < second or not _are_hashes([first_root, second_root, *proof]):
        return False
    path = list(proof)
    if first & (first - 1) == 0:
        path.insert(0, first_root)
    if not path:
        return False
    number, last = first - 1, second - 1
    while number & 1:
        number, last = number >> 1, last >> 1
    old = new = path[0]
    for node in path[1:]:
        if last == 0:
            return False
        if number & 1 or number == last:
            old, new = node_hash(node, old), node_hash(node, new)
            while number and not number & 1:
                number, last = number >> 1, last >> 1
        else:
            new = node_hash(new, node)
        number, last = number >> 1, last >> 1
    return last == 0 and old == first_root and new == second_root


def _are_hashes(hashes: Iterable[bytes]) -> bool:
    return all(len(found) == HASH_BYTES for found in hashes)


def _split(size: int) -> int:
    """Return the largest power of two smaller than ``size``, which is 2 or more (2.1.1)."""
    return 1 << ((size - 1).bit_length() - 1)


def _path_ranges(index: int, size: int) -> list[tuple[int, int]]:
    """Return the leaf range of each node of an audit path, nearest first."""
    ranges, start, end = [], 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start = middle
    return ranges[::-1]


def _consistency_ranges(first: int, second: int) -> list[tuple[int, int]]:
    """Return the leaf range of each node of a consistency proof: SUBPROOF of 2.1.4.1, unrolled."""
    ranges, start, end, is_whole = [], 0, second, True
    while first != end:
        middle = start + _split(end - start)
        if first <= middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start, is_whole = middle, False
    if not is_whole:
        ranges.append((start, end))
    return ranges[::-1]


def _hashes(leaves: Iterable[bytes], size: int, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return the roots of non-overlapping ranges, in one pass."""
    ordered = sorted(ranges)
    roots: dict[tuple[int, int], Frontier] = {covered: Frontier() for covered in ordered}
    current, count = 0, 0
    for leaf in leaves:
        if count == size:
            break
        while current < len(ordered) and count >= ordered[current][1]:
            current += 1
        if current < len(ordered) and count >= ordered[current][0]:
            roots[ordered[current]].append(leaf)
        count += 1
    if count < size:
        raise InputError("proof_leaves_missing", f"the tree has {size} leaves, and only {count} were given")
    return [roots[covered].root() for covered in ranges]
