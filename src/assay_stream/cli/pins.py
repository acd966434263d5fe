"""``assay-stream pins``: review, approve and reject definitions."""

import difflib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from assay_stream import __version__
from assay_stream.alerts.story import subject_of
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.state import Bindings
from assay_stream.bindings.timeline import AFTER_ALL_US
from assay_stream.cli.deciding import Deciding, DecidingOnServer, print_state
from assay_stream.cli.files import read_input
from assay_stream.cli.options import AnyServerId, AnyTool, AsJson, ServerId
from assay_stream.cli.output import print_line
from assay_stream.cli.parameters import argument, flag, option
from assay_stream.cli.shared import named_in_errors, say
from assay_stream.cli.store_sources import (
    HistoryOptions,
    StoreOptions,
    known_bindings,
    published_alert,
    published_definitions,
)
from assay_stream.errors import InputError
from assay_stream.limits.core import PIN_FILE_LIMITS
from assay_stream.model.control import PIN_REMOVE_TYPE, PIN_SET_TYPE
from assay_stream.model.kinds import Kind
from assay_stream.report.pins import (
    DefinitionAct,
    approved_entries,
    definition_decisions,
    full_digest_of,
    history_rows,
    offered_now,
    offers_rejected,
    pin_rows,
    server_of,
    tools_offered_now,
    values_to_decide,
)
from assay_stream.schemes.mcptrust.lockfile import LockfileStamp
from assay_stream.schemes.pin_files import read_pins, write_pins
from assay_stream.text.escaping import counted, shown

pins_app = typer.Typer(help="Review, approve and reject tool definitions.", no_args_is_help=True)


PinFormat = Literal["native", "assay", "hangar", "mcptrust"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The definitions to decide on."""

    server_id: AnyServerId = None
    tool: AnyTool = None
    alert: str | None = option("Uid (or its start) of an alert about the definition.")
    digest: str | None = option("Full digest of the definition, or its beginning, where several are in force.")
    scheme: list[str] | None = option("Default: as pinned, else assay.p60. Repeatable.")


_CLOSING = "the worker closes the alerts that this resolves"


@pins_app.command("list")
def list_pins(
    looking: HistoryOptions, server_id: AnyServerId = None, tool: AnyTool = None, as_json: AsJson = False
) -> None:
    """Show the decisions in force, and how the tools offered now compare with them.

    A pinned tool that no list in force has is shown as unobserved. A match means that two values are equal.
    """
    columns = ("server_id", "tool_name", "scheme", "state", "comparison", "author", "since", "value")
    print_state(looking, pin_rows, columns, server_id=server_id, as_json=as_json, tool_name=tool)


@pins_app.command()
def history(
    looking: HistoryOptions, server_id: AnyServerId = None, tool: AnyTool = None, as_json: AsJson = False
) -> None:
    """Show every decision on pins, policies and keys, oldest first, superseded ones included."""
    columns = ("time", "change", "server_id", "tool_name", "scheme", "value", "author", "reason")
    print_state(looking, history_rows, columns, server_id=server_id, as_json=as_json, tool_name=tool)


@pins_app.command()
def approve(
    by: Deciding,
    chosen: Chosen,
    every: bool = flag("Every tool that the server offers now, except rejected definitions.", "--all"),
) -> None:
    """Pin tools to the definitions in force, or to the one that an alert is about.

    From then on any other definition is a mismatch until somebody approves it.
    """
    _decide_on("approve", by, chosen, every=every)
    say(_CLOSING)


@pins_app.command()
def reject(by: Deciding, chosen: Chosen) -> None:
    """Reject a definition: it is a mismatch from now on, whatever else is pinned."""
    _decide_on("reject", by, chosen)


@pins_app.command()
def remove(
    server_id: ServerId,
    tool: Annotated[str, option("The tool.", "--tool")],
    by: DecidingOnServer,
    scheme: Annotated[str, option("The scheme of the pin.")],
    value: str | None = option("Withdraw only the decision on this value."),
) -> None:
    """Withdraw a decision."""
    data = {"server_id": server_id, "tool_name": tool, "scheme": scheme, "value": value}
    by.decide((PIN_REMOVE_TYPE, data))
    say(f"removed: {tool} on {server_id}, {scheme}")


@pins_app.command("import")
def import_pins(
    file: Annotated[Path, argument("A lockfile, a list of pins or a policy; `-` for standard input.")],
    source: Annotated[PinFormat, option("What the file holds.", "--format")],
    by: DecidingOnServer,
    server_id: AnyServerId = None,
) -> None:
    """Set the pins that a file holds. Native files name their servers; others need --server-id."""
    raw = read_input(file, bytes_max=PIN_FILE_LIMITS.record_bytes_max)
    with named_in_errors(file):
        entries = read_pins(raw, format=source, server_id=server_id)
    if any(entry.server_id is None for entry in entries):
        raise InputError("server_not_named", "the file names no server: give --server-id")
    by.decide(*((PIN_SET_TYPE, entry._asdict()) for entry in entries))
    say(f"set {counted(len(entries), 'pin')}")


@pins_app.command("export")
def export_pins(
    looking: HistoryOptions,
    target: PinFormat = option("What to write.", "--format", default="native"),
    server_id: AnyServerId = None,
    lockfile_version: Literal["2.0", "3.0"] = option("For mcptrust; `mcptrust check` needs 3.0.", default="2.0"),
) -> bool:
    """Write the approved values to standard output. Exit code 1 if the format cannot hold some of them."""
    if target != "native" and server_id is None:
        raise InputError("server_not_named", f"a file of format {target} is about one server: give --server-id")
    bindings = known_bindings(looking, server_id)
    entries = approved_entries(bindings, server_id=server_id)
    stamp = None
    if lockfile_version == "3.0":
        stamp = LockfileStamp(f"assay-stream/{__version__}", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    raw, left_out = write_pins(entries, format=target, server_id=server_id, lockfile_stamp=stamp)
    sys.stdout.buffer.write(raw if raw.endswith(b"\n") else raw + b"\n")
    sys.stdout.buffer.flush()
    for entry in left_out:
        say(f"{target} files cannot hold a pin under {entry.scheme}: {entry.tool_name} left out (approve --scheme)")
    return bool(left_out)


@pins_app.command()
def diff(server_id: ServerId, looking: HistoryOptions, tool: AnyTool = None) -> bool:
    """Show how pinned tools differ from what is offered now. Exit code 1 if any does."""
    bindings = known_bindings(looking, server_id)
    server = server_of(bindings, server_id)
    rows = list(pin_rows(bindings, server_id=server_id, tool_name=tool))
    if not rows:
        say("nothing to compare with: no tool is pinned")
        return False
    rejected = [row["tool_name"] for row in rows if row["state"] == "rejected" and "rejected" in row["comparison"]]
    pairs = list(_differing(bindings, server, server_id, tool))
    digests = {digest for _, _, *both in pairs for digest in both if digest is not None}
    bodies = published_definitions(looking, digests) if digests else {}
    for name, scheme, pinned, offered in pairs:
        print_line(f"{shown(name)}: differs from its pin under {scheme}")
        for line in _body_diff(bodies, pinned, offered):
            print_line(shown(line))
    for name in sorted(set(rejected)):
        print_line(f"{shown(name)}: offers a definition that was rejected")
    if not pairs and not rejected:
        say("no differences")
    return bool(pairs or rejected)


def _decide_on(act: DefinitionAct, by: Deciding, chosen: Chosen, *, every: bool = False) -> None:
    server_id, tool, digest = chosen.server_id, chosen.tool, chosen.digest
    by_name = server_id is not None and (tool is None) == every and not (every and digest)
    if by_name == (chosen.alert is not None) or (chosen.alert is not None and (server_id or tool or every or digest)):
        raise InputError("bad_option", "give --alert UID, or --server-id with --tool NAME (and --digest) or --all")
    if chosen.alert is not None:
        view = published_alert(chosen.alert, by.bootstrap_servers)
        subject = subject_of(view)
        if subject is None or view.kind == Kind.SERVER_CHANGED:
            raise InputError(
                "no_definition_in_alert", "the alert with this uid is about no one definition: give --server-id, --tool"
            )
        server_id, (tool, digest) = view.fact("mcp_server_id"), subject
    bindings = known_bindings(StoreOptions(bootstrap_servers=by.bootstrap_servers), server_id or "")
    server = server_of(bindings, server_id or "")
    names = tools_offered_now(server) if tool is None else [tool]
    rejected = [name for name in names if every and offers_rejected(server, name)]
    decisions = [
        decision
        for name in names
        if name not in rejected
        for decision in definition_decisions(
            act,
            server_id=server_id or "",
            tool_name=name,
            values=values_to_decide(server, name, full=digest, schemes=chosen.scheme or ()),
        )
    ]
    if rejected and not decisions:
        raise InputError("bad_option", "every definition in force was rejected: approve one by name, with --tool")
    if not decisions:
        raise InputError("tool_not_observed", "no list in force on this server has any tools: wait for one")
    by.decide(*decisions)
    for _, data in decisions:
        _tell(act, data, server)
    for name in rejected:
        say(f"left out: {name}, its definition was rejected (approve it by name, with --tool)")


def _tell(act: DefinitionAct, data: Mapping[str, Any], server: ServerBindings) -> None:
    """Report the decision, what it replaces, and what it leaves undecided."""
    name, scheme, value = data["tool_name"], data["scheme"], data["value"]
    before = server.controls.pins_as_of(name, AFTER_ALL_US).approved
    verb = "approved" if act == "approve" else "rejected"
    say(f"{verb}: {name} on {data['server_id']}, {scheme} {value}")
    if act == "approve" and before.get(scheme) not in (None, value):
        say(f"  in place of {before[scheme]}")
    if act == "reject" and not {other: kept for other, kept in before.items() if kept != value}:
        say("  no approved value is left: the policy's `unknown` applies to every other definition")


def _differing(bindings: Bindings, server: ServerBindings, server_id: str, tool: str | None) -> Any:
    """Yield tool, scheme, full digest of the pinned definition if known, and that of the offered one."""
    for entry in approved_entries(bindings, server_id=server_id):
        if tool not in (None, entry.tool_name):
            continue
        pinned = full_digest_of(server, entry.scheme, entry.value)
        for offered in offered_now(server, entry.tool_name):
            if not offered.fingerprint.has_value(entry.scheme, entry.value):
                yield entry.tool_name, entry.scheme, pinned, offered.fingerprint.full


def _body_diff(bodies: dict[str, dict[str, Any]], pinned: str | None, offered: str) -> list[str]:
    if pinned is None or pinned not in bodies or offered not in bodies:
        return ["  cannot be compared: the pinned definition was never observed here"]
    # ASCII only, so that invisible and right-to-left characters are seen for what they are.
    before, after = (json.dumps(bodies[digest], indent=2, sort_keys=True).splitlines() for digest in (pinned, offered))
    return list(difflib.unified_diff(before, after, "pinned", "offered", lineterm=""))
