"""Lines out of a stream of bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay_stream.observe.lines import LineSplitter


def lines_of(chunks: list[bytes], *, line_bytes_max: int = 1_000) -> list[bytes | None]:
    """All lines of a stream that came in chunks."""
    splitter = LineSplitter(line_bytes_max)
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    return [*found, *splitter.end()]


@given(st.lists(st.binary(max_size=20).map(lambda raw: raw.replace(b"a", b"\n"))))
def test_chunks_do_not_matter(chunks: list[bytes]) -> None:
    """Whole, in pieces or byte by byte."""
    stream = b"".join(chunks)
    whole = lines_of([stream])
    assert lines_of(chunks) == whole == lines_of([stream[i : i + 1] for i in range(len(stream))])
    expected = stream.split(b"\n")
    assert whole == (expected if expected[-1] else expected[:-1])


def test_a_line_too_long_is_given_as_none_and_the_next_is_whole() -> None:
    """Whatever the chunks."""
    stream = b"abc\ntoo long\nxyz\n"
    for size in range(1, len(stream)):
        chunks = [stream[i : i + size] for i in range(0, len(stream), size)]
        assert lines_of(chunks, line_bytes_max=5) == [b"abc", None, b"xyz"]
    assert lines_of([b"too long"], line_bytes_max=5) == [None]


def test_after_lost_bytes_the_line_under_way_is_unknown() -> None:
    """The next one is not."""
    splitter = LineSplitter(100)
    assert list(splitter.feed(b"a\nb")) == [b"a"]
    splitter.lose()
    assert list(splitter.feed(b"c\nd\n")) == [None, b"d"]
