"""What commands share: options, sentences to a person, exit codes, interrupts."""

from __future__ import annotations

import gc
import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from assay_stream.text.escaping import visible

NOTHING_FOUND = 5
"""Exit code if nothing matches."""

Bootstrap = Annotated[
    str | None, typer.Option(help="Kafka brokers, host:port. Default: ASSAY_STREAM_BOOTSTRAP_SERVERS.")
]
ObserverId = Annotated[
    str | None, typer.Option(envvar="ASSAY_STREAM_OBSERVER_ID", help="Name of this proxy. Default: the host's name.")
]
Unscoped = Annotated[bool, typer.Option("--unscoped", help="Leave the server's id out of the tool definition digest.")]
AuthContext = Annotated[
    str | None, typer.Option(help="A label (not a secret) for the permissions under which the server is queried.")
]

RedactionEnable = Annotated[
    str | None,
    typer.Option(help="Redaction rules to turn on, comma separated. Default: ASSAY_STREAM_REDACTION_ENABLE."),
]
RedactionDisable = Annotated[
    str | None,
    typer.Option(help="Redaction rules to turn off, comma separated. Default: ASSAY_STREAM_REDACTION_DISABLE."),
]
RedactionNames = Annotated[
    str | None,
    typer.Option(help="Further sensitive key names, comma separated. Default: ASSAY_STREAM_REDACTION_NAMES."),
]
SnapshotPartitions = Annotated[
    int | None, typer.Option(min=1, help="Partitions of the snapshot topic that the files were read from.")
]


def quiet_client_logs() -> None:
    """Keep the Kafka client from logging every attempt to connect: the command itself says what failed."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def say(text: str) -> None:
    """Print a sentence for a person to standard error."""
    typer.echo(f"assay-stream: {visible(text)}", err=True)


class InertFormatter(logging.Formatter):
    """Writes out what a terminal would act on; a stack trace keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        """Return the line of a record."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base class's name
        """Return the stack trace of an exception."""
        return visible(super().formatException(ei), keep="\n")


def observer_or_host(observer_id: str | None) -> str:
    """Return the observer's name, by default the host's."""
    return observer_id if observer_id is not None else socket.gethostname()


_THRESHOLDS = (50_000, 50, 100)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Collect garbage less often: records come and go by the hundred thousand and form no reference cycles."""
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def noting_interrupts() -> Iterator[list[int]]:
    """Note SIGINT and SIGTERM instead of dying of them; a second one kills as usual."""
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
