"""What a broker says that a user may do (KIP-430), and what of it is missing."""

from __future__ import annotations

import pytest

from assay_stream.kafka.topics import Operation, held_in, missing_rights

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


@pytest.mark.parametrize(
    ("code", "operations", "held"),
    [
        (0, 1 << 3 | 1 << 8 | 1 << 10, [READ, DESCRIBE, Operation.DESCRIBE_CONFIGS]),
        (0, 1 << 6 | 1 << 7, [Operation.DELETE]),
        (0, 1 << 4 | 1 << 8, [WRITE, DESCRIBE]),
        (29, -(2**31), ()),
        (3, -(2**31), None),
        (0, -(2**31), None),
    ],
    ids=["reads", "deletes", "writes", "describes nothing", "no such topic", "not told"],
)
def test_rights_are_bits_of_the_codes_of_operations(
    code: int, operations: int, held: list[Operation] | tuple[()] | None
) -> None:
    assert held_in(code, operations) == held


def test_each_missing_right_is_named_by_topic() -> None:
    """Of topics whose rights the broker does not tell, none is."""
    wanted = {"a": {READ, DESCRIBE}, "b": {READ, WRITE}, "c": {READ}}
    assert missing_rights(wanted, {"a": [READ, DESCRIBE], "b": [DESCRIBE], "c": None}) == {"b": [READ, WRITE]}
