"""The ``assay-stream`` command: its commands and where each is defined, shell completion, and error handling.

A module is imported only when its command runs: a tap runs in front of every server of an agent, and must not delay its
start or use memory for other commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Literal

import typer
from typer.completion import get_completion_inspect_parameters, show_callback
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandInfo

from assay_stream import __version__
from assay_stream.cli.shared import Plain, argument, drop_output, grouped, quiet_client_logs, say, set_up_streams
from assay_stream.config import Settings
from assay_stream.errors import AssayStreamError, InputError, IntegrityError, OperatingError, needing_extra
from assay_stream.files.local import path_text
from assay_stream.kafka.refusals import explained

TASKS: Mapping[str, Mapping[str, str]] = {
    "Start here": {"demo": "demo:demo"},
    "Look and hunt": {
        "alerts": "alerts:alerts_app",
        "evidence": "evidence:evidence_app",
        "tools": "inventory:tools_app",
        "servers": "inventory:servers_app",
        "observers": "inventory:observers_app",
        "trace": "inventory:trace",
        "timeline": "inventory:timeline",
        "asof": "inventory:asof",
        "coverage": "inventory:coverage",
    },
    "Decide": {"pins": "decisions:pins_app", "policy": "decisions:policy_app", "keys": "decisions:keys_app"},
    "Observe": {
        "tap": "tap:tap_command",
        "list-watch": "tap:list_watch",
        "ingest": "publishing:ingest_app",
        "extmcp": "tap:extmcp",
        "publish": "publishing:publish",
    },
    "Run": {
        "topics": "operating:topics_app",
        "worker": "operating:worker",
        "store": "store:store_app",
        "console": "console:console_app",
        "agents": "operating:agents_app",
        "deploy": "kubernetes:deploy_app",
        "completion": "app:completion",
    },
    "Verify and replay": {
        "verify": "verify:verify",
        "compare": "verify:compare",
        "replay": "replay:replay",
        "archive": "archiving:archive",
        "seal": "seal:seal_app",
        "export": "archiving:export_app",
        "bundle": "archiving:bundle_app",
    },
    "Check definitions and records": {
        "drift": "definitions:drift",
        "fingerprint": "definitions:fingerprint",
        "validate": "definitions:validate",
        "handshake": "definitions:handshake_app",
        "schemapin": "definitions:schemapin_app",
    },
}
"""By task, in the order of ``--help``, the most used first: each command, with the module here and the name in it."""

_PLACES = {name: place for places in TASKS.values() for name, place in places.items()}
_SENTENCE_CHARS_MAX = 300


class Sentences(TyperGroup):
    """A group of commands whose descriptions are wrapped, not cut."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        self._section(ctx, formatter, "Commands", self.list_commands(ctx))

    def _section(self, ctx: Any, formatter: Any, title: str, names: list[str]) -> None:
        commands = [(name, command) for name in names if (command := self.get_command(ctx, name)) is not None]
        with formatter.section(title):
            formatter.write_dl([(name, each.get_short_help_str(_SENTENCE_CHARS_MAX)) for name, each in commands])


@cache
def _command(name: str) -> Any:
    """Import a command: a function, a Typer group or a ``CommandInfo``."""
    module, _, attribute = _PLACES[name].partition(":")
    with needing_extra("cli"):
        found = getattr(import_module(f"assay_stream.cli.{module}"), attribute)
    app = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name, cls=Sentences)
    elif isinstance(found, CommandInfo):
        app.registered_commands.append(found)
    else:
        app.command(name)(found)
    _give_options(app)
    return typer.main.get_group(app).commands[name]


def _give_options(app: typer.Typer) -> None:
    for command in app.registered_commands:
        if command.cls in (None, TyperCommand):
            command.cls = Plain
    for info in (*app.registered_commands, app.registered_callback):
        if info is not None and info.callback is not None:
            info.callback = grouped(info.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _give_options(group.typer_instance)


class Tasks(Sentences):
    """The top-level command group, listing commands by task."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(_PLACES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the base class's parameter
        """Return a command, ``None`` if there is none of this name; import errors propagate."""
        return _command(cmd_name) if cmd_name in _PLACES else None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # typer checks values with pydantic, and passes on how that begins a message.
            error.message = error.message.removeprefix("Value error, ")
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for task, places in TASKS.items():
            self._section(ctx, formatter, task, list(places))


COMMAND = "assay-stream"
_ASKED = "_ASSAY_STREAM_COMPLETE"


def completion(
    context: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], argument("The shell.", metavar="<bash|zsh|fish>")],
) -> None:
    """Print the shell script that completes commands, options and choices. Load it in the shell's start-up file.

    bash, in ~/.bashrc: eval "$(assay-stream completion bash)"

    zsh, in ~/.zshrc after compinit: eval "$(assay-stream completion zsh)"

    fish: assay-stream completion fish > ~/.config/fish/completions/assay-stream.fish
    """
    prepare(asked=True)
    # However this was started, the script is for the installed command.
    root = typer.Context(context.find_root().command, info_name=COMMAND)
    show_callback(root, root.command.params[0], shell)


def prepare(*, asked: bool | None = None) -> None:
    """Register the shells with typer if one is requesting completions, or as ``asked`` states."""
    if asked if asked is not None else _ASKED in os.environ:
        get_completion_inspect_parameters()


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
    known = [f"ASSAY_STREAM_{name.upper()}" for name in (*Settings.model_fields, "author", "observer_id")]
    for name in sorted(name for name in map(str.upper, os.environ) if name.startswith("ASSAY_STREAM_")):
        if name not in known:
            say(f"ignored {name}: there is no such setting; the closest is {get_close_matches(name, known, 1, 0)[0]}")


def run() -> None:
    set_up_streams()
    prepare()
    try:
        app()
    except Exception as error:
        known = explained(error)
        if known is None and isinstance(error, OSError) and error.filename is not None:
            # Merely asking whether a path exists fails in a folder that this user may not search.
            known = InputError("unreadable_file", f"cannot use {path_text(error.filename)}: {error.strerror}")
        if known is None:
            raise
        say(str(known))
        try:
            print(end="", flush=True)
        except OperatingError:
            drop_output()
        sys.exit(_EXIT_CODES.get(type(known), 2))
