"""``assay-stream pins``, ``policy`` and ``keys``: what operators decide on definitions and signatures, on record."""

from __future__ import annotations

import difflib
import getpass
import json
import re
import shlex
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from assay_stream import __version__
from assay_stream.alerts.story import subject_of
from assay_stream.bindings.timeline import AFTER_ALL_US
from assay_stream.canonical.digest import Digest
from assay_stream.cli.options import AnyServerId, AnyTool, AsJson, Bootstrap, ServerId, read_input, time_option
from assay_stream.cli.output import print_line, print_rows
from assay_stream.cli.publishing import deliver
from assay_stream.cli.shared import argument, flag, on_kafka, option, say
from assay_stream.cli.store_sources import (
    HistoryOptions,
    StoreOptions,
    about,
    known_bindings,
    open_store,
    published_alert,
    published_definitions,
)
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError, named_in_errors
from assay_stream.kafka.ranges import read_records
from assay_stream.limits import DEFAULT_LIMITS, PIN_FILE_LIMITS
from assay_stream.model.cloudevents import read_event
from assay_stream.model.control import (
    KEY_ACCEPT_TYPE,
    KEY_REVOKE_TYPE,
    PIN_REMOVE_TYPE,
    PIN_SET_TYPE,
    POLICY_REMOVE_TYPE,
    POLICY_SET_TYPE,
    SUPPRESSION_SET_TYPE,
    ControlEvent,
    SuppressionRemoveData,
)
from assay_stream.model.finding import ANY_SERVER
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Record, Role
from assay_stream.observe.recorded import decision_event
from assay_stream.report.pins import (
    Decision,
    DefinitionAct,
    PolicyPlan,
    approved_entries,
    definition_decisions,
    full_digest_of,
    history_rows,
    key_rows,
    knows_tool,
    offered_now,
    offers_rejected,
    pin_rows,
    planned_policy,
    policy_rows,
    server_of,
    tools_offered_now,
    values_to_decide,
)
from assay_stream.schemes.hangar import Action
from assay_stream.schemes.mcptrust_lockfile import LockfileStamp
from assay_stream.schemes.pin_files import read_pins, write_pins
from assay_stream.text.escaping import counted, json_text, shown
from assay_stream.text.times import time_text

_ON_TOOLS = frozenset({POLICY_SET_TYPE, POLICY_REMOVE_TYPE, PIN_REMOVE_TYPE, KEY_ACCEPT_TYPE})
"""Decisions that name a tool by hand. A pin that is imported may come before its tool, and rules take patterns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """Author, reason and destination of a decision."""

    reason: Annotated[str, option("Why; recorded in the evidence of the change.")]
    author: str | None = option("Who decides. Default: your login name.", envvar="ASSAY_STREAM_AUTHOR")
    output: Path | None = option("Append the decisions to this NDJSON file, not to Kafka.")
    bootstrap_servers: Bootstrap = None

    def decide(self, *decisions: Decision) -> None:
        """Publish decisions, all effective immediately."""
        who, now = author_or_login(self.author), datetime.now(UTC)
        given = {"author": who, "reason": self.reason}
        observations = [
            decision_event(kind, {**data, **given}, author=who, event_id=str(uuid.uuid4()), decided_at=now)
            for kind, data in decisions
        ]
        self.check(decisions)  # asks the brokers, so everything else is checked before
        deliver(observations, self.output, self.bootstrap_servers)

    def check(self, decisions: Sequence[Decision]) -> None:
        """Refuse a sound decision that was probably not meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidingOnServer(Deciding):
    """The same for a server, tool or rule named by hand, where a typo would decide on nothing."""

    new: bool = flag("Allow a server, tool or rule that no list and no decision has named yet.")

    def check(self, decisions: Sequence[Decision]) -> None:
        """Refuse what does not exist; decisions that are written to a file are not checked."""
        if self.output is not None or self.new:
            return
        named = {data["server_id"] for _, data in decisions} - {ANY_SERVER}
        if named:
            bindings = known_bindings(StoreOptions(bootstrap_servers=self.bootstrap_servers), *named)
            for server_id in sorted(named - bindings.servers.keys()):
                raise InputError(
                    "server_not_known", f"no list and no decision names {server_id}: check it, or give --new"
                )
            for kind, data in decisions:
                tool = data.get("tool_name") if kind in _ON_TOOLS else None
                if tool is not None and not knows_tool(bindings.servers[data["server_id"]], tool):
                    raise InputError(
                        "tool_not_observed",
                        f"no list and no decision on {data['server_id']} names {tool}: check --tool, or give --new",
                    )


def check_known(name: str, known: Collection[str], refused: Callable[[str], InputError]) -> None:
    """Refuse to end what does not exist, with an error that says what does."""
    if name not in known:
        raise refused(f"{name}, only {', '.join(sorted(known))}" if known else name)


def known_rules(server_id: str, bootstrap: str | None) -> set[str]:
    """Return the suppression rules that are set for a server, or for ``*``, as its control records have it."""
    rules = set[str]()
    for record in control_records(server_id, bootstrap):
        with suppress(InputError):  # refused by the registry, too
            event = read_event(record)
            if isinstance(event, ControlEvent) and isinstance(event.data, SuppressionRemoveData):
                (rules.add if event.type == SUPPRESSION_SET_TYPE else rules.discard)(event.data.id)
    return rules


def control_records(server_id: str, bootstrap: str | None) -> list[Record]:
    """Return the control records of a server, or those of ``*``."""

    async def read(settings: Settings) -> list[Record]:
        return [record async for record in read_records(settings, Role.CONTROL) if record.key == server_id.encode()]

    return on_kafka(command_settings(bootstrap_servers=bootstrap), read)


def author_or_login(author: str | None) -> str:
    if author is not None:
        return author
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise InputError("author_unknown", "nobody is logged in here: say who decides with --author") from None


def print_state(
    looking: HistoryOptions,
    rows_of: Callable[..., Iterable[Mapping[str, Any]]],
    columns: tuple[str, ...],
    *,
    server_id: str | None,
    as_json: bool,
    **which: Any,
) -> None:
    """Print what the registry published about a server, or about all of them."""
    bindings = known_bindings(looking, server_id)
    listed = list(rows_of(bindings, server_id=server_id, **which))
    print_rows(listed, columns, "json" if as_json else "table", whole=True)
    if not listed and not as_json:
        say("nothing to show")


pins_app = typer.Typer(help="Review, approve and reject tool definitions.", no_args_is_help=True)


PinFormat = Literal["native", "assay", "hangar", "mcptrust"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The definitions to decide on."""

    server_id: AnyServerId = None
    tool: AnyTool = None
    alert: str | None = option("Uid, or a prefix of it, of an alert about the definition.")
    digest: str | None = option("Full digest of the definition, or its beginning, where several are in force.")
    scheme: list[str] | None = option("Default: as pinned, else assay.p60. Repeatable.")


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

    From then on any other definition is a mismatch until it is approved.
    """
    _decide_on("approve", by, chosen, every=every)
    say("the worker closes the alerts that this resolves")


@pins_app.command()
def reject(by: Deciding, chosen: Chosen) -> None:
    """Reject a definition: it is a mismatch from now on, regardless of other pins."""
    _decide_on("reject", by, chosen)


@pins_app.command("remove")
def remove_pin(
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
    # A file gets the very bytes; a terminal nothing that could steer it.
    typer.echo(json_text(raw.decode()).encode() if sys.stdout.isatty() else raw, nl=not raw.endswith(b"\n"))
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
    # Tool, scheme, full digest of the pinned definition if it is known, and that of the offered one.
    pairs = [
        (entry.tool_name, entry.scheme, full_digest_of(server, entry.scheme, entry.value), offered.fingerprint.full)
        for entry in approved_entries(bindings, server_id=server_id)
        if tool in (None, entry.tool_name)
        for offered in offered_now(server, entry.tool_name)
        if not offered.fingerprint.has_value(entry.scheme, entry.value)
    ]
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
    decisions: list[Decision] = []
    for name in names:
        if name not in rejected:
            values = values_to_decide(server, name, full=digest, schemes=chosen.scheme or ())
            decisions += definition_decisions(act, server_id=server_id or "", tool_name=name, values=values)
    if rejected and not decisions:
        raise InputError("bad_option", "every definition in force was rejected: approve one by name, with --tool")
    if not decisions:
        raise InputError("tool_not_observed", "no list in force on this server has any tools: wait for one")
    by.decide(*decisions)
    verb = "approved" if act == "approve" else "rejected"
    for _, data in decisions:
        name, scheme, value = data["tool_name"], data["scheme"], data["value"]
        before = server.controls.pins_as_of(name, AFTER_ALL_US).approved
        say(f"{verb}: {name} on {server_id}, {scheme} {value}")
        if act == "approve" and before.get(scheme) not in (None, value):
            say(f"  in place of {before[scheme]}")
        if act == "reject" and set(before.values()) <= {value}:
            say("  no approved value is left: the policy's `unknown` applies to every other definition")
    for name in rejected:
        say(f"left out: {name}, its definition was rejected (approve it by name, with --tool)")


_DIFF_LINES_MAX = 8_000
"""Lines of a definition that are compared with those of another, in quadratic time: half a second."""


def _body_diff(bodies: dict[str, dict[str, Any]], pinned: str | None, offered: str) -> list[str]:
    if pinned is None or pinned not in bodies or offered not in bodies:
        return ["  cannot be compared: the pinned definition was never observed here"]
    # ASCII only, so that invisible and right-to-left characters are seen for what they are.
    before, after = (json.dumps(bodies[digest], indent=2, sort_keys=True).splitlines() for digest in (pinned, offered))
    if max(len(before), len(after)) > _DIFF_LINES_MAX:
        return [f"  too long to compare line by line: {len(before):,} lines are pinned, {len(after):,} offered"]
    return list(difflib.unified_diff(before, after, "pinned", "offered", lineterm=""))


policy_app = typer.Typer(help="Set what happens where a definition differs from its pins.", no_args_is_help=True)
keys_app = typer.Typer(help="Accept and revoke signing keys (SchemaPin).", no_args_is_help=True)

Enforcement = Literal["audit", "warn", "block"]
Unknown = Annotated[
    Literal["allow_degraded", "allow_unverified", "warn", "block"],
    option("What to do where a tool has no pin, or no definition was observed."),
]
PolicyTool = Annotated[str | None, option("For this tool only.", "--tool")]
KeyFingerprint = Annotated[str, option("Fingerprint of the key: sha256: and 64 hexadecimal digits.")]


@policy_app.command("set")
def set_policy(
    server_id: ServerId,
    by: DecidingOnServer,
    enforcement: Annotated[Enforcement, option("What to do on a mismatch.")],
    unknown: Unknown = "allow_degraded",
    tool: PolicyTool = None,
) -> None:
    """Set the digest policy of a server, or of one of its tools. `policy plan` shows first what it would refuse.

    The stream itself blocks nothing: evidence says what the policy would have done, and proxies that follow the
    verdict topic (`assay-stream tap --enforce`) do it.
    """
    data = {"server_id": server_id, "tool_name": tool, "enforcement": enforcement, "unknown": unknown}
    by.decide((POLICY_SET_TYPE, data))
    say(f"policy set for {tool or 'every tool'} on {server_id}: {enforcement}, unknown {unknown}")


@policy_app.command("remove")
def remove_policy(server_id: ServerId, by: DecidingOnServer, tool: PolicyTool = None) -> None:
    """Remove the policy of a server, or with --tool of one tool, to which the server's policy then applies.

    Pins and rejections stay. `policy plan --remove` shows the effect first.
    """
    by.decide((POLICY_REMOVE_TYPE, {"server_id": server_id, "tool_name": tool}))
    say(
        f"policy removed for {tool or 'every tool'} on {server_id}" + ("" if tool else "; those of single tools remain")
    )


@policy_app.command("list")
def list_policies(looking: HistoryOptions, server_id: AnyServerId = None, as_json: AsJson = False) -> None:
    """Show the policies in force."""
    columns = ("server_id", "tool_name", "enforcement", "unknown", "author", "since", "reason")
    print_state(looking, policy_rows, columns, server_id=server_id, as_json=as_json)


@keys_app.command()
def accept(
    server_id: ServerId,
    domain: Annotated[str, option("The domain that publishes the key.")],
    fingerprint: KeyFingerprint,
    by: DecidingOnServer,
    tool: PolicyTool = None,
) -> None:
    """Accept a key for a domain: the only way to replace the first key used."""
    data = {"server_id": server_id, "domain": domain, "fingerprint": _sound(fingerprint), "tool_name": tool}
    by.decide((KEY_ACCEPT_TYPE, data))
    say(f"key of {domain} accepted for {tool or 'every tool'} on {server_id}: {fingerprint}")


@keys_app.command()
def revoke(server_id: ServerId, fingerprint: KeyFingerprint, by: DecidingOnServer) -> None:
    """Revoke a key for a server, regardless of what its domain publishes."""
    by.decide((KEY_REVOKE_TYPE, {"server_id": server_id, "fingerprint": _sound(fingerprint)}))
    say(f"key revoked for every tool on {server_id}, whatever its domain publishes: {fingerprint}")


def _sound(fingerprint: str) -> str:
    with named_in_errors("--fingerprint"):
        return str(Digest.parse(fingerprint))


@keys_app.command("list")
def list_keys(looking: HistoryOptions, server_id: AnyServerId = None, as_json: AsJson = False) -> None:
    """Show the keys that were observed, the ones that tools are pinned to, and what operators decided on them."""
    columns = ("server_id", "domain", "tool_name", "what", "fingerprint", "since", "author")
    print_state(looking, key_rows, columns, server_id=server_id, as_json=as_json)


_DAY_US = 86_400 * 1_000_000
_COMMANDS_MAX = 5
_REASON = "reviewed"
_COLUMNS = ("tool_name", "comparison", "now", "planned", "calls", "refused", "denied")


@policy_app.command()
def plan(
    server_id: ServerId,
    looking: HistoryOptions,
    since: int | None = time_option("Count calls from then on. Default: 1d; with --input, all."),
    enforcement: Enforcement | None = option("What to do on a mismatch."),
    unknown: Unknown = "allow_degraded",
    tool: PolicyTool = None,
    remove: bool = flag("Plan `policy remove` instead."),
    as_json: AsJson = False,
) -> None:
    """Show which tools a policy would refuse, and how many calls it would have refused. Changes nothing.

    Uses the verdicts that enforcing proxies follow, and the pins as they are now. The row `-` stands for tools that
    are neither offered nor pinned.
    """
    if (enforcement is None) != remove:
        raise InputError("bad_option", "say what to try out: --enforcement, or --remove")
    now_us = time.time_ns() // 1_000
    since_us = since if since is not None else 0 if looking.inputs else now_us - _DAY_US
    planned = planned_policy(
        server_id=server_id, tool_name=tool, enforcement=enforcement, unknown=None if remove else unknown, now_us=now_us
    )
    with open_store(looking) as opened:
        opened.read(Role.BINDINGS, wanted=about(server_id))
        # Event times may lie after the record's own.
        since_ms = max(since_us // 1_000 - DEFAULT_LIMITS.future_max_ms, 0)
        opened.read(Role.EVIDENCE, since_ms=since_ms, wanted=about(server_id))
        tried = PolicyPlan(planned=planned, server=server_of(opened.store.bindings(server_id), server_id))
        for counted_calls in opened.store.calls_by_definition(server_id, since_us=since_us):
            tried.take(*counted_calls)
    rows = tried.rows()
    print_rows(rows, _COLUMNS, "json" if as_json else "table")
    named = [row for row in rows if row["tool_name"]]
    blocked = [row for row in named if row["planned"] == Action.BLOCK.value]
    calls_made, refused, denied = (sum(row[name] for row in rows) for name in ("calls", "refused", "denied"))
    when = f"since {time_text(since_us)}" if since_us else "in the input"
    was = f" ({denied:,} of them already denied)" if denied else ""
    say(
        f"would refuse {len(blocked):,} of {counted(len(named), 'tool')}, "
        f"and {refused:,} of {counted(calls_made, 'call')} {when}{was}"
    )
    if not tried.knows_tool:
        say("no list offers that tool and no pin names it: check --tool")
        return
    suspects = [row["tool_name"] for row in blocked if re.search("mismatch|rejected", row["comparison"])]
    if suspects and not remove:
        say(f"different from what was approved, or rejected: {counted(len(suspects), 'tool')} of these; see first:")
        source = [f"--input={path}" for path in looking.inputs or ()]
        if looking.store is not None and not source:
            source = [f"--store={looking.store}"]
        _suggest("pins", "diff", f"--server-id={server_id}", *source)
    unseen = [row["tool_name"] for row in blocked if row["tool_name"] not in suspects]
    if unseen and not remove:
        say("to keep a tool in use, review its definition and approve it first:")
        for name in unseen[:_COMMANDS_MAX]:
            _suggest("pins", "approve", f"--server-id={server_id}", f"--tool={name}", "--reason", _REASON)
        if len(unseen) > _COMMANDS_MAX:
            say(f"  and the same for {counted(len(unseen) - _COMMANDS_MAX, 'more tool')}")
    say("to remove the policy:" if remove else "to set the policy:")
    which = [] if tool is None else [f"--tool={tool}"]
    how = () if remove else ("--enforcement", str(enforcement), "--unknown", unknown)
    _suggest("policy", "remove" if remove else "set", f"--server-id={server_id}", *which, *how, "--reason", _REASON)


def _suggest(*arguments: str) -> None:
    say(f"  assay-stream {shlex.join(arguments)}")
