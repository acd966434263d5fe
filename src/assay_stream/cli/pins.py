"""``assay-stream pins``: what operators decided about definitions, and how to decide."""

from __future__ import annotations

import asyncio
import difflib
import json
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_stream import __version__
from assay_stream.cli.deciding import (
    AnyServerId,
    AnyTool,
    AsJson,
    Author,
    EventFile,
    Reason,
    ServerId,
    decide,
    known_bindings,
    print_rows,
)
from assay_stream.cli.files import read_input
from assay_stream.cli.output import print_line
from assay_stream.cli.shared import Bootstrap, say
from assay_stream.errors import InputError
from assay_stream.kafka.lookup import find_finding, read_definitions
from assay_stream.limits import PIN_FILE_LIMITS
from assay_stream.model.control import PIN_REJECT_TYPE, PIN_REMOVE_TYPE, PIN_SET_TYPE
from assay_stream.registry.server import ServerBindings
from assay_stream.registry.state import Bindings
from assay_stream.registry.timeline import AFTER_ALL_US
from assay_stream.report.pins import (
    approved_entries,
    history_rows,
    offered_now,
    pin_rows,
    server_of,
    tools_offered_now,
    values_to_decide,
)
from assay_stream.schemes.pin_files import LockfileStamp, read_pins, write_pins
from assay_stream.text.escaping import visible

pins_app = typer.Typer(help="Review, approve and reject tool definitions.", no_args_is_help=True)


class PinFormat(StrEnum):
    """What a file of pins holds."""

    NATIVE = "native"
    ASSAY = "assay"
    HANGAR = "hangar"
    MCPTRUST = "mcptrust"


class LockfileVersion(StrEnum):
    """Version of a MCPTrust lockfile."""

    V2 = "2.0"
    V3 = "3.0"


Tool = Annotated[str | None, typer.Option("--tool", help="The tool.")]
Alert = Annotated[
    str | None,
    typer.Option(help="Decide on what this alert is about: its uid, or the beginning that `alerts list` shows."),
]
Digest = Annotated[str | None, typer.Option(help="Full digest of the definition, where several are in force.")]
Schemes = Annotated[
    list[str] | None,
    typer.Option("--scheme", help="Default: those the tool is pinned under, else assay.p60. May be repeated."),
]
_CLOSING = (
    "alerts that this ends are closed when the settle time has passed (ASSAY_STREAM_ALERT_SETTLE_S of the worker, "
    "default 600 s)"
)
_LIST_COLUMNS = ("server_id", "tool_name", "scheme", "state", "standing", "author", "since", "value")
_HISTORY_COLUMNS = ("time", "change", "server_id", "tool_name", "scheme", "value", "author", "reason")


@pins_app.command("list")
def list_pins(
    server_id: AnyServerId = None, tool: AnyTool = None, as_json: AsJson = False, bootstrap_servers: Bootstrap = None
) -> None:
    """Show the decisions in force, and how what is offered now stands to them.

    A pinned tool that no list in force has is shown as unobserved. A match says that two values are equal.
    """
    _, bindings = known_bindings(bootstrap_servers)
    print_rows(pin_rows(bindings, server_id=server_id, tool_name=tool), _LIST_COLUMNS, as_json=as_json)


@pins_app.command()
def history(
    server_id: AnyServerId = None, tool: AnyTool = None, as_json: AsJson = False, bootstrap_servers: Bootstrap = None
) -> None:
    """Show every decision on pins, policies and keys, oldest first, superseded ones included."""
    _, bindings = known_bindings(bootstrap_servers)
    rows = history_rows(bindings, server_id=server_id, tool_name=tool)
    print_rows(rows, _HISTORY_COLUMNS, as_json=as_json)


@pins_app.command()
def approve(
    reason: Reason,
    server_id: AnyServerId = None,
    tool: Tool = None,
    every: Annotated[bool, typer.Option("--all", help="Every tool that the server offers now.")] = False,
    alert: Alert = None,
    digest: Digest = None,
    scheme: Schemes = None,
    author: Author = None,
    output: EventFile = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Pin tools to the definitions that are in force, or to the one that an alert is about.

    Another definition is a mismatch from now on, until somebody approves it.
    """
    _decide_on(PIN_SET_TYPE, reason, server_id, tool, every, alert, digest, scheme, author, output, bootstrap_servers)


@pins_app.command()
def reject(
    reason: Reason,
    server_id: AnyServerId = None,
    tool: Tool = None,
    alert: Alert = None,
    digest: Digest = None,
    scheme: Schemes = None,
    author: Author = None,
    output: EventFile = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Reject a definition: it is a mismatch from now on, whatever else is pinned."""
    _decide_on(
        PIN_REJECT_TYPE, reason, server_id, tool, False, alert, digest, scheme, author, output, bootstrap_servers
    )


@pins_app.command()
def remove(
    server_id: ServerId,
    tool: Annotated[str, typer.Option("--tool", help="The tool.")],
    reason: Reason,
    scheme: Annotated[str, typer.Option(help="The scheme of the pin.")],
    value: Annotated[
        str | None, typer.Option(help="Take back the decision on this value only, a rejection too.")
    ] = None,
    author: Author = None,
    output: EventFile = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Withdraw a decision."""
    data = {"server_id": server_id, "tool_name": tool, "scheme": scheme, "value": value}
    decide([(PIN_REMOVE_TYPE, data)], author=author, reason=reason, output=output, bootstrap=bootstrap_servers)
    say(f"removed: {tool} on {server_id}, {scheme}")


@pins_app.command("import")
def import_pins(
    file: Annotated[Path, typer.Argument(help="A lockfile, a list of pins or a policy; `-` for standard input.")],
    source: Annotated[PinFormat, typer.Option("--format", help="What the file holds.")],
    reason: Reason,
    server_id: AnyServerId = None,
    author: Author = None,
    output: EventFile = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Set the pins that a file holds. Native files name their servers; others need --server-id."""
    raw = read_input(file, bytes_max=PIN_FILE_LIMITS.record_bytes_max)
    try:
        entries = read_pins(raw, format=source.value, server_id=server_id)
    except InputError as error:
        raise InputError(error.code, f"{file}: {error.message}", path=error.path) from None
    for entry in entries:
        if entry.server_id is None:
            raise InputError("server_not_named", "the file names no server: give --server-id")
    decisions = [
        (PIN_SET_TYPE, {name: value for name, value in entry._asdict().items() if value is not None})
        for entry in entries
    ]
    count = decide(decisions, author=author, reason=reason, output=output, bootstrap=bootstrap_servers)
    say(f"set {count} pins")


@pins_app.command("export")
def export_pins(
    target: Annotated[PinFormat, typer.Option("--format", help="What to write.")] = PinFormat.NATIVE,
    server_id: AnyServerId = None,
    lockfile_version: Annotated[
        LockfileVersion, typer.Option(help="Of a MCPTrust lockfile; `mcptrust check` needs 3.0.")
    ] = LockfileVersion.V2,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Write the approved values to standard output. What the format cannot hold is named, and exit code is 1."""
    if target is not PinFormat.NATIVE and server_id is None:
        raise InputError("server_not_named", f"a file of format {target} is about one server: give --server-id")
    _, bindings = known_bindings(bootstrap_servers)
    entries = approved_entries(bindings, server_id=server_id)
    stamp = None
    if lockfile_version is LockfileVersion.V3:
        stamp = LockfileStamp(f"assay-stream/{__version__}", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    raw, left_out = write_pins(entries, format=target.value, server_id=server_id, lockfile_stamp=stamp)
    sys.stdout.buffer.write(raw if raw.endswith(b"\n") else raw + b"\n")
    sys.stdout.buffer.flush()
    for entry in left_out:
        say(f"{target} files cannot hold a pin under {entry.scheme}: {entry.tool_name} left out (approve --scheme)")
    if left_out:
        raise typer.Exit(1)


@pins_app.command()
def diff(server_id: ServerId, tool: Tool = None, bootstrap_servers: Bootstrap = None) -> None:
    """Show how pinned tools differ from what is offered now. Exit code 1 if any does."""
    settings, bindings = known_bindings(bootstrap_servers)
    server = server_of(bindings, server_id)
    rows = list(pin_rows(bindings, server_id=server_id, tool_name=tool))
    if not rows:
        say("no decision is in force, so there is nothing to compare with")
        return
    rejected = [row["tool_name"] for row in rows if row["state"] == "rejected" and "rejected" in row["standing"]]
    pairs = list(_differing(bindings, server, server_id, tool))
    digests = {digest for _, _, *both in pairs for digest in both if digest is not None}
    bodies = asyncio.run(read_definitions(settings, digests)) if digests else {}
    for name, scheme, pinned, offered in pairs:
        print_line(f"{visible(name)}: differs from its pin under {scheme}")
        for line in _body_diff(bodies, pinned, offered):
            print_line(visible(line))
    for name in sorted(set(rejected)):
        print_line(f"{visible(name)}: a definition is offered that was rejected")
    if pairs or rejected:
        raise typer.Exit(1)
    say("nothing differs")


def _decide_on(
    kind: str,
    reason: str,
    server_id: str | None,
    tool: str | None,
    every: bool,
    alert: str | None,
    digest: str | None,
    schemes: list[str] | None,
    author: str | None,
    output: Path | None,
    bootstrap: str | None,
) -> None:
    chosen = (server_id is not None, tool is not None, every, digest is not None)
    if any(chosen) if alert is not None else not chosen[0] or chosen[1] == every or (every and chosen[3]):
        raise InputError("bad_option", "say what: --alert UID, or --server-id with --tool NAME (and --digest) or --all")
    settings, bindings = known_bindings(bootstrap)
    if alert is not None:
        finding = asyncio.run(find_finding(settings, alert))
        if finding is None or finding.tool_name is None or finding.after is None:
            raise InputError(
                "no_definition_in_alert", "no finding with this uid names a definition: use --server-id and --tool"
            )
        server_id, tool, digest = finding.server_id, finding.tool_name, finding.after
    server = server_of(bindings, server_id or "")
    decisions: list[tuple[str, dict[str, Any]]] = []
    for name in tools_offered_now(server) if tool is None else [tool]:
        for scheme, value in values_to_decide(server, name, full=digest, schemes=schemes or ()).items():
            data = {"server_id": server_id, "tool_name": name, "scheme": scheme, "value": value}
            decisions.append((kind, data))
    if not decisions:
        raise InputError("tool_not_observed", "no list in force on this server has any tool: wait for one")
    decide(decisions, author=author, reason=reason, output=output, bootstrap=bootstrap)
    for _, data in decisions:
        _tell(kind, data, server)
    if kind == PIN_SET_TYPE:
        say(_CLOSING)


def _tell(kind: str, data: dict[str, Any], server: ServerBindings) -> None:
    """Say what was decided, what it takes the place of, and what it leaves open."""
    name, scheme, value = data["tool_name"], data["scheme"], data["value"]
    before = server.controls.pins_as_of(name, AFTER_ALL_US).approved
    verb = "approved" if kind == PIN_SET_TYPE else "rejected"
    say(f"{verb}: {name} on {data['server_id']}, {scheme} {value}")
    if kind == PIN_SET_TYPE and before.get(scheme) not in (None, value):
        say(f"  in place of {before[scheme]}")
    if kind == PIN_REJECT_TYPE and not {other: kept for other, kept in before.items() if kept != value}:
        say("  no approved value is left: any other definition is under `unknown` of the policy")


def _differing(bindings: Bindings, server: ServerBindings, server_id: str, tool: str | None) -> Any:
    """Yield tool, scheme, full digest of the pinned definition if it is known, and of the one offered."""
    for entry in approved_entries(bindings, server_id=server_id):
        if tool not in (None, entry.tool_name):
            continue
        pinned = next(
            (print_.full for print_ in server.tools.values() if print_.has_value(entry.scheme, entry.value)), None
        )
        for offered in offered_now(server, entry.tool_name):
            if not offered.fingerprint.has_value(entry.scheme, entry.value):
                yield entry.tool_name, entry.scheme, pinned, offered.fingerprint.full


def _body_diff(bodies: dict[str, dict[str, Any]], pinned: str | None, offered: str) -> list[str]:
    if pinned is None or pinned not in bodies or offered not in bodies:
        return ["  the pinned definition was never observed here, so there is nothing to compare"]
    before, after = (_lines(bodies[digest]) for digest in (pinned, offered))
    return list(difflib.unified_diff(before, after, "pinned", "offered", lineterm=""))


def _lines(definition: dict[str, Any]) -> list[str]:
    # ASCII only, so that invisible and right-to-left characters are seen for what they are.
    return json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=True).splitlines()
