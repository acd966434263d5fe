"""``assay-stream extmcp``: the policy service that agentgateway asks, for observing and for refusing."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import typer

from assay_stream.cli.options import Bootstrap, VantageOptions, grouped, stated_servers
from assay_stream.cli.shared import say
from assay_stream.cli.tap import observing
from assay_stream.cli.tap_http import address_of
from assay_stream.config import load_settings
from assay_stream.errors import ConfigurationError, needing_extra
from assay_stream.observe.feeds.feed import Feed
from assay_stream.observe.http.headers import is_loopback
from assay_stream.observe.prefixes import stated_prefixes
from assay_stream.schemes.hangar import Action

_STOP_LIMIT_S = 2.0
_PAUSE_S = 1.0


@grouped
def extmcp(
    vantage: VantageOptions,
    listen: Annotated[str, typer.Option(help="Serve gRPC on this host:port.")] = "127.0.0.1:9001",
    server_id: Annotated[
        str, typer.Option(help="Your name for the gateway: tools of its lists that no prefix gives to a server.")
    ] = "agentgateway",
    server: Annotated[
        list[str] | None, typer.Option(help="TARGET=SERVER: your name for a target of the gateway. Repeatable.")
    ] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option(help="PREFIX=SERVER: what the gateway puts before a server's tool names. Repeatable."),
    ] = None,
    enforce: Annotated[bool, typer.Option("--enforce", help="Refuse calls that the digest policy blocks.")] = False,
    unavailable: Annotated[
        Literal["allow", "block"],
        typer.Option("--enforce-unavailable", help="What to do with calls until the verdicts have been read."),
    ] = "block",
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate to serve TLS with (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of that certificate.")] = None,
    client_ca: Annotated[Path | None, typer.Option(help="Serve only clients with a certificate of these CAs.")] = None,
    behind_tls: Annotated[
        bool,
        typer.Option("--behind-tls", help="Serve without TLS beyond this machine: something in front of it has TLS."),
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Append observations to this NDJSON file, not to Kafka.")] = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Serve agentgateway's policy hook (ExtMcp), and publish what passes the gateway.

    Without --enforce every call passes; set the gateway's failureMode to failOpen. With --enforce, calls that the
    digest policy blocks are refused; leave failureMode at failClosed, or calls pass while this service is away.

    Example: assay-stream extmcp --listen 127.0.0.1:9001 --prefix github_=github --prefix time_=time
    """
    with needing_extra("extmcp"):
        from assay_stream.observe.feeds.agentgateway import ExtMcp
        from assay_stream.observe.feeds.ext_mcp import start_server
    prefixes, servers = stated_prefixes(prefix or ()), stated_servers(server or ())
    if tls_cert is None and (tls_key is not None or client_ca is not None):
        raise ConfigurationError("bad_option", "--tls-key and --client-ca need --tls-cert")
    if tls_cert is None and not behind_tls and not is_loopback(address_of(listen)[0]):
        raise ConfigurationError(
            "bad_option", "calls must not cross a network in the clear: give --tls-cert, or --behind-tls"
        )
    tls = None if tls_cert is None else (_content(tls_key or tls_cert), _content(tls_cert))
    ca = None if client_ca is None else _content(client_ca)
    own = vantage.of(server_id)
    key = load_settings().auth_context_key

    async def serve() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        ruling = Action(unavailable) if enforce else None
        async with observing("extmcp", output, bootstrap_servers, ruling) as (sink, rule):
            answers = ExtMcp(
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
                enforces=enforce,
            )
            grpc_server, port = start_server(answers, listen, tls=tls, client_ca=ca)
            say(f"{listen.rpartition(':')[0]}:{port}: ExtMcp for agentgateway")
            while not stop.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), _PAUSE_S)
                answers.expire()
            await asyncio.to_thread(grpc_server.stop(_STOP_LIMIT_S).wait)
            answers.close()

    asyncio.run(serve())


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError("cannot_listen", f"cannot read {file}: {error.strerror}") from None
