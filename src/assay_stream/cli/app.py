"""The ``assay-stream`` command and its error handling."""

import sys
from typing import Annotated

import typer

from assay_stream import __version__
from assay_stream.cli import completion
from assay_stream.cli.commands import Tasks
from assay_stream.cli.shared import quiet_client_logs, say
from assay_stream.errors import AssayStreamError, IntegrityError, OperatingError
from assay_stream.kafka.refusals import explained

app = typer.Typer(
    name="assay-stream",
    cls=Tasks,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_EXIT_CODES: dict[type[AssayStreamError], int] = {OperatingError: 3, IntegrityError: 4}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: ARG001 - acts through its callback
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Record which tool definition each MCP tool call used, as evidence on Kafka.

    New here? `assay-stream demo --no-broker` shows what it does in seconds, without Kafka or Java.
    """
    quiet_client_logs()


def run() -> None:
    completion.prepare()
    try:
        app()
    except Exception as error:
        known = explained(error)
        if known is None:
            raise
        say(str(known))
        sys.exit(_EXIT_CODES.get(type(known), 2))
