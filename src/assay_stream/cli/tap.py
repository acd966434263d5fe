"""``assay-stream tap``, ``list-watch`` and ``extmcp``: the commands that observe servers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer.models import CommandInfo

from assay_stream.cli.options import (
    Bootstrap,
    TlsCert,
    TlsKey,
    VantageOptions,
    WebPort,
    address_of,
    origin_of,
    serving_tls,
    stated_servers,
)
from assay_stream.cli.shared import Plain, argument, flag, log_to_stderr, option, say, stop_event
from assay_stream.config import Settings, load_settings
from assay_stream.errors import ConfigurationError, needing_extra
from assay_stream.files.local import read_toml
from assay_stream.kafka.connection import connection_options
from assay_stream.kafka.topics import topic_names
from assay_stream.limits import HTTP_LIMITS
from assay_stream.model.record import Role
from assay_stream.observe import FileSink, ObservationPublisher, Sink, Vantage, VerdictClient, run_tap
from assay_stream.observe.feeds.feed import Feed
from assay_stream.observe.observation import stated_prefixes
from assay_stream.observe.spool import spool_in
from assay_stream.schemes.hangar import Action
from assay_stream.text.escaping import counted
from assay_stream.text.urls import is_loopback

if TYPE_CHECKING:
    from assay_stream.observe.gate import Rule
    from assay_stream.observe.http.proxy import TapListener
    from assay_stream.observe.http.upstreams import Upstream
    from assay_stream.observe.list_transport import ListedServer


_VERDICTS_WAIT_S = 5.0
_SWITCH_INTERVAL_S = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Where a tap listens, and which servers are behind it."""

    listen: str | None = option("Serve Streamable HTTP on this host:port instead of running a command.")
    upstream: str | None = option("With --listen: the server's MCP endpoint, https://host/path.")
    upstreams_file: Path | None = option("With --listen: a TOML file of several servers.", "--upstreams")
    upstream_ca: Path | None = option("CA certificates used to verify the servers. Default: the system's.")
    tls_cert: TlsCert = None
    tls_key: TlsKey = None
    allow_host: list[str] | None = option("A further name that clients may use for the tap. Repeatable.")
    allow_origin: list[str] | None = option("A web origin whose pages may use the tap. Repeatable.")

    def upstreams(self, server_id: str | None, vantage: VantageOptions) -> Sequence[Upstream]:
        from assay_stream.observe.http.upstreams import Upstream, listed_upstreams, routes

        if self.upstreams_file is not None:
            if self.upstream is not None or server_id is not None:
                raise ConfigurationError("bad_upstream", "give either --upstreams, or --server-id and --upstream")
            # The name stands for the servers that the file names.
            found = listed_upstreams(
                read_toml(self.upstreams_file, "bad_upstream"), str(self.upstreams_file), vantage.of("-")
            )
        elif self.upstream is not None and server_id is not None:
            found = [Upstream(vantage=vantage.of(server_id), url=self.upstream)]
        else:
            raise ConfigurationError("bad_upstream", "give --server-id and --upstream, or --upstreams FILE")
        routes(found)
        return found

    def listener(self, settings: Settings) -> TapListener:
        from assay_stream.observe.http.proxy import TapListener

        host, port = address_of(self.listen or "")
        key = settings.auth_context_key
        tls = serving_tls(self.tls_cert, self.tls_key)
        try:
            upstream_tls = None if self.upstream_ca is None else ssl.create_default_context(cafile=self.upstream_ca)
        except OSError as error:
            raise ConfigurationError("cannot_listen", f"cannot use {self.upstream_ca}: {error.strerror}") from None
        return TapListener(
            host=host,
            port=port,
            tls=tls,
            upstream_tls=upstream_tls,
            hosts=frozenset(name.lower() for name in self.allow_host or ()),
            origins=frozenset(origin.lower() for origin in self.allow_origin or ()),
            context_key=b"" if key is None else key.get_secret_value().encode(),
        )


Unavailable = Annotated[
    Literal["allow", "block"] | None,
    option("What to do with calls until the verdicts have been read. Default: block.", "--enforce-unavailable"),
]


class TapCommand(Plain):
    """The command, whose ``--enforce`` without a value means calls."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        for place, (word, after) in enumerate(pairwise([*own, "-"])):
            # Without `--` the next word may be the server's command.
            is_value = after in ("calls", "hide") if own is args else not after.startswith("-")
            if word == "--enforce" and not is_value:
                args = [*args[: place + 1], "calls", *args[place + 1 :]]
        return super().parse_args(ctx, args)


def tap(
    http: HttpOptions,
    vantage: VantageOptions,
    command: list[str] | None = argument("The MCP server's command, after `--`."),
    server_id: str | None = option("Your name for the server (not what it calls itself)."),
    output: Path | None = option("Append observations to this NDJSON file, not to Kafka."),
    enforce: Literal["calls", "hide"] | None = option(
        "Refuse calls that the digest policy blocks; with hide, keep such tools out of lists too."
    ),
    unavailable: Unavailable = None,
    bootstrap_servers: Bootstrap = None,
) -> int:
    """Put a transparent proxy in front of an MCP server, and publish what it observes.

    Client and server receive each other's bytes unchanged. Every tools/list result is published as a snapshot, every
    tools/call as a call record. Arguments and results are redacted, hashed and dropped. While Kafka is unavailable
    the tap keeps working: it queues, then drops and reports how many.

    With a command, it runs that server (stdio) and exits with its code. With --listen, it is a reverse proxy for
    servers that speak Streamable HTTP, and runs until it is stopped. Tokens are passed on, and never kept or published.

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
        run: Callable[..., Awaitable[int | None]] = partial(_serve_http, upstreams, listener)
        server_ids = [upstream.vantage.server_id for upstream in upstreams]
    else:
        if http != HttpOptions():
            raise ConfigurationError("bad_upstream", "these options need --listen host:port")
        if server_id is None or not command:
            raise ConfigurationError(
                "server_not_started", "give --server-id and the server's command after --, or --listen and --upstream"
            )
        run, server_ids = partial(run_tap, command, vantage=vantage.of(server_id)), [server_id]

    async def observe() -> int:
        enforced = server_ids if enforce else ()
        async with observing("tap", output, bootstrap_servers, enforced, unavailable) as (sink, rule):
            return await run(sink=sink, rule=rule, hide=enforce == "hide") or 0

    return asyncio.run(observe())


@asynccontextmanager
async def observing(
    command: str, output: Path | None, bootstrap: str | None, ids: Sequence[str] = (), unavailable: str | None = None
) -> AsyncIterator[tuple[Sink, Rule | None]]:
    """Yield the sink of observations and the rule on calls; on exit, deliver what is queued and report losses.

    Args:
        ids: the servers to enforce verdicts for; nothing is refused without any.
    """
    log_to_stderr(command)
    if unavailable is not None and not ids:
        raise ConfigurationError("bad_option", "--enforce-unavailable needs --enforce: nothing is refused without it")
    settings = load_settings(bootstrap_servers=bootstrap)
    names = topic_names(settings)
    async with AsyncExitStack() as stack:
        rule = None
        if ids:
            client = VerdictClient(
                connection_options(settings),
                topic=names[Role.VERDICTS],
                unavailable=Action(unavailable or "block"),
                server_ids=ids,
                monotonic_s=time.monotonic,
            )
            stack.push_async_callback(asyncio.to_thread, client.close)
            client.start()
            # The first calls of an agent come seconds after its start; asking it to try again is worse than this wait.
            await asyncio.to_thread(client.wait_ready, _VERDICTS_WAIT_S)
            rule = client.rule
        if output is not None:
            sink: Sink = FileSink(output, digest_key=settings.keyed_by())
        else:
            spool = spool_in(settings.spool, mib_max=settings.spool_mib_max)
            publisher = ObservationPublisher(
                connection_options(settings),
                topics=names,
                spool=spool,
                call_spread=settings.call_spread,
                digest_key=settings.keyed_by(),
            )
            publisher.start()
            sink = publisher
        try:
            yield sink, rule
        finally:
            await sink.aclose()
            if dropped := sum(sink.stats.dropped.values()):
                reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(sink.stats.dropped.items()))
                print(f"assay-stream {command}: dropped {counted(dropped, 'observation')}: {reasons}", file=sys.stderr)


async def _serve_http(
    upstreams: Sequence[Upstream], listener: TapListener, sink: Sink, rule: Rule | None, *, hide: bool
) -> None:
    from assay_stream.observe.http.tap import run_http_tap

    # What inspects shares the interpreter with what passes, and must not keep it for the usual 5 ms.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)

    def ready(port: int) -> None:
        for upstream in upstreams:
            say(f"{origin_of(listener, port)}{upstream.path} -> {upstream.url} ({upstream.vantage.server_id})")
        if listener.tls is None and not listener.is_loopback:
            say("without --tls-cert, tokens and all that clients send cross the network in the clear")

    await run_http_tap(upstreams, listener, sink=sink, stop=stop_event(), ready=ready, rule=rule, hide=hide)


tap_command = CommandInfo("tap", cls=TapCommand, callback=tap, context_settings={"allow_interspersed_args": False})


def list_watch(
    config: Annotated[Path, option("The servers to list (TOML): docs/list-watch.md.")],
    observer_id: str | None = option(
        "Its name as an observer. Default: the host's name with -lister.", envvar="ASSAY_STREAM_OBSERVER_ID"
    ),
    unscoped: bool = flag("Keep the server's id out of definition digests."),
    once: bool = flag("List every server once, and exit with 1 if one failed or was not published."),
    output: Path | None = option("With --once: append observations to this NDJSON file, not to Kafka."),
    ca: Path | None = option("CA certificates used to verify the servers. Default: the system's."),
    web_port: WebPort = None,
    bootstrap_servers: Bootstrap = None,
) -> bool:
    """List MCP servers regularly, and publish what they offer.

    Each server is listed when it announces a change, when its list is out of date (ttlMs), or after an interval. A
    server that is down, hangs or misbehaves does not affect the others. Credentials come from files, and are never
    published.

    Example: assay-stream list-watch --config servers.toml
    """
    from assay_stream.observe.list_transport import listed_servers

    if output is not None and not once:
        raise ConfigurationError("bad_option", "--output needs --once")
    # By default not the name of a tap on this machine: these lists are not what its clients were shown.
    name = f"{socket.gethostname()}-lister" if observer_id is None else observer_id
    observer = Vantage(server_id="-", observer_id=name, server_scoped=not unscoped)
    servers = listed_servers(read_toml(config, "bad_servers"), str(config), observer)
    try:
        tls = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ConfigurationError("bad_servers", f"--ca cannot be used: {error.strerror}") from None
    if once:
        return asyncio.run(_once(servers, tls, output, bootstrap_servers))
    with needing_extra("worker"):
        from assay_stream.worker.listing import run_list_watch
    run_list_watch(load_settings(bootstrap_servers=bootstrap_servers), servers, tls=tls, web_port=web_port)
    return False


async def _once(
    servers: Sequence[ListedServer], tls: ssl.SSLContext, output: Path | None, bootstrap: str | None
) -> bool:
    """Return True if a server could not be listed, or what it offers could not be published."""
    from assay_stream.observe.http.upstreams import Client
    from assay_stream.observe.list_watch import ListWatch

    client = Client(HTTP_LIMITS, tls)
    try:
        async with observing("list-watch", output, bootstrap) as (sink, _):
            watch = ListWatch(servers, publish=sink.publish, client=client)
            await watch.once()
    finally:
        await client.close()
    return any(each.failing is not None for each in watch.watched) or bool(sink.stats.dropped)


_STOP_LIMIT_S = 2.0
_PAUSE_S = 1.0


def extmcp(
    vantage: VantageOptions,
    listen: str = option("Serve gRPC on this host:port.", default="127.0.0.1:9001"),
    server_id: str = option(
        "Your name for the gateway: tools of its lists that no prefix gives to a server.", default="agentgateway"
    ),
    server: list[str] | None = option("TARGET=SERVER: your name for a target of the gateway. Repeatable."),
    prefix: list[str] | None = option("PREFIX=SERVER: what the gateway puts before a server's tool names. Repeatable."),
    enforce: bool = flag("Refuse calls that the digest policy blocks."),
    unavailable: Unavailable = None,
    tls_cert: Path | None = option("Certificate to serve TLS with (PEM)."),
    tls_key: Path | None = option("Private key of that certificate."),
    client_ca: Path | None = option("Serve only clients with a certificate of these CAs."),
    behind_tls: bool = flag("Serve without TLS on other addresses than loopback: a proxy in front terminates TLS."),
    output: Path | None = option("Append observations to this NDJSON file, not to Kafka."),
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Serve agentgateway's policy hook (ExtMcp), and publish the calls and lists of the gateway.

    Without --enforce every call passes; set the gateway's failureMode to failOpen. With --enforce, calls that the
    digest policy blocks are refused; leave failureMode at failClosed, or calls pass while this service is away.

    Example: assay-stream extmcp --listen 127.0.0.1:9001 --prefix github_=github --prefix time_=time
    """
    from assay_stream.plugins import FEEDS

    ext_mcp: Any = FEEDS.load("agentgateway")
    prefixes, servers = stated_prefixes(prefix or ()), stated_servers(server or ())
    # Read, and checked: gRPC does not say what is wrong with them.
    serving_tls(tls_cert, tls_key, client_ca)
    if tls_cert is None and not behind_tls and not is_loopback(address_of(listen)[0]):
        raise ConfigurationError(
            "bad_option", "calls must not cross a network in the clear: give --tls-cert, or --behind-tls"
        )
    tls = None if tls_cert is None else ((tls_key or tls_cert).read_bytes(), tls_cert.read_bytes())
    ca = None if client_ca is None else client_ca.read_bytes()
    own = vantage.of(server_id)
    behind = [pair.partition("=")[2] for pair in (*(prefix or ()), *(server or ()))] or [server_id]
    enforced = behind if enforce else ()
    key = load_settings().auth_context_key

    async def serve() -> None:
        stop = stop_event()
        async with observing("extmcp", output, bootstrap_servers, enforced, unavailable) as (sink, rule):
            answers = ext_mcp(
                Feed(
                    server_id,
                    own.observer_id,
                    sink,
                    auth_context=own.auth_context,
                    rule=rule,
                    filtered=True,
                    server_scoped=own.server_scoped,
                ),
                prefixes=prefixes,
                servers=servers,
                context_key=b"" if key is None else key.get_secret_value().encode(),
            )
            grpc_server, port = answers.serve(listen, tls=tls, client_ca=ca)
            say(f"{listen.rpartition(':')[0]}:{port}: ExtMcp for agentgateway")
            while not stop.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), _PAUSE_S)
                answers.expire()
            await asyncio.to_thread(grpc_server.stop(_STOP_LIMIT_S).wait)
            answers.close()

    asyncio.run(serve())
