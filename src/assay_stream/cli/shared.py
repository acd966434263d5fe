"""Shared by commands: how they declare options, and messages, Kafka connections, exit codes and interrupts."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import copy
from dataclasses import MISSING, Field, field, fields, is_dataclass
from enum import EnumType
from functools import wraps
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from assay_stream.config import Settings
from assay_stream.errors import InputError, OperatingError
from assay_stream.kafka.connection import AIOKafkaAdminClient, Consumer, TopicPartition, open_admin
from assay_stream.kafka.part import SILENCE_LIMIT_S, BrokerWatch, Follower
from assay_stream.kafka.ranges import note_ends
from assay_stream.kafka.topics import topic_names
from assay_stream.limits import REFUSED_NAMED_MAX, REFUSED_RECORDS_MAX
from assay_stream.model.record import Record, Role
from assay_stream.text.escaping import counted, shown, visible

_DECLARED = "declared"
_is_incomplete: ContextVar[bool] = ContextVar("is_incomplete", default=False)
_SPANS = (("since", "until"), ("since_us", "until_us"), ("from_time", "to_time"))
"""Names of parameters that are the ends of a span."""


def option(help_: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """Declare an option: as the default of a parameter or field, or in ``Annotated`` if it is required or shared."""
    return field(default=default, metadata={_DECLARED: typer.Option(..., *names, help=help_, **settings)})


def flag(help_: str, *names: str) -> Any:
    """Declare an option without a value, whose name is the parameter's by default."""
    return option(help_, *names, default=False)


def argument(help_: str, **settings: Any) -> Any:
    return field(default=None, metadata={_DECLARED: typer.Argument(help=help_, **settings)})


def grouped(command: Callable[..., int | None]) -> Callable[..., None]:
    """Give a command the options that its parameters declare; each field of a dataclass among them is an option.

    What it returns is the exit code; code 3 takes the place of 0 and 5 after ``note_incomplete``.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind) and isinstance(kind, type)}
    options: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            for each in fields(groups[name]):
                options[each.name] = _parameter(each.name, types[each.name], each if each.metadata else each.default)
        else:
            options[name] = _parameter(name, hints[name], parameter.default)

    @wraps(command)
    def run(**given: Any) -> None:
        for names in _SPANS:
            first, last = map(given.get, names)
            if first is not None and last is not None and first > last:
                # Its empty result would look as if nothing had happened.
                first, last = (f"--{name.removesuffix('_us').replace('_', '-')}" for name in names)
                raise InputError("bad_time", f"{first} is after {last}: swap them")
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        _is_incomplete.set(False)
        try:
            code = int(command(**given) or 0)
        except typer.Exit as ended:
            code = ended.exit_code
        if code in (0, NOTHING_FOUND) and _is_incomplete.get():
            code = INCOMPLETE  # that nothing was found means little then
        if code:
            raise typer.Exit(code)

    run.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in options.items()}
    return run


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return a parameter as typer declares them."""
    declared = default if isinstance(default, Field) else None
    if declared is not None:
        default = declared.default
    elif get_origin(annotation) is Annotated and isinstance(annotation.__metadata__[0], Field):
        annotation, declared = get_args(annotation)
    if declared is not None:
        info = copy(declared.metadata[_DECLARED])
        if annotation is bool and not info.param_decls:
            info.param_decls = (f"--{name.replace('_', '-')}",)  # and no --no-...
        if info.metavar is None and isinstance(info, OptionInfo):
            info.metavar = _metavar(annotation)
        annotation = Annotated[annotation, info]
    default = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _metavar(annotation: Any) -> str | None:
    """Return the placeholder of a value in help, where typer would print the Python type."""
    kinds = {str: "TEXT", Path: "PATH", int: "NUMBER", float: "NUMBER"}
    while get_origin(annotation) in (UnionType, Union, list):
        annotation = get_args(annotation)[0]
    if isinstance(annotation, EnumType):
        return f"<{'|'.join(annotation)}>"
    return kinds.get(annotation)


class Plain(TyperCommand):
    """A command whose help shows arguments by their placeholders alone, as it does the values of options."""

    def __init__(self, *names: Any, **settings: Any) -> None:
        super().__init__(*names, **settings)
        for each in settings["params"]:
            if each.param_type_name == "argument":
                name = each.name.upper() if each.required else f"[{each.name.upper()}]"
                each.metavar = each.metavar or (name if each.nargs == 1 else f"{name}...")
                each.get_usage_pieces = lambda _, placeholder=each.metavar: [placeholder]
                each.display_type_rich = lambda **_: None


INCOMPLETE = 3
"""Exit code if not everything could be read: there may be more than what is shown."""
NOTHING_FOUND = 5
"""Exit code if nothing matches."""
PIPE_CLOSED = 128 + 13
"""Exit code if nobody reads the output any longer, as SIGPIPE gives it: 1 is the answer of many commands."""
Result = TypeVar("Result")


def quiet_client_logs() -> None:
    """Silence the Kafka client's connection logging: the command itself reports what failed."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


class _Output(FileIO):
    """Standard output. That it fails is no error of a file that is written meanwhile, nor of brokers."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            drop_output()
            raise SystemExit(PIPE_CLOSED) from None
        except OSError as error:
            why = f"cannot write to standard output: {error.strerror}"
            raise OperatingError("unwritable_file", why) from None


class _Messages(FileIO):
    """Standard error. What cannot be written there is lost, and changes no answer and no exit code."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def drop_output() -> None:
    """Write output to nowhere: what is buffered would fail once more at exit, and change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def set_up_streams() -> None:
    """Write UTF-8 whatever the locale: it may lack our marks, and a stranger's text may hold what stood for them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    out, messages = sys.__stdout__, sys.__stderr__
    if out is None:  # closed: an answer would be lost, and nobody told
        raw = _Output(os.open(os.devnull, os.O_RDONLY), "wb")
        sys.stdout = TextIOWrapper(BufferedWriter(raw), encoding="utf-8")
    elif out is sys.stdout and not out.isatty():
        raw = _Output(out.fileno(), "wb", closefd=False)
        sys.stdout = TextIOWrapper(BufferedWriter(raw), encoding="utf-8", errors="backslashreplace")
    if messages is not None and messages is sys.stderr and not messages.isatty():
        told = BufferedWriter(_Messages(messages.fileno(), "wb", closefd=False))
        sys.stderr = TextIOWrapper(told, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def say(text: str) -> None:
    """Print a message to standard error."""
    typer.echo(f"assay-stream: {shown(text)}", err=True)


class InertFormatter(logging.Formatter):
    """Escape terminal control characters; stack traces keep their lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base class's name
        return visible(super().formatException(ei), keep="\n")


def log_to_stderr(command: str) -> None:
    """Write warnings to standard error, under the name of a command."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(InertFormatter(f"assay-stream {command}: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


async def as_admin(
    settings: Settings, work: Callable[[AIOKafkaAdminClient, Settings], Coroutine[Any, Any, Result]]
) -> Result:
    async with open_admin(settings, waiting=say) as admin:
        return await work(admin, settings)


@contextmanager
def brokers_of(settings: Settings) -> Iterator[asyncio.Runner]:
    """Wait for the brokers, and yield an event loop runner for using them."""
    with asyncio.Runner() as runner:
        runner.run(as_admin(settings, lambda *_: asyncio.sleep(0)))
        yield runner


def on_kafka(settings: Settings, work: Callable[[Settings], Coroutine[Any, Any, Result]]) -> Result:
    """Run a function that reads or writes topics once the brokers answer."""
    with brokers_of(settings) as runner:
        return runner.run(work(settings))


def ends_now(settings: Settings, role: Role) -> Mapping[int, int]:
    return on_kafka(settings, lambda settings: note_ends(settings, (role,)))[role]


def follow(
    settings: Settings, role: Role, take: Callable[[Sequence[Record]], None], *, starts: Mapping[int, int] | None = None
) -> None:
    """Pass new records of a topic to ``take`` until interrupted."""
    topic, first = topic_names(settings)[role], ends_now(settings, role) if starts is None else starts

    async def begin(_: Consumer) -> Mapping[TopicPartition, int]:
        return {TopicPartition(topic, number): offset for number, offset in first.items()}

    async def run(settings: Settings) -> None:
        # Brokers that fall silent look to a consumer like a topic without new records.
        watch, was_silent, follower = BrokerWatch(settings), False, Follower(settings, role, begin, take, tell=say)
        _asking, working = asyncio.create_task(watch.run()), asyncio.create_task(follower.run())
        while not (await asyncio.wait((working,), timeout=1.0))[0]:
            if (is_silent := watch.silent_s > SILENCE_LIMIT_S) and not was_silent:
                say(f"no Kafka broker answers at {settings.bootstrap_servers}, still trying")
            was_silent = is_silent
        await working

    with suppress(KeyboardInterrupt):
        on_kafka(settings, run)


class Refusals(list[str]):
    """Reasons of the first refused lines; the rest are counted, since a kilobyte of gzip may hold a million lines."""

    left_out = 0

    def append(self, text: str) -> None:
        if len(self) < REFUSED_RECORDS_MAX:
            super().append(text)
        else:
            self.left_out += 1


def name_refused(refused: Refusals, most: int = REFUSED_NAMED_MAX) -> None:
    """Report the first lines that could not be read, whose content the command does without."""
    for text in refused[:most]:
        say(text)
    if more := len(refused[most:]) + refused.left_out:
        say(f"and {counted(more, 'more line')}")
    if refused:
        note_incomplete()


def note_incomplete() -> None:
    """Let the command end with code 3: not everything could be read, and there may be more than it shows."""
    _is_incomplete.set(True)


def show_refused(refused: Refusals, most: int = REFUSED_NAMED_MAX) -> None:
    """Report the first lines that could not be read, and exit with code 2 if there are any."""
    name_refused(refused, most)
    if refused:
        raise typer.Exit(2)


def stop_event() -> asyncio.Event:
    """Return an event of the running loop that SIGTERM or SIGINT sets."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


@contextmanager
def noting_interrupts() -> Iterator[list[int]]:
    """Record SIGINT and SIGTERM instead of dying; a second one kills as usual."""
    noted: list[int] = []

    def note(number: int, _: object) -> None:
        noted.append(number)
        signal.signal(number, before[number])

    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
