"""``assay-stream tap``: a transparent proxy in front of MCP servers, over standard input and output or over HTTP."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand
from typer.models import CommandInfo

from assay_stream.cli.options import Bootstrap, VantageOptions, grouped
from assay_stream.cli.shared import InertFormatter
from assay_stream.cli.tap_http import HttpOptions, serve
from assay_stream.config import load_settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.connection import connection_options
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role
from assay_stream.observe import FileSink, ObservationPublisher, Sink, VerdictClient, run_tap
from assay_stream.observe.spool import spool_in
from assay_stream.schemes.hangar import Action
from assay_stream.text.counting import counted

if TYPE_CHECKING:
    from assay_stream.observe.gate import Rule

_VERDICTS_WAIT_S = 5.0


class TapCommand(TyperCommand):
    """The command, whose ``--enforce`` may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; ``--enforce`` without a value means calls."""
        own = args[: args.index("--")] if "--" in args else args
        for place, word in enumerate(own):
            if word == "--enforce" and own[place + 1 : place + 2] not in (["calls"], ["hide"]):
                args = [*args[: place + 1], "calls", *args[place + 1 :]]
        return super().parse_args(ctx, args)


@grouped
def tap(
    http: HttpOptions,
    vantage: VantageOptions,
    command: Annotated[list[str] | None, typer.Argument(help="The MCP server's command, after `--`.")] = None,
    server_id: Annotated[str | None, typer.Option(help="Your name for the server (not what it calls itself).")] = None,
    output: Annotated[Path | None, typer.Option(help="Append observations to this NDJSON file, not to Kafka.")] = None,
    enforce: Annotated[
        Literal["calls", "hide"] | None,
        typer.Option(help="Refuse calls that the digest policy blocks; with hide, keep such tools out of lists too."),
    ] = None,
    unavailable: Annotated[
        Literal["allow", "block"],
        typer.Option("--enforce-unavailable", help="What to do with calls until the verdicts have been read."),
    ] = "block",
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Put a transparent proxy in front of an MCP server and publish what passes.

    Client and server receive each other's bytes unchanged. Every tools/list result is published as a snapshot, every
    tools/call as a call record. Arguments and results are redacted, hashed and dropped. While Kafka is away the tap
    keeps working: it queues, then drops and reports how many.

    With a command, it runs that server (stdio) and exits with its code. With --listen, it is a reverse proxy for
    servers that speak Streamable HTTP, and runs until it is stopped. Tokens pass, and are never kept or published.

    With --enforce it follows the stream's verdicts and checks the definitions it sees against the pins. A blocked
    call never reaches the server; its caller gets a JSON-RPC error that says why. With --enforce hide, such tools are
    also dropped from lists, so that no model reads their descriptions.

    Examples: assay-stream tap --server-id time -- uvx mcp-server-time

    assay-stream tap --listen 127.0.0.1:8080 --server-id docs --upstream https://docs.example/mcp
    """
    if http.listen is not None:
        if command:
            raise ConfigurationError("bad_upstream", "--listen takes no command: give --upstream, or --upstreams FILE")
        upstreams, listener = http.upstreams(server_id, vantage), http.listener(load_settings())
        run: Callable[..., Awaitable[int | None]] = partial(serve, upstreams, listener)
    else:
        http.check_unused()
        if server_id is None or not command:
            raise ConfigurationError(
                "server_not_started", "give --server-id and the server's command after --, or --listen and --upstream"
            )
        run = partial(run_tap, command, vantage=vantage.of(server_id))

    async def observe() -> int:
        async with observing("tap", output, bootstrap_servers, Action(unavailable) if enforce else None) as (
            sink,
            rule,
        ):
            return await run(sink=sink, rule=rule, hide=enforce == "hide") or 0

    raise typer.Exit(asyncio.run(observe()))


@asynccontextmanager
async def observing(
    command: str, output: Path | None, bootstrap: str | None, unavailable: Action | None = None
) -> AsyncIterator[tuple[Sink, Rule | None]]:
    """Yield the sink of observations and the rule on calls; on exit, deliver what is queued and report losses.

    Args:
        output: a file instead of Kafka.
        unavailable: what to do with calls until the verdicts have been read; ``None`` if nothing is enforced.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(InertFormatter(f"assay-stream {command}: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    client = None if unavailable is None else await asyncio.to_thread(_verdict_client, bootstrap, unavailable)
    sink: Sink | None = None
    try:
        sink = _sink(output, bootstrap)
        yield sink, None if client is None else client.rule
    finally:
        if sink is not None:
            await sink.aclose()
            if dropped := sum(sink.stats.dropped.values()):
                reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(sink.stats.dropped.items()))
                print(f"assay-stream {command}: dropped {counted(dropped, 'observation')}: {reasons}", file=sys.stderr)
        if client is not None:
            await asyncio.to_thread(client.close)


def _verdict_client(bootstrap: str | None, unavailable: Action) -> VerdictClient:
    settings = load_settings(bootstrap_servers=bootstrap)
    client = VerdictClient(
        connection_options(settings),
        topic=topic_names(settings)[Role.VERDICTS],
        unavailable=unavailable,
        monotonic_s=time.monotonic,
    )
    client.start()
    # The first calls of an agent come seconds after its start; asking it to try again is worse than this wait.
    client.wait_ready(_VERDICTS_WAIT_S)
    return client


def _sink(output: Path | None, bootstrap: str | None) -> Sink:
    if output is not None:
        return FileSink(output)
    settings = load_settings(bootstrap_servers=bootstrap)
    publisher = ObservationPublisher(
        connection_options(settings),
        topics=topic_names(settings),
        spool=spool_in(settings.spool, mib_max=settings.spool_mib_max),
        call_spread=settings.call_spread,
    )
    publisher.start()
    return publisher


tap_command = CommandInfo("tap", cls=TapCommand, callback=tap, context_settings={"allow_interspersed_args": False})
