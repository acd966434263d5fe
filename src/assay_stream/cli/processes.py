"""A job done by several processes, each its share of it."""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, TypeVar, cast

from assay_stream.errors import AssayStreamError, ConfigurationError, OperatingError
from assay_stream.kafka.refusals import explained
from assay_stream.verify.judging import Share

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext

Result = TypeVar("Result")
Tell = Callable[[str], None]
_LINE, _DONE, _REFUSED = "line", "done", "refused"


def in_processes(work: Callable[[Share, Tell], Result], count: int, tell: Tell) -> list[Result]:
    """Do a job in processes of their own, and return what each share came to, in the order of shares.

    Args:
        work: does one share; it is given what takes its lines.
        count: how many processes.
        tell: takes the lines of all, in the order in which they come.

    Raises:
        AssayStreamError: what a share was refused for.
        ConfigurationError: ``bad_option`` where this system cannot copy a process.
        OperatingError: ``process_ended`` where one ended without a result.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise ConfigurationError("bad_option", "this system cannot copy a process: leave --processes out")
    context: ForkContext = multiprocessing.get_context("fork")
    processes, shares_of = [], {}
    for number in range(count):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(work, Share(number, count), theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        shares_of[ours] = number
    results: dict[int, Result] = {}
    try:
        while open_pipes := [pipe for pipe, number in shares_of.items() if number not in results]:
            for pipe in cast("list[Connection]", wait(open_pipes)):
                kind, told = _received(pipe)
                if kind == _LINE:
                    tell(told)
                elif kind == _REFUSED:
                    raise told
                else:
                    results[shares_of[pipe]] = told
    finally:
        for process in processes:
            process.terminate()
            process.join()
    return [results[number] for number in range(count)]


def _received(pipe: Connection) -> tuple[str, Any]:
    try:
        kind, told = pipe.recv()
    except EOFError:
        raise OperatingError(
            "process_ended", "one of the processes ended before its work was done: look for what killed it"
        ) from None
    if kind == _REFUSED:
        made, code, message, path = told
        return kind, made(code, message, path=path)
    return kind, told


def _run(work: Callable[[Share, Tell], Result], share: Share, pipe: Connection) -> None:
    try:
        result = work(share, lambda line: pipe.send((_LINE, line)))
    except Exception as error:  # noqa: BLE001 - this is the end of the process
        told = explained(error)
        if not isinstance(told, AssayStreamError):
            traceback.print_exc()
            sys.exit(1)
        pipe.send((_REFUSED, (type(told), told.code, told.message, told.path)))
        return
    pipe.send((_DONE, result))
