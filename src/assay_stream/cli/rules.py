"""``assay-stream policy`` and ``keys``: what a mismatch leads to, tried out before, and whose signatures count."""

from __future__ import annotations

import re
import shlex
import time
from typing import Annotated, Literal

import typer

from assay_stream.cli.deciding import DecidingOnServer, print_state
from assay_stream.cli.options import AnyServerId, AsJson, ServerId, time_option
from assay_stream.cli.output import print_rows
from assay_stream.cli.parameters import flag, option
from assay_stream.cli.shared import say
from assay_stream.cli.store_sources import HistoryOptions, about, open_store
from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.control import KEY_ACCEPT_TYPE, KEY_REVOKE_TYPE, POLICY_REMOVE_TYPE, POLICY_SET_TYPE
from assay_stream.model.record import Role
from assay_stream.report.pins import key_rows, policy_rows, server_of, time_text
from assay_stream.report.policy_plan import PolicyPlan, planned_policy
from assay_stream.schemes.hangar import Action
from assay_stream.text.escaping import counted

policy_app = typer.Typer(help="Set what happens where a definition differs from its pins.", no_args_is_help=True)
keys_app = typer.Typer(help="Choose whose signatures count (SchemaPin).", no_args_is_help=True)

Enforcement = Literal["audit", "warn", "block"]
Unknown = Annotated[
    Literal["allow_degraded", "allow_unverified", "warn", "block"],
    option("What to do where a tool has no pin, or no definition was observed."),
]
PolicyTool = Annotated[str | None, option("For this tool only.", "--tool")]
KeyFingerprint = Annotated[str, option("The key's: sha256: and 64 hexadecimal digits.")]


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


@policy_app.command()
def remove(server_id: ServerId, by: DecidingOnServer, tool: PolicyTool = None) -> None:
    """Take a policy back: that of a server, or with --tool that of one tool, which then falls under its server's.

    Pins and rejections stay. `policy plan --remove` shows beforehand what changes.
    """
    by.decide((POLICY_REMOVE_TYPE, {"server_id": server_id, "tool_name": tool}))
    say(f"policy removed for {tool or 'every tool'} on {server_id}" + ("" if tool else "; policies of tools stand"))


@policy_app.command("list")
def list_policies(looking: HistoryOptions, server_id: AnyServerId = None, as_json: AsJson = False) -> None:
    """Show the policies in force."""
    columns = ("server_id", "tool_name", "enforcement", "unknown", "author", "since", "reason")
    print_state(looking, policy_rows, columns, server_id=server_id, as_json=as_json)


@keys_app.command()
def accept(
    server_id: ServerId,
    domain: Annotated[str, option("The domain whose key it is.")],
    fingerprint: KeyFingerprint,
    by: DecidingOnServer,
    tool: PolicyTool = None,
) -> None:
    """Accept a key for a domain: the only way by which another key replaces the first one used."""
    data = {"server_id": server_id, "domain": domain, "fingerprint": fingerprint, "tool_name": tool}
    by.decide((KEY_ACCEPT_TYPE, data))
    say(f"accepted for {tool or 'every tool'} on {server_id}: {fingerprint}")


@keys_app.command()
def revoke(server_id: ServerId, fingerprint: KeyFingerprint, by: DecidingOnServer) -> None:
    """Revoke a key for a server, whatever its domain says."""
    data = {"server_id": server_id, "fingerprint": fingerprint}
    by.decide((KEY_REVOKE_TYPE, data))
    say(f"revoked on {server_id}: {fingerprint}")


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
    remove: bool = flag("Try out `policy remove` instead."),
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
    tools = sum(row["planned"] == Action.BLOCK.value for row in rows)
    calls_made, refused, denied = (sum(row[name] for row in rows) for name in ("calls", "refused", "denied"))
    when = f"since {time_text(since_us)}" if since_us else "in the input"
    was = f" ({denied:,} of them already denied)" if denied else ""
    say(
        f"would refuse {tools:,} of {counted(len(rows), 'tool')}, "
        f"and {refused:,} of {counted(calls_made, 'call')} {when}{was}"
    )
    if not tried.knows_tool:
        say("no list offers that tool and no pin names it: check --tool")
        return
    blocked = [row for row in rows if row["planned"] == Action.BLOCK.value and row["tool_name"]]
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
            say(f"  and likewise for {counted(len(unseen) - _COMMANDS_MAX, 'more tool')}")
    say("to take the policy back:" if remove else "to set the policy:")
    which = [] if tool is None else [f"--tool={tool}"]
    how = () if remove else ("--enforcement", str(enforcement), "--unknown", unknown)
    _suggest("policy", "remove" if remove else "set", f"--server-id={server_id}", *which, *how, "--reason", _REASON)


def _suggest(*arguments: str) -> None:
    say(f"  assay-stream {shlex.join(arguments)}")
