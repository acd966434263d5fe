"""Bytes from one descriptor to another."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from assay_stream.observe.tap import LineSplitter, Pump, write_all


def a_pump(source: int, target: int, seen: list[bytes]) -> tuple[Pump, threading.Event]:
    done = threading.Event()
    pump = Pump(source, copying(target, seen), done=done.set)
    pump.start()
    return pump, done


def copying(target: int, seen: list[bytes]) -> Callable[[bytes], None]:
    def take(data: bytes) -> None:
        seen.append(data)
        write_all(target, data)

    return take


def test_bytes_are_copied_until_the_source_ends(tmp_path: Path) -> None:
    """Plain files serve as well as pipes."""
    content = os.urandom(300_000)
    (tmp_path / "in").write_bytes(content)
    seen: list[bytes] = []
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        _, done = a_pump(source.fileno(), target.fileno(), seen)
        assert done.wait(5)
    assert (tmp_path / "out").read_bytes() == b"".join(seen) == content


def test_what_is_there_is_copied_before_a_stop_takes_effect() -> None:
    source, source_end = os.pipe()
    target_end, target = os.pipe()
    os.write(source_end, b"last words")
    seen: list[bytes] = []
    done = threading.Event()
    pump = Pump(source, copying(target, seen), done=done.set)
    pump.stop()
    pump.start()
    assert done.wait(5)
    assert os.read(target_end, 100) == b"last words"
    pump.stop()
    for descriptor in (source, source_end, target, target_end):
        os.close(descriptor)


def test_a_target_that_has_gone_ends_it() -> None:
    source, source_end = os.pipe()
    target_end, target = os.pipe()
    os.close(target_end)
    _, done = a_pump(source, target, [])
    os.write(source_end, b"x")
    assert done.wait(5)
    for descriptor in (source, source_end, target):
        os.close(descriptor)


def test_descriptors_that_someone_made_non_blocking_serve_too() -> None:
    """A descriptor's mode is shared with other processes."""
    left, source = socket.socketpair()
    target, right = socket.socketpair()
    with left, source, target, right:
        source.setblocking(False)
        target.setblocking(False)
        _, done = a_pump(source.fileno(), target.fileno(), [])
        content = os.urandom(3_000_000)

        def send() -> None:
            left.sendall(content)
            left.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        received = b""
        while len(received) < len(content):
            received += right.recv(65_536)
        sender.join()
        assert done.wait(5)
        assert received == content


def lines_of(chunks: list[bytes], *, line_bytes_max: int = 1_000) -> list[bytes | None]:
    splitter = LineSplitter(line_bytes_max)
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    return [*found, *splitter.end()]


def test_a_line_too_long_is_given_as_none_and_the_next_is_whole() -> None:
    stream = b"abc\ntoo long\nxyz\n"
    for size in range(1, len(stream)):
        chunks = [stream[i : i + size] for i in range(0, len(stream), size)]
        assert lines_of(chunks, line_bytes_max=5) == [b"abc", None, b"xyz"]
    assert lines_of([b"too long"], line_bytes_max=5) == [None]
