"""``assay-stream console``: web pages over a store."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay_stream.cli.shared import InertFormatter, say
from assay_stream.cli.store import StoreFolder, store_folder
from assay_stream.cli.tap_http import address_of, serving_tls
from assay_stream.errors import ConfigurationError, needing_extra
from assay_stream.limits import HTTP_LIMITS

if TYPE_CHECKING:
    from assay_stream.observe.http.tap import Listener

_EXTRA = "console"


def console(
    store: StoreFolder = None,
    listen: Annotated[str, typer.Option(help="Serve on this host:port.")] = "127.0.0.1:8090",
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name that browsers may use in Host. Repeatable.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate to serve HTTPS with (PEM, its key in the same file or --tls-key).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of that certificate.")] = None,
    behind_login: Annotated[
        bool,
        typer.Option("--behind-login", help="Serve beyond this machine: something in front asks who it is, over TLS."),
    ] = False,
) -> None:
    """Serve web pages over a store until told to stop: alerts with diffs, servers, tools, evidence, digests.

    Read-only: it opens the store that `store run` or `store load` fills, and nothing else. It has no login: beyond
    this machine it is served only behind something that has one.
    """
    with needing_extra(_EXTRA):
        from assay_stream.console.reader import StoreReader
        from assay_stream.console.service import ConsoleService
        from assay_stream.observe.http.tap import Listener, serve
    folder = store_folder(store)
    host, port = address_of(listen)
    tls = None if tls_cert is None else serving_tls(tls_cert, tls_key)
    hosts = frozenset(name.lower() for name in allow_host or ())
    listener = Listener(host=host, port=port, tls=tls, hosts=hosts)
    _check(listener, behind_login=behind_login)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(InertFormatter("assay-stream console: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)

    async def run() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        reader = StoreReader(folder)
        try:
            await serve(
                ConsoleService(reader, listener).application(),
                listener,
                HTTP_LIMITS,
                lambda port: say(f"{_address(listener, port)} (store {folder})"),
                stop,
            )
        finally:
            reader.close()

    asyncio.run(run())


def _check(listener: Listener, *, behind_login: bool) -> None:
    if listener.is_loopback:
        return
    if not behind_login:
        raise ConfigurationError(
            "bad_option",
            "the console has no login: listen on 127.0.0.1, or put something in front that has one and give "
            "--behind-login",
        )
    if not listener.hosts:
        raise ConfigurationError("bad_option", "give the name that browsers use with --allow-host")


def _address(listener: Listener, port: int) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{'http' if listener.tls is None else 'https'}://{host}:{port}/"
