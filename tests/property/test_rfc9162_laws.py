"""Laws of the Merkle trees, against the recursive definitions of RFC 9162, section 2.1."""

from hashlib import sha256

from hypothesis import given, strategies as st

from assay_stream.schemes.tlog import (
    Frontier,
    consistency_holds,
    consistency_proof,
    inclusion_holds,
    inclusion_proof,
    leaf_hash,
)

leaves_of = st.integers(1, 70).map(lambda size: [leaf_hash(str(number).encode()) for number in range(size)])


def naive(leaves: list[bytes]) -> bytes:
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return sha256(b"\x01" + naive(leaves[:k]) + naive(leaves[k:])).digest()


@given(leaves_of)
def test_the_frontier_gives_the_root_of_the_definition(leaves: list[bytes]) -> None:
    """However many leaves, and with one hash kept for each bit of the size."""
    tree = Frontier()
    for leaf in leaves:
        tree.append(leaf)
    assert tree.root() == naive(leaves)
    assert Frontier(tree.size, tree.peaks).root() == tree.root()


@given(leaves_of, st.data())
def test_an_inclusion_proof_holds_for_its_leaf_alone(leaves: list[bytes], data: st.DataObject) -> None:
    """At another index, for another leaf, with a node less, more or altered it does not."""
    size = len(leaves)
    index = data.draw(st.integers(0, size - 1))
    proof, root = inclusion_proof(leaves, index, size), naive(leaves)

    def holds(leaf: bytes, at: int, path: list[bytes], of: bytes = root) -> bool:
        return inclusion_holds(leaf=leaf, index=at, size=size, proof=path, root=of)

    assert holds(leaves[index], index, proof)
    other = data.draw(st.integers(0, size))
    assert other == index or not holds(leaves[index], other, proof)
    assert not holds(leaf_hash(b"other"), index, proof)
    assert not holds(leaves[index], index, [*proof, root])
    assert not holds(leaves[index], index, proof, leaf_hash(b"root"))
    if proof:
        at = data.draw(st.integers(0, len(proof) - 1))
        assert not holds(leaves[index], index, proof[:at] + proof[at + 1 :])
        assert not holds(leaves[index], index, [*proof[:at], leaf_hash(b"x"), *proof[at + 1 :]])


@given(leaves_of, st.data())
def test_a_consistency_proof_holds_for_its_trees_alone(leaves: list[bytes], data: st.DataObject) -> None:
    second = len(leaves)
    first = data.draw(st.integers(1, second))
    proof = consistency_proof(leaves, first, second)
    old, new = naive(leaves[:first]), naive(leaves)

    def holds(path: list[bytes], a: bytes = old, b: bytes = new) -> bool:
        return consistency_holds(first=first, first_root=a, second=second, second_root=b, proof=path)

    assert holds(proof)
    wrong = leaf_hash(b"wrong")
    assert not holds(proof, a=wrong)
    assert not holds(proof, b=wrong)
    assert not holds([*proof, wrong])
    if proof:
        at = data.draw(st.integers(0, len(proof) - 1))
        assert not holds(proof[:at] + proof[at + 1 :])
        assert not holds([*proof[:at], wrong, *proof[at + 1 :]])
