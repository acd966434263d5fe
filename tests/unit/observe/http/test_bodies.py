"""Bodies of HTTP messages become JSON-RPC messages, however the bytes were cut."""

import gzip
import tracemalloc
import zlib
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from assay_stream.observe.http.messages import Body, EventStream, JsonBody, body_of, plain_body

LIMIT = 100


def read(body: Body, *chunks: bytes) -> list[bytes | None]:
    return [message for chunk in chunks for message in body.feed(chunk)] + list(body.end())


@pytest.mark.parametrize(
    ("stream", "messages"),
    [
        (b"data: {}\n\n", [b"{}"]),
        (b"data:{}\r\n\r\n", [b"{}"]),
        (b"data: 1\r\rdata: 2\r\r", [b"1", b"2"]),
        (b"event: message\nid: 7\ndata: {}\n\n", [b"{}"]),
        (b"data: {\ndata: }\n\n", [b"{\n}"]),
        (b"\xef\xbb\xbfdata: {}\n\n", [b"{}"]),
        (b": keep-alive\n\n: again\ndata: {}\n\n", [b"{}"]),
        (b"id: 1\nretry: 500\ndata\n\n", [b""]),
        (b"event: ping\ndata: {}\n\ndata: 1\n\n", [b"1"]),
        (b"data: {}\n", []),
        (b"data: cut off", []),
        (b"Data: {}\n\n", []),
    ],
)
def test_events_are_read_as_the_standard_says(stream: bytes, messages: list[bytes]) -> None:
    """Line endings, comments, types of events, and an event that the end cuts off."""
    assert read(EventStream(LIMIT), stream) == messages


@pytest.mark.parametrize(
    "stream",
    [b'event: x\ndata: {"tools":1}\n\n', b'data: {}\r"tools":1\n', b'data: {"tools":1}\n', b'data: {"tools"'],
    ids=["another type", "a carriage return", "no blank line", "no end"],
)
def test_what_only_some_clients_take_for_a_list_is_reported(stream: bytes) -> None:
    """It may be what such a client goes on with."""
    assert read(EventStream(LIMIT), stream) == [None]


def test_an_event_over_the_limit_is_reported_and_the_next_one_read() -> None:
    stream = b"data: " + b"x" * LIMIT + b"\ndata: y\n\ndata: {}\n\n"
    assert read(EventStream(LIMIT), stream) == [None, b"{}"]
    assert read(EventStream(LIMIT), *(stream[at : at + 1] for at in range(len(stream)))) == [None, b"{}"]


def test_comments_never_add_up_to_an_event_over_the_limit() -> None:
    """A stream is kept alive for days before its next event."""
    assert read(EventStream(LIMIT), b": keep-alive\n" * 100 + b"data: {}\n\n") == [b"{}"]


def test_a_text_over_the_limit_is_reported() -> None:
    """It passes, but nobody knows what it said."""
    assert read(JsonBody(LIMIT), b"x" * LIMIT) == [b"x" * LIMIT]
    assert read(JsonBody(LIMIT), b"x" * LIMIT, b"y") == [None]
    assert read(JsonBody(LIMIT)) == []


@pytest.mark.parametrize(
    ("body", "part"), [(JsonBody(100_000), b"[]"), (EventStream(100_000), b"data\n")], ids=["text", "event"]
)
def test_many_small_pieces_take_little_more_than_their_bytes(body: JsonBody | EventStream, part: bytes) -> None:
    """A server may send a body a few bytes at a time; an object for each would take many times as much."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(20_000):
        list(body.feed(bytes(bytearray(part))))  # each a new object, as from a socket
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 1.5 * body.kept_bytes


lines = st.sampled_from(
    [b"data: {}", b"data: [1]", b"data", b": c", b"event: x", b"event: message", b"", b"id: 1", b"x" * 40]
)
ends = st.sampled_from([b"\n", b"\r", b"\r\n"])
streams = st.lists(st.tuples(lines, ends).map(b"".join) | st.binary(max_size=4), max_size=40).map(b"".join)


@given(stream=streams, cuts=st.lists(st.integers(0, 400), max_size=20))
def test_any_cutting_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cut for cut in cuts if cut <= len(stream)), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(places)]
    whole = read(EventStream(LIMIT), stream)
    assert read(EventStream(LIMIT), *chunks) == whole
    assert read(EventStream(LIMIT), *(stream[at : at + 1] for at in range(len(stream)))) == whole


@given(data=st.binary(max_size=300), step=st.integers(1, 50))
def test_any_bytes_are_read_without_an_exception(data: bytes, step: int) -> None:
    """Whatever the headers say that they are."""
    for kind in ("application/json", "text/event-stream", "text/html", None):
        for encoding in ("gzip", "deflate", "br", None):
            body = body_of(kind, encoding, message_bytes_max=LIMIT)
            read(body, *(data[at : at + step] for at in range(0, len(data), step)))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate"])
def test_a_compressed_body_is_read_too(encoding: str) -> None:
    text = b'{"jsonrpc":"2.0"}' * 5
    raw = zlib.compressobj(wbits=-15)
    packed = {
        "gzip": gzip.compress(text),
        "deflate": zlib.compress(text),
        "raw deflate": raw.compress(text) + raw.flush(),
    }[encoding]
    body = body_of("application/json", encoding.split()[-1], message_bytes_max=LIMIT)
    assert read(body, *(packed[at : at + 1] for at in range(len(packed)))) == [text]


@pytest.mark.parametrize(
    ("content_type", "encoding", "messages"),
    [
        ("application/json; charset=utf-8", None, [b"{}"]),
        ("Application/JSON", "identity", [b"{}"]),
        (None, None, [b"{}"]),
        ("text/html", None, []),
        ("text/html", "br", []),
        ("application/json", "br", [None]),
        ("text/event-stream", "zstd", [None]),
    ],
)
def test_the_headers_say_how_a_body_is_read(
    content_type: str | None, encoding: str | None, messages: list[bytes | None]
) -> None:
    """A body of messages that cannot be read is reported; one of something else is not."""
    assert read(body_of(content_type, encoding, message_bytes_max=LIMIT), b"{}") == messages


def test_a_body_without_bytes_holds_no_message() -> None:
    """Whatever the headers say: so a notification is acknowledged."""
    for kind, encoding in (("application/json", "br"), ("text/event-stream", "gzip")):
        assert read(body_of(kind, encoding, message_bytes_max=LIMIT), b"") == []


def test_deflate_without_its_header_is_not_ruled_on() -> None:
    """The same bytes may be JSON to a server that ignores the encoding."""
    raw = zlib.compressobj(wbits=-15)
    assert plain_body(raw.compress(b"{}") + raw.flush(), "deflate", message_bytes_max=LIMIT) is None
    assert plain_body(zlib.compress(b"{}"), "deflate", message_bytes_max=LIMIT) == b"{}"
    assert plain_body(zlib.compress(b"{}")[:-1], "deflate", message_bytes_max=LIMIT) is None
    assert plain_body(gzip.compress(bytes(10**6)), "gzip", message_bytes_max=LIMIT) is None


def test_a_compressed_text_that_is_cut_off_is_reported() -> None:
    """What of it came may be enough for a client."""
    assert read(body_of("application/json", "gzip", message_bytes_max=LIMIT), gzip.compress(b"{}")[:-9]) == [None]


@pytest.mark.parametrize(
    ("encoding", "data"),
    [("br", b"{}"), ("gzip", gzip.compress(b"{}", mtime=0) + b"x"), ("gzip", b"no")],
    ids=["another encoding", "gzip, and more", "no gzip"],
)
def test_what_cannot_be_read_is_reported_at_once_and_once(encoding: str, data: bytes) -> None:
    """A client may act on it long before its end."""
    body = body_of("text/event-stream", encoding, message_bytes_max=LIMIT)
    assert list(body.feed(data)) == [None]
    assert read(body, data) == []


@pytest.mark.parametrize("end", ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_a_message_inside_what_is_none_is_reported(end: str) -> None:
    """Some clients end lines elsewhere than the standard does."""
    hidden = f"{end}data: 1{end}{end}".encode()
    assert list(EventStream(LIMIT).feed(b": x" + hidden + b"\n")) == [None]
    assert read(EventStream(LIMIT), b"event: x\ndata: x" + hidden + b"\n\ndata: 2\n\n") == [None, b"2"]


def test_a_bomb_is_inflated_no_further_than_its_limit() -> None:
    body = body_of("application/json", "gzip", message_bytes_max=LIMIT)
    packed = gzip.compress(bytes(10**7))
    assert list(body.feed(packed[:3000])) == [None]
    assert read(body, b"whatever follows") == []


def test_a_line_end_may_be_cut_in_two_with_nothing_in_between() -> None:
    stream = EventStream(100)
    parts = (b"data: {}\r", b"", b"\n", b"\r", b"", b"\n")
    assert [message for part in parts for message in stream.feed(part)] == [b"{}"]
