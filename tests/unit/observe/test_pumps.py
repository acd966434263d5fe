"""Bytes from one descriptor to another."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from assay_stream.observe.pumps import Pump


def a_pump(source: int, target: int, seen: list[bytes]) -> tuple[Pump, threading.Event]:
    """A running pump, and what is set at its end."""
    done = threading.Event()
    pump = Pump(source, target, see=seen.append, done=done.set, name="test")
    pump.start()
    return pump, done


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
    """A server's last words."""
    source, source_end = os.pipe()
    target_end, target = os.pipe()
    os.write(source_end, b"last words")
    seen: list[bytes] = []
    done = threading.Event()
    pump = Pump(source, target, see=seen.append, done=done.set, name="test")
    pump.stop()
    pump.start()
    assert done.wait(5)
    assert os.read(target_end, 100) == b"last words"
    pump.stop()
    for descriptor in (source, source_end, target, target_end):
        os.close(descriptor)


def test_a_target_that_has_gone_ends_it() -> None:
    """Quietly."""
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
