"""What is said of a message on its way to the client."""

from __future__ import annotations

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.observe.wire import Shown


def test_the_log_names_a_few_hidden_tools() -> None:
    """Not all of them, and on one line."""
    assert Shown(b"", hidden=("a", "b\nc")).hidden_text == r"'a', 'b\nc'"
    assert Shown(b"", hidden=("a",) * 7).hidden_text.endswith("'a' and 2 more")


def test_a_server_fills_no_log_with_the_name_of_a_tool() -> None:
    """A name may be as long as a message."""
    assert len(Shown(b"", hidden=("x" * 10**6,)).hidden_text) == DEFAULT_LIMITS.identifier_chars_max + 2
