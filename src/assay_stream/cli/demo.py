"""``assay-stream demo``: the story of a rug pull, from recorded traffic, with no broker."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from shlex import quote
from shutil import rmtree
from typing import Any

import orjson

from assay_stream import __version__
from assay_stream.alerts.page import as_page, severity_style
from assay_stream.alerts.rules import AlertRules
from assay_stream.alerts.view import AlertRow, read_alert, short_uids
from assay_stream.cli.output import Painter
from assay_stream.cli.shared import flag, option
from assay_stream.cli.store_sources import every_row
from assay_stream.errors import ConfigurationError
from assay_stream.files.lines import read_lines
from assay_stream.files.local import writing_to
from assay_stream.files.spool import LogSpool
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import Filler
from assay_stream.readmodel.queries import Store, story
from assay_stream.readmodel.rows import AlertFilter
from assay_stream.replay.run import Replay, Results
from assay_stream.text.escaping import LineSpan, PageLine, counted, shown

TOLD = (Role.EVIDENCE, Role.ALERTS, Role.DEFINITIONS)
"""The records that a story is told from."""

CHAPTERS = (
    (
        "An agent uses two servers",
        "A tap in front of each server publishes what the server offers (tools/list) and what the agent does "
        "(tools/call). For every call assay-stream writes one record of evidence, with the digest of the tool "
        "definition that was in force.",
    ),
    (
        "A new release of {server}",
        "An ordinary upgrade: descriptions change, and nothing in them is suspicious. The evidence names the new "
        "definitions, and the alerts are low. Nobody is paged.",
    ),
    (
        "An operator approves it",
        "The operator reads the changes, pins the definitions offered now, and asks for calls of any other to be "
        "blocked. That closes the alerts about the upgrade.",
    ),
    (
        "The rug pull",
        "Same server, same tool, same answers, but the description that the model reads now tells it to leak "
        "secrets. That is one critical alert, and the tap refuses the next call before it reaches the server.",
    ),
)
DECIDED_IN = 3
"""The chapter in which an operator decides."""
PAGED_FROM = 3
"""Medium: less severe alerts page nobody."""

_COMMAND_CHARACTERS = 76
_DIGEST_CHARACTERS = len("sha256:") + 12


def decisions(server_id: str) -> list[tuple[str, ...]]:
    """Return the arguments of the operator's commands."""
    on_server = ("--server-id", server_id, "--reason", "reviewed")
    return [("pins", "approve", "--all", *on_server), ("policy", "set", "--enforcement", "block", *on_server)]


class DemoStory:
    """Collect records as the stages write them, and print each chapter from those received since the last one."""

    def __init__(self, painter: Painter, server_id: str) -> None:
        self._painter = painter
        self._server_id = server_id
        self.chapter = 0
        """The number of the chapter begun last."""
        self._filler = Filler(schema.temporary())
        self._store = Store(self._filler.connection)
        self._taken = 0
        self._changed: set[str] = set()
        self._told_calls = 0
        self.evidence: list[dict[str, Any]] = []

    def rows(self) -> list[AlertRow]:
        """Return all alerts, including closed ones."""
        return list(every_row(lambda paging: self._store.alerts(AlertFilter(state=None), paging)))

    def take(self, role: Role, value: bytes) -> None:
        """Add one record, in log order.

        Raises:
            InputError: for an invalid alert.
        """
        if role is Role.EVIDENCE:
            self.evidence.append(orjson.loads(value)["data"])
        elif role is Role.ALERTS:
            self._changed.add(read_alert(value)["finding_info"]["uid"])
        self._filler.take([Record(role, Origin(role.value, 0, self._taken), None, value)])
        self._taken += 1

    def begin(self) -> None:
        title, text = CHAPTERS[self.chapter]
        self.chapter += 1
        self.say("", f"{self.chapter}. {title.format(server=self._server_id)}", style="title")
        self.say(text)
        if self.chapter == DECIDED_IN:
            self.commands(*(f"assay-stream {' '.join(each)}" for each in decisions(self._server_id)))

    def commands(self, *commands: str) -> None:
        """Print commands, ready to paste into a shell."""
        self.say("")
        for command in commands:
            start, option, rest = command.partition(" --reason")
            is_cut = bool(option) and len(command) > _COMMAND_CHARACTERS
            pieces = [f"{start} \\", f"    {option.strip()}{rest}"] if is_cut else [command]
            self._painter.lines(
                PageLine(gutter, (LineSpan(piece),), wraps=False)
                for gutter, piece in zip(("  $ ", "    "), pieces, strict=False)
            )

    def say(self, *texts: str, style: Any = "") -> None:
        """Print sentences, one paragraph each."""
        self._painter.lines(PageLine("", (LineSpan(text, style),)) for text in texts)

    def tell(self) -> None:
        """Print what was received since the last chapter: calls with their evidence, and alerts."""
        calls = self.evidence[self._told_calls :]
        self._told_calls = len(self.evidence)
        if calls:
            self.say("")
            self._painter.table(("server", "tool", "decision", "definition", "pin"), map(_call_cells, calls))
        known = self.rows()
        rows = sorted(
            (row for row in known if row.uid in self._changed),
            key=lambda row: (-row.severity_id, row.server_id, row.tool_name),
        )
        self._changed.clear()
        if not rows:
            return
        self.say("")
        short = short_uids(row.uid for row in known)
        cells: list[list[str | LineSpan]] = [
            [
                short[row.uid],
                LineSpan(shown(row.severity.lower()), severity_style(row.severity_id)),
                *(shown(text) or "-" for text in (row.kind, row.server_id, row.tool_name, row.state.value)),
            ]
            for row in rows
        ]
        self._painter.table(("alert", "severity", "kind", "server", "tool", "state"), cells)
        for row in rows:
            if row.severity_id >= PAGED_FROM:
                self._painter.lines(as_page(story(self._store, self._store.alert(row.uid)), "signs", "definition"))

    def first_paged(self) -> str:
        """Return the short uid of the first alert severe enough to page."""
        rows = self.rows()
        short = short_uids(row.uid for row in rows)
        return next(short[row.uid] for row in rows if row.severity_id >= PAGED_FROM)

    def end(self) -> bool:
        """Print the totals; return True if every call has evidence and the story is complete."""
        bound = sum("tool_definition_digest" in call for call in self.evidence)
        refused = sum(call["decision"] == "deny" for call in self.evidence)
        paged = sum(row.severity_id >= PAGED_FROM for row in self.rows())
        self.say(
            "",
            f"Evidence: {counted(len(self.evidence), 'call')}, "
            f"{bound} of them bound to a definition, {refused} refused. "
            f"Alerts of medium severity or higher: {paged}.",
        )
        return bound == len(self.evidence) == len({call["tool_call_id"] for call in self.evidence}) and paged == 1


def _call_cells(call: dict[str, Any]) -> list[str | LineSpan]:
    digest = str(call.get("tool_definition_digest", call.get("unbound_reason")))
    return [
        shown(call["server_id"]),
        shown(call["tool"]),
        LineSpan(shown(call["decision"]), "grave" if call["decision"] == "deny" else ""),
        digest[:_DIGEST_CHARACTERS] + "…" if digest.startswith("sha256:") else digest,
        shown(call["pin"]["status"]),
    ]


_COLUMNS = 80
_SERVER_ID = "notes"
_OBSERVED = "observed.ndjson"


def demo(
    no_broker: bool = flag("Use recorded traffic and files, without Kafka."),
    output: Path = option("Folder to write to; it must not exist.", default=Path("assay-stream-demo")),
) -> bool:
    """Show what assay-stream does: a benign upgrade, an approval, a rug pull, a refused call.

    Recorded MCP traffic of small servers goes through the same stages as in production. Needs no Kafka, no Java and no
    network, and writes into a new folder only. With real servers on a real broker: `make demo` in a checkout.
    """
    if not no_broker:
        raise ConfigurationError(
            "bad_option", "add --no-broker; the demo with a broker is `make demo`, in a checkout of the repository"
        )
    return not tell(output)


def tell(folder: Path) -> bool:
    """Replay the recorded chapters into a new folder, and print the story; return True if it is complete."""
    if folder.exists() or folder.is_symlink():
        raise ConfigurationError("output_exists", f"{folder} exists: name a new folder with --output")
    data = files(__package__) / "data" / "demo"
    chapters = [(data / f"{number}.ndjson").read_bytes().splitlines() for number in range(1, len(CHAPTERS) + 1)]
    lines = [line for chapter in chapters for line in chapter]
    story = DemoStory(Painter("auto", columns=_COLUMNS), _SERVER_ID)
    with writing_to(folder), ExitStack() as undone, Results(folder, {}) as results, LogSpool() as spool:
        # Part of a story only keeps the same command from telling all of it.
        undone.callback(rmtree, folder, ignore_errors=True)
        for record in read_lines(lines, name=_OBSERVED):
            spool.add(record)
        spool.finish()
        (folder / _OBSERVED).write_bytes(b"".join(line + b"\n" for line in lines))
        results.start()
        # Time advances between records only, so what is due then belongs to the chapter before; the last step to none.
        steps = Replay(
            spool, producer=Producer(version=__version__), alert_rules=AlertRules(version=__version__)
        ).steps()
        for chapter in chapters:
            story.begin()
            for _ in chapter:
                for written in next(steps):
                    results.write(written)
                    if written.role in TOLD:
                        story.take(written.role, written.value or b"")
            story.tell()
        for written in next(steps):
            results.write(written)
        results.end()
        undone.pop_all()
    if not story.end():
        return False
    alerts, uid = quote(str(folder / "alerts.ndjson")), story.first_paged()
    story.say("", f"The records are in {folder}. To look at them:")
    story.commands(
        f"assay-stream alerts list --input {alerts}",
        f"assay-stream alerts show {uid} --input {alerts}",
        f"assay-stream alerts explain {uid} --input {alerts}",
    )
    store = quote(str(folder / "store"))
    story.say("", "The same in a browser (needs the extra `console`), at http://127.0.0.1:8090/:")
    story.commands(
        f"assay-stream store load --store {store} {quote(str(folder / _OBSERVED))}",
        f"assay-stream console --store {store}",
    )
    return True
