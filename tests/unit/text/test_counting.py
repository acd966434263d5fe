"""Counts in sentences."""

import pytest

from assay_stream.text.escaping import counted


@pytest.mark.parametrize(("count", "text"), [(0, "0 calls"), (1, "1 call"), (2, "2 calls"), (1_000, "1,000 calls")])
def test_a_noun_agrees_with_its_count(count: int, text: str) -> None:
    assert counted(count, "call") == text
