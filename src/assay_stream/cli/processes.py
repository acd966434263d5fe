"""A job done by several processes, each its share of it."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext
from typing import Any, TypeVar, cast

from assay_stream.errors import AssayStreamError, ConfigurationError, OperatingError
from assay_stream.kafka.refusals import explained
from assay_stream.verify.judging import Share

Result = TypeVar("Result")
Tell = Callable[[str], None]
Refusal = tuple[type[AssayStreamError], str, str, str]
"""An error as it goes through a pipe: its class, code, message and path."""

_job: list[Any] = []
"""In a child: the work, and the pipe for the lines of each share. It comes by fork, since neither can be pickled."""


def in_processes(work: Callable[[Share, Tell], Result], count: int, tell: Tell) -> list[Result]:
    """Do a job in processes of their own, and return the result of each share, in the order of shares.

    Raises:
        AssayStreamError: what a share was refused for.
        ConfigurationError: ``bad_option`` where this system cannot fork a process.
        OperatingError: ``process_ended`` where one ended without a result.
    """
    context = fork_context()
    readers, writers = zip(*(context.Pipe(duplex=False) for _ in range(count)), strict=True)
    ended, note_end = context.Pipe(duplex=False)
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(count, context, initializer=_job.extend, initargs=([work, *writers],)) as pool:
        try:
            shares: list[Future[tuple[Any, Refusal | None]]] = []
            for number in range(count):
                shares.append(pool.submit(_run, Share(number, count)))
                shares[-1].add_done_callback(lambda _: note_end.send(None))
            left = count
            while left:
                for pipe in cast("list[Connection]", wait([*readers, ended])):
                    line = pipe.recv()
                    if pipe is not ended:
                        tell(line)
                        continue
                    left -= 1
                    _raise_refusals(share for share in shares if share.done())
            for reader in readers:
                while reader.poll():
                    tell(reader.recv())
            return [share.result()[0] for share in shares]
        except BaseException:
            # The pool would wait for the other shares.
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise


def _raise_refusals(shares: Any) -> None:
    for share in shares:
        try:
            _, refusal = share.result()
        except BrokenProcessPool:
            raise OperatingError(
                "process_ended", "one of the processes ended before its work was done: look for what killed it"
            ) from None
        if refusal is not None:
            made, code, message, path = refusal
            raise made(code, message, path=path)


def fork_context() -> ForkContext:
    """Return what forks processes.

    Raises:
        ConfigurationError: ``bad_option`` where this system cannot.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise ConfigurationError("bad_option", "this system cannot fork a process: leave --processes out")
    return multiprocessing.get_context("fork")


def refusal_of(error: Exception) -> Refusal | None:
    """Return what a person is told of an error in a child, ``None`` where it is a defect of ours."""
    refusal = explained(error)
    if not isinstance(refusal, AssayStreamError):
        return None
    return type(refusal), refusal.code, refusal.message, refusal.path


def _run(share: Share) -> tuple[Any, Refusal | None]:
    work, *writers = _job
    try:
        return work(share, writers[share.number].send), None
    except Exception as error:  # noqa: BLE001 - the end of the process
        refusal = refusal_of(error)
        if refusal is None:
            traceback.print_exc()
            os._exit(1)
        return None, refusal
