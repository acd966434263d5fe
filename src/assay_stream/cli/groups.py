"""How ``--help`` lists commands: by task, the most used first, each with its whole first sentence."""

from collections.abc import Mapping
from typing import Any

from typer.core import TyperGroup

TASKS: Mapping[str, tuple[str, ...]] = {
    "Start here": ("demo",),
    "Look and hunt": (
        *("alerts", "evidence", "tools", "servers", "observers"),
        *("trace", "timeline", "asof", "coverage"),
    ),
    "Decide": ("pins", "policy", "keys"),
    "Observe": ("tap", "list-watch", "ingest", "extmcp", "publish"),
    "Run": ("topics", "worker", "store", "console", "agents", "completion"),
    "Verify and replay": ("verify", "compare", "replay", "archive", "seal", "export", "bundle"),
    "Check definitions and records": ("drift", "fingerprint", "validate", "handshake", "schemapin"),
}
_SENTENCE_CHARS_MAX = 300


class Sentences(TyperGroup):
    """A group of commands whose descriptions are wrapped, not cut."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in the order in which they were added."""
        self._section(ctx, formatter, "Commands", self.list_commands(ctx))

    def _section(self, ctx: Any, formatter: Any, title: str, names: list[str]) -> None:
        commands = [(name, command) for name in names if (command := self.get_command(ctx, name)) is not None]
        rows = [(name, each.get_short_help_str(_SENTENCE_CHARS_MAX)) for name, each in commands if not each.hidden]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


class Tasks(Sentences):
    """The command line as a whole: commands by task, and what belongs to none at the end."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each task."""
        known = self.list_commands(ctx)
        for task, names in TASKS.items():
            self._section(ctx, formatter, task, [name for name in names if name in known])
        named = {name for names in TASKS.values() for name in names}
        self._section(ctx, formatter, "Other", [name for name in known if name not in named])
