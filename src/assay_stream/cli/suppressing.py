"""``assay-stream alerts suppress`` and ``unsuppress``: rules that silence expected alerts."""

import time
from typing import Annotated

import typer

from assay_stream.cli.deciding import DecidingOnServer
from assay_stream.cli.options import grouped, time_option
from assay_stream.cli.shared import say
from assay_stream.errors import InputError
from assay_stream.model.control import SUPPRESSION_REMOVE_TYPE, SUPPRESSION_SET_TYPE
from assay_stream.model.glob import compile_glob
from assay_stream.model.kinds import Kind
from assay_stream.report.rows import time_text

_MCP_FIELDS = frozenset(
    (
        *("name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta", "icons"),
        *("execution", "arguments", "uriTemplate", "mimeType", "instructions"),
    )
)
"""Top-level fields that MCP gives to tools, prompts, resource templates and servers."""

RuleServer = Annotated[str, typer.Option("--server-id", help="Your name for the server; '*' for every server.")]
RuleId = Annotated[str, typer.Option("--id", help="Your name for the rule. Setting it again replaces it.")]


@grouped
def suppress(
    server_id: RuleServer,
    id_: RuleId,
    by: DecidingOnServer,
    tool: Annotated[str | None, typer.Option("--tool", help="Only tools whose name matches; *, ? and [abc].")] = None,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Only this kind of finding.")] = None,
    field: Annotated[str | None, typer.Option("--field", help="Only if just this field changed.")] = None,
    detection: Annotated[
        str | None, typer.Option("--detection", help="Only what this agent of yours finds.", metavar="AGENT")
    ] = None,
    until: Annotated[int | None, time_option("When the rule ends.", "--until", ahead=True)] = None,
) -> None:
    """Suppress alerts: they are still written, with the status Suppressed and the rule's name."""
    if tool is not None:
        compile_glob(tool)
    if field and field not in _MCP_FIELDS:
        say("--field is not a field that MCP defines: the rule covers nothing unless a server uses that very name")
    if until is not None and until <= time.time_ns() // 1_000:
        raise InputError("bad_time", "--until is in the past: such a rule would cover nothing", path="$.data.until")
    data = {
        "server_id": server_id,
        "id": id_,
        "tool": tool,
        "kind": None if kind is None else kind.value,
        "field": field,
        "detection": detection,
        "until": None if until is None else time_text(until),
    }
    by.decide((SUPPRESSION_SET_TYPE, data))
    say(f"suppressed by {id_} on {_shown(server_id)}" + (f" until {data['until']}" if until else ""))
    say("an open alert is suppressed from its next record on, at the latest one repeat interval after its last one")


@grouped
def unsuppress(server_id: RuleServer, id_: RuleId, by: DecidingOnServer) -> None:
    """Remove a suppression rule. Name the server that it was set for."""
    by.decide((SUPPRESSION_REMOVE_TYPE, {"server_id": server_id, "id": id_}))
    say(f"rule {id_} on {_shown(server_id)} ends, if there is one")


def _shown(server_id: str) -> str:
    return "every server" if server_id == "*" else server_id
