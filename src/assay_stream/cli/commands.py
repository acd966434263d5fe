"""The commands and where each is defined.

A module is imported only when its command runs: a tap runs in front of every server of an agent, and must not delay its
start or use memory for other commands.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.models import CommandInfo

from assay_stream.errors import needing_extra

TASKS: Mapping[str, Mapping[str, str]] = {
    "Start here": {"demo": "demo:demo"},
    "Look and hunt": {
        "alerts": "alerts_group:alerts_app",
        "evidence": "evidence:evidence_app",
        "tools": "inventory:tools_app",
        "servers": "inventory:servers_app",
        "observers": "inventory:observers_app",
        "trace": "looking_back:trace",
        "timeline": "looking_back:timeline",
        "asof": "looking_back:asof",
        "coverage": "coverage:coverage",
    },
    "Decide": {"pins": "pins:pins_app", "policy": "policy_plan:policy_app", "keys": "rules:keys_app"},
    "Observe": {
        "tap": "tap:tap_command",
        "list-watch": "list_watch:list_watch",
        "ingest": "ingest:ingest_app",
        "extmcp": "extmcp:extmcp",
        "publish": "publishing:publish",
    },
    "Run": {
        "topics": "operating:topics_app",
        "worker": "operating:worker",
        "store": "store:store_app",
        "console": "console:console_app",
        "agents": "agents:agents_app",
        "completion": "completion:completion",
    },
    "Verify and replay": {
        "verify": "verify:verify",
        "compare": "compare:compare",
        "replay": "replay:replay",
        "archive": "archiving:archive",
        "seal": "seal_group:seal_app",
        "export": "exporting:export_app",
        "bundle": "exporting:bundle_app",
    },
    "Check definitions and records": {
        "drift": "drift:drift",
        "fingerprint": "fingerprint:fingerprint",
        "validate": "validate:validate",
        "handshake": "handshake:handshake_app",
        "schemapin": "schemapin:schemapin_app",
    },
}
"""By task, in the order of ``--help``, the most used first: each command, with the module here and the name in it."""

_FORMER = {"conformance": "handshake:former_check"}
_PLACES = {name: place for places in TASKS.values() for name, place in places.items()} | _FORMER
_SENTENCE_CHARS_MAX = 300


class Sentences(TyperGroup):
    """A group of commands whose descriptions are wrapped, not cut."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in declaration order."""
        self._section(ctx, formatter, "Commands", self.list_commands(ctx))

    def _section(self, ctx: Any, formatter: Any, title: str, names: list[str]) -> None:
        commands = [(name, command) for name in names if (command := self.get_command(ctx, name)) is not None]
        rows = [(name, each.get_short_help_str(_SENTENCE_CHARS_MAX)) for name, each in commands if not each.hidden]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


class _Commands(Mapping[str, Any]):
    """The commands by name, each created on first access."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        place = _PLACES[name]
        if name not in self._made:
            self._made[name] = _command_at(place, name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


def _command_at(place: str, name: str) -> Any:
    """Make the command from a function, a Typer group or a ``CommandInfo``."""
    module, _, attribute = place.partition(":")
    with needing_extra("cli"):
        found = getattr(import_module(f"assay_stream.cli.{module}"), attribute)
    app = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name, cls=Sentences)
    elif isinstance(found, CommandInfo):
        app.registered_commands.append(found)
    else:
        app.command(name)(found)
    return typer.main.get_group(app).commands[name]


class Tasks(Sentences):
    """The top-level command group, listing commands by task."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the base class's parameter
        """Return all command names without importing any of them."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the base class's parameter
        """Return a command, ``None`` if there is none of this name; import errors propagate."""
        return self.commands[cmd_name] if cmd_name in _PLACES else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for task, places in TASKS.items():
            self._section(ctx, formatter, task, list(places))
