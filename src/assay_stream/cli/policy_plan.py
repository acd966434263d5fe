"""``assay-stream policy plan``: what a policy would refuse, before it is set."""

import shlex
import time
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated

import typer

from assay_stream.cli.deciding import known_bindings
from assay_stream.cli.options import AsJson, Bootstrap, Inputs, ServerId, grouped, time_option
from assay_stream.cli.output import RowFormat, print_rows
from assay_stream.cli.rules import Enforcement, PolicyTool, Unknown, policy_app
from assay_stream.cli.shared import on_kafka, say
from assay_stream.cli.sources import make_source
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError
from assay_stream.files.archive import read_files
from assay_stream.kafka.lookup import read_records
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.record import Role
from assay_stream.replay.history import history_of
from assay_stream.replay.selection import Selection
from assay_stream.report.pins import server_of
from assay_stream.report.policy_plan import PlannedPolicy, PolicyPlan
from assay_stream.report.rows import time_text
from assay_stream.schemes.hangar import Action
from assay_stream.text.counting import counted
from assay_stream.verify.evidence import Recorded, of_record

_DAY_US = 86_400 * 1_000_000
_COMMANDS_MAX = 5
_REASON = "reviewed"
_COLUMNS = ("tool_name", "comparison", "now", "planned", "calls", "refused", "denied")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The calls to try the policy on."""

    since: Annotated[int | None, time_option("Count calls from then on. Default: 1d; with --input, all.")] = None
    inputs: Inputs = None
    bootstrap_servers: Bootstrap = None


@policy_app.command()
@grouped
def plan(
    server_id: ServerId,
    calls: Calls,
    enforcement: Annotated[Enforcement | None, typer.Option(help="What to do on a mismatch.")] = None,
    unknown: Unknown = "allow_degraded",
    tool: PolicyTool = None,
    remove: Annotated[bool, typer.Option("--remove", help="Try out `policy remove` instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which tools a policy would refuse, and how many calls it would have refused. Changes nothing.

    Uses the verdicts that enforcing proxies follow, and the pins as they are now. The row `-` stands for tools that
    are neither offered nor pinned.
    """
    if (enforcement is None) != remove:
        raise InputError("bad_option", "say what to try out: --enforcement, or --remove")
    now_us = time.time_ns() // 1_000
    since_us = calls.since
    if since_us is None:
        since_us = 0 if calls.inputs else now_us - _DAY_US
    planned = PlannedPolicy(
        server_id=server_id, tool_name=tool, enforcement=enforcement, unknown=None if remove else unknown, now_us=now_us
    )
    tried = _from_files(planned, since_us, calls) if calls.inputs else _from_topics(planned, since_us, calls)
    rows = tried.rows()
    print_rows(rows, _COLUMNS, RowFormat.JSON if as_json else RowFormat.TABLE)
    tools = sum(row["planned"] == Action.BLOCK.value for row in rows)
    calls_made, refused, denied = (sum(row[name] for row in rows) for name in ("calls", "refused", "denied"))
    since = f"since {time_text(since_us)}" if since_us else "in the input"
    was = f" ({denied:,} of them already denied)" if denied else ""
    say(
        f"would refuse {tools:,} of {counted(len(rows), 'tool')}, "
        f"and {refused:,} of {counted(calls_made, 'call')} {since}{was}"
    )
    if not tried.knows_tool:
        say("no list offers that tool and no pin names it: check --tool")
        return
    blocked = [row for row in rows if row["planned"] == Action.BLOCK.value and row["tool_name"]]
    suspects = [row["tool_name"] for row in blocked if _is_suspect(row["comparison"])]
    if suspects and not remove:
        say(f"different from what was approved, or rejected: {counted(len(suspects), 'tool')} of these; see first:")
        _suggest("alerts", "list", f"--server-id={server_id}")
    unseen = [row["tool_name"] for row in blocked if row["tool_name"] not in suspects]
    if unseen and not remove:
        say("to keep a tool in use, review its definition and approve it first:")
        for name in unseen[:_COMMANDS_MAX]:
            _suggest("pins", "approve", f"--server-id={server_id}", f"--tool={name}", "--reason", _REASON)
        if len(unseen) > _COMMANDS_MAX:
            say(f"  and likewise for {counted(len(unseen) - _COMMANDS_MAX, 'more tool')}")
    say("to take the policy back:" if remove else "to set the policy:")
    which = [] if tool is None else [f"--tool={tool}"]
    if remove:
        _suggest("policy", "remove", f"--server-id={server_id}", *which, "--reason", _REASON)
    else:
        how = ("--enforcement", str(enforcement), "--unknown", unknown)
        _suggest("policy", "set", f"--server-id={server_id}", *which, *how, "--reason", _REASON)


def _is_suspect(comparison: str) -> bool:
    return any(status in comparison for status in ("mismatch", "rejected"))


def _suggest(*arguments: str) -> None:
    say(f"  assay-stream {shlex.join(arguments)}")


def _from_files(planned: PlannedPolicy, since_us: int, calls: Calls) -> PolicyPlan:
    files = calls.inputs or []
    source = make_source(files, False, Selection(), command_settings(bootstrap_servers=calls.bootstrap_servers))
    server = server_of(history_of(partial(read_files, files)).view, planned.server_id)
    tried = PolicyPlan(planned=planned, server=server, since_us=since_us)
    with source.spool() as spool:
        for output in chain.from_iterable(source.replay(spool).steps()):
            if output.role is Role.EVIDENCE:
                tried.take(Recorded("replayed", output.value or b""))
    return tried


def _from_topics(planned: PlannedPolicy, since_us: int, calls: Calls) -> PolicyPlan:
    settings, bindings = known_bindings(calls.bootstrap_servers)
    tried = PolicyPlan(planned=planned, server=server_of(bindings, planned.server_id), since_us=since_us)
    # Event times may lie after the record's own.
    since_ms, key = max(since_us // 1_000 - DEFAULT_LIMITS.future_max_ms, 0), planned.server_id.encode()

    async def read(settings: Settings) -> None:
        async for record in read_records(settings, Role.EVIDENCE, since_ms=since_ms):
            if record.key == key:
                tried.take(of_record(record))

    on_kafka(settings, read)
    return tried
