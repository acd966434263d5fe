"""What a broker says that a user may do (KIP-430), and what of it is missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from assay_stream.errors import ConfigurationError
from assay_stream.kafka.topics import Operation, require_operations
from tests.support.errors import raises_code

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
NOT_SAID = -(2**31)


async def require(wanted: Mapping[str, Collection[Operation]], **said: tuple[int, int]) -> None:
    """Ask a broker that says a code of an error and the bits of operations about each topic."""
    topics: list[object] = [(code, topic, False, [], bits) for topic, (code, bits) in said.items()]
    await require_operations(
        SimpleNamespace(_send_request=AsyncMock(return_value=SimpleNamespace(topics=topics))), wanted
    )


@pytest.mark.parametrize(
    ("code", "operations", "wanted"),
    [
        (0, 1 << 3 | 1 << 8 | 1 << 10, [READ, DESCRIBE, Operation.DESCRIBE_CONFIGS]),
        (0, 1 << 6 | 1 << 7, [Operation.DELETE]),
        (0, 1 << 4 | 1 << 8, [WRITE, DESCRIBE]),
        (3, NOT_SAID, [READ]),
        (0, NOT_SAID, [READ]),
    ],
    ids=["reads", "deletes", "writes", "no such topic", "not told"],
)
async def test_rights_are_bits_of_the_codes_of_operations(code: int, operations: int, wanted: list[Operation]) -> None:
    """Where the broker does not tell, nothing is missed."""
    await require({"a": wanted}, a=(code, operations))


async def test_each_missing_right_is_named_by_topic() -> None:
    """Of topics whose rights the broker does not tell, none is; of one that may not be described, all are."""
    wanted = {"a": {READ, DESCRIBE}, "b": {READ, WRITE}, "c": {READ}, "d": {WRITE, DESCRIBE}}
    with raises_code(
        "not_authorized", kind=ConfigurationError, match="rights: Read, Write on b; Describe, Write on d[.]"
    ):
        await require(wanted, d=(29, NOT_SAID), c=(3, NOT_SAID), b=(0, 1 << 8), a=(0, 1 << 3 | 1 << 8))
