"""A replay of files by several processes, merged by this one.

Each process sends what ``replay.shares`` packs through a pipe, and waits while the pipe is full: so much is on the way
at most. One that dies, or has not been heard of for a while, ends the replay, as a kill would.
"""

import fcntl
import os
import pickle
import select
import signal
import struct
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from assay_stream.cli.processes import Refusal, fork_context, refusal_of
from assay_stream.cli.sources import Source
from assay_stream.errors import InputError, OperatingError
from assay_stream.files.archive import TooLong
from assay_stream.files.log_spool import Log, LogSpool
from assay_stream.replay.order import JoinedCalls, Placed
from assay_stream.replay.run import ResumePoint
from assay_stream.replay.shares import AppliedSpool, CallShare, applied_blocks, applied_in, joined_blocks, joined_in

_PIPE_BYTES = 1_024 * 1_024
_SIGN_OF_LIFE_S = 1.0
_LOOK_S = 5.0
_LOOKS_MAX = 12
"""Looks in a row that find nothing, a minute in all: a process that was stopped with this one has had its time."""

_SPOOLED, _APPLIED, _JOINED, _END, _REFUSED, _ALIVE = range(6)
"""What a message is."""
_Send = Callable[[int, bytes], None]
_HEADER = struct.Struct("!BI")
"""What a message is, and how many bytes follow."""


class _Child:
    """One of the processes, and what it says."""

    def __init__(self, process: BaseProcess, pipe: Connection) -> None:
        self.process, self.pipe = process, pipe
        self.logs: list[Log] = []
        """Its logs, as it numbers them."""
        self._poll = select.poll()
        self._poll.register(pipe.fileno(), select.POLLIN)

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield what the process says until its end.

        Raises:
            AssayStreamError: what its share was refused for.
            OperatingError: ``process_ended``.
        """
        while True:
            kind, length = _HEADER.unpack(self._read(_HEADER.size))
            content = self._read(length)
            if kind == _REFUSED:
                made, code, message, path = pickle.loads(content)  # noqa: S301 - written by a process of ours
                raise made(code, message, path=path)
            if kind == _END:
                return
            if kind != _ALIVE:
                yield kind, content

    def blocks(self) -> Iterator[bytes]:
        return (content for _, content in self.messages())

    def _read(self, length: int) -> bytes:
        # Not by the connection, which would wait for ever for the rest of a message.
        parts, looks = [], 0
        while length:
            if not self._poll.poll(_LOOK_S * 1_000):
                looks += 1
                if looks == _LOOKS_MAX:
                    raise _ended("one of the processes has not been heard of for a minute")
                continue
            part = os.read(self.pipe.fileno(), length)
            if not part:
                raise _ended("one of the processes ended before its work was done")
            parts.append(part)
            length, looks = length - len(part), 0
        return parts[0] if len(parts) == 1 else b"".join(parts)


@contextmanager
def joined_by_processes(
    source: Source, count: int, checkpoint: ResumePoint | None, too_long: TooLong
) -> Iterator[tuple[LogSpool, JoinedCalls]]:
    """Give the snapshots and control records of a source, and its calls as some processes join them.

    Args:
        checkpoint: where an interrupted replay stood.
        too_long: as in ``Source.read``.

    Raises:
        AssayStreamError: as ``Source.spool``.
        OperatingError: ``process_ended``.
    """
    children: list[_Child] = []
    try:
        for number in range(count):
            children.append(_start(source, CallShare(number, count), checkpoint, [child.pipe for child in children]))
        with AppliedSpool() as spool:
            for child in children:
                _take_read(child, spool, too_long)
            spool.finish()

            def joined(numbers: Mapping[Log, int]) -> list[Iterator[Placed]]:
                return [joined_in(child.blocks(), [numbers[log] for log in child.logs]) for child in children]

            yield spool, joined
    finally:
        for child in children:
            child.process.kill()
        for child in children:
            child.process.join()
            child.pipe.close()


def _take_read(child: _Child, spool: AppliedSpool, too_long: TooLong) -> None:
    """Take in what a process has read."""
    for kind, content in child.messages():
        if kind == _APPLIED:
            for record in applied_in(content):
                spool.add(record)
            continue
        counts, cut_lines = pickle.loads(content)  # noqa: S301 - written by a process of ours
        child.logs = [log for log, _ in counts]
        spool.note(counts)
        for code, message in cut_lines:
            too_long(InputError(code, message))
        return


def _start(source: Source, share: CallShare, checkpoint: ResumePoint | None, others: list[Connection]) -> _Child:
    context = fork_context()
    reader, writer = context.Pipe(duplex=False)
    with suppress(AttributeError, OSError):  # not everywhere, and not as much as one likes
        fcntl.fcntl(writer.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def work() -> None:
        # A pipe that somebody could still read from would never tell that its reader is gone.
        for pipe in (*others, reader):
            pipe.close()
        _work(source, share, checkpoint, writer)

    process = context.Process(target=work, daemon=True)
    process.start()
    writer.close()
    return _Child(process, reader)


def _work(source: Source, share: CallShare, checkpoint: ResumePoint | None, pipe: Connection) -> None:
    """Do one share, in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the merging process ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lock = threading.Lock()

    def send(kind: int, content: bytes = b"") -> None:
        try:
            with lock:
                for part in (_HEADER.pack(kind, len(content)), content):
                    left = memoryview(part)
                    while left:
                        left = left[os.write(pipe.fileno(), left) :]
        except OSError:
            os._exit(1)  # nobody reads any more

    def show_life() -> None:
        while not done.wait(_SIGN_OF_LIFE_S):
            send(_ALIVE)

    done = threading.Event()
    threading.Thread(target=show_life, daemon=True).start()
    try:
        _send_share(source, share, checkpoint, send)
        send(_END)
    except Exception as error:  # noqa: BLE001 - the end of the process
        refusal: Refusal | None = refusal_of(error)
        if refusal is None:
            traceback.print_exc()
            os._exit(1)
        send(_REFUSED, pickle.dumps(refusal))
    done.set()


def _send_share(source: Source, share: CallShare, checkpoint: ResumePoint | None, send: _Send) -> None:
    cut_lines: list[InputError] = []
    with source.spool(too_long=cut_lines.append, takes=share.takes) as spool:
        made = source.replay(spool)
        if share.is_first:
            for block in applied_blocks(spool):
                send(_APPLIED, block)
        # Every process reads all lines: one of them tells of those that were cut.
        told = [(error.code, error.message) for error in cut_lines] if share.is_first else []
        send(_SPOOLED, pickle.dumps(([(log, spool.count(log)) for log in made.logs], told)))
        if checkpoint is not None:
            made.resume_from(checkpoint)
        for block in joined_blocks(made.joined()):
            send(_JOINED, block)


def _ended(what: str) -> OperatingError:
    return OperatingError("process_ended", f"{what}: look for what stopped it, often a lack of memory")
