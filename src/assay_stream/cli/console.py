"""``assay-stream console``: web pages over a store."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import structlog
import typer

from assay_stream.cli.console_filling import StoreFillingThread
from assay_stream.cli.console_users import user_app
from assay_stream.cli.options import Bootstrap
from assay_stream.cli.shared import InertFormatter, say
from assay_stream.cli.store import StoreFolder, store_folder
from assay_stream.cli.tap_http import address_of, serving_tls
from assay_stream.config import Settings, command_settings, load_settings
from assay_stream.errors import AssayStreamError, ConfigurationError, needing_extra
from assay_stream.limits.serving import HTTP_LIMITS
from assay_stream.worker.logs import configure_logs

if TYPE_CHECKING:
    from assay_stream.console.identity import Identity
    from assay_stream.observe.http.tap import Listener

_log = structlog.get_logger(__name__)

_EXTRA = "console"


console_app = typer.Typer(invoke_without_command=True)
console_app.add_typer(user_app, name="user")


@console_app.callback()
def console(
    context: typer.Context,
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
    identity: Annotated[
        Path | None, typer.Option(help="TOML file that says who may sign in, and how. Without it, nobody signs in.")
    ] = None,
    decide: Annotated[
        bool, typer.Option("--decide", help="Let operators decide; publishes to Kafka. Needs --identity.")
    ] = False,
    fill: Annotated[bool, typer.Option("--fill", help="Also fill the store from Kafka, as `store run` does.")] = False,
    web_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Serve /healthz, /readyz and /metrics on this port.")
    ] = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Serve web pages over a store until told to stop: alerts with diffs, servers, tools, evidence, digests.

    Read-only, and without a login: beyond this machine it is served only behind something that has one. With
    --identity people sign in (local users, OpenID Connect, or the word of a proxy), and with --decide, operators decide
    in it.
    """
    if context.invoked_subcommand is not None:
        return
    with needing_extra(_EXTRA):
        from assay_stream.console.identity import read_identity
        from assay_stream.observe.http.tap import Listener
    folder = store_folder(store)
    host, port = address_of(listen)
    tls = None if tls_cert is None else serving_tls(tls_cert, tls_key)
    known = None if identity is None else read_identity(identity)
    hosts = frozenset(name.lower() for name in [*(allow_host or ()), *_own_host(known)])
    listener = Listener(host=host, port=port, tls=tls, hosts=hosts)
    _check(listener, known, behind_login=behind_login, decide=decide)
    settings = command_settings(bootstrap_servers=bootstrap_servers) if decide or fill else None
    hosted = None if web_port is None else load_settings()
    if hosted is None:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(InertFormatter("assay-stream console: %(message)s"))
        logging.basicConfig(handlers=[handler], level=logging.WARNING)
        logging.getLogger("assay_stream.console").setLevel(logging.INFO)  # who signs in
    else:
        configure_logs(hosted)
    deciding = settings if decide else None
    with StoreFillingThread(settings, folder, _tell(hosted)) if fill and settings else nullcontext() as filling:
        asyncio.run(_run(folder, listener, known, deciding, hosted, web_port, filling))


async def _run(
    folder: Path,
    listener: Listener,
    identity: Identity | None,
    settings: Settings | None,
    hosted: Settings | None,
    web_port: int | None,
    filling: StoreFillingThread | None,
) -> None:
    """Serve until stopped.

    Args:
        settings: Kafka settings, for deciding.
        hosted: settings of logging and of the health port, if this process has one.
    """
    with needing_extra(_EXTRA):
        from assay_stream.console.authentication import now_us, open_authenticator
        from assay_stream.console.posting import Posting
        from assay_stream.console.publishing import KafkaPublish
        from assay_stream.console.reader import StoreReader
        from assay_stream.console.service import ConsoleService
        from assay_stream.console.watch import ConsoleWatch, process_metrics
        from assay_stream.observe.http.serving import serve
        from assay_stream.observe.http.tap import Listener
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    authenticator = None
    if identity is not None:
        authenticator = open_authenticator(identity, decides=settings is not None, is_tls=bool(listener.tls))
    publish = None if settings is None else KafkaPublish(settings)
    metrics = process_metrics(load_settings().producer() if hosted is None else hosted.producer())
    reader = StoreReader(folder)
    posting = None if publish is None else Posting(reader, metrics.counting(publish), clock=now_us)
    mode = "read-only" if settings is None else "operators decide"

    def filling_problem() -> str | None:
        return None if filling is None else filling.problem

    service = ConsoleService(
        reader, listener, authenticator=authenticator, posting=posting, filling=filling_problem, note=metrics.answered
    )

    def started(port: int) -> None:
        text = f"{_address(listener, port)} (store {folder}, {mode})"
        if hosted is None:
            say(text)
        else:
            _log.info("console_started", address=_address(listener, port), store=str(folder), mode=mode)

    async def watched() -> None:
        if hosted is None or web_port is None:
            return
        is_filled = None if filling is None else lambda: filling_problem() is None
        watch = ConsoleWatch(reader, metrics, streams=lambda: service.streams, is_filled=is_filled)
        pages = Listener(host=hosted.web_host, port=web_port)
        await serve(watch.application(), pages, HTTP_LIMITS, _log_port, stop)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(watched())
            await serve(service.application(), listener, HTTP_LIMITS, started, stop)
    except* AssayStreamError as errors:
        raise errors.exceptions[0] from None
    finally:
        reader.close()
        if authenticator is not None:
            await authenticator.aclose()
        if publish is not None:
            await publish.aclose()
    if hosted is not None:
        _log.info("console_ended")


def _tell(hosted: Settings | None) -> Callable[[str], object]:
    return say if hosted is None else _log.error


def _log_port(port: int) -> None:
    _log.info("serving_metrics", port=port)


def _own_host(identity: Identity | None) -> list[str]:
    host = None if identity is None or identity.address is None else urlsplit(identity.address).hostname
    return [] if host is None else [host]


def _check(listener: Listener, identity: Identity | None, *, behind_login: bool, decide: bool) -> None:
    if decide and identity is None:
        raise ConfigurationError("bad_option", "--decide needs --identity: who decides is recorded")
    if listener.is_loopback:
        return
    if identity is not None:
        if not (identity.is_secure or (listener.tls is not None and listener.hosts)):
            raise ConfigurationError(
                "bad_identity",
                'beyond this machine people sign in over TLS only: give address = "https://..." in the identity file, '
                "and --tls-cert unless something in front ends TLS",
            )
        return
    if not behind_login:
        raise ConfigurationError(
            "bad_option",
            "the console has no login: listen on 127.0.0.1, give --identity, or put something in front that has one "
            "and give --behind-login",
        )
    if not listener.hosts:
        raise ConfigurationError("bad_option", "give the name that browsers use with --allow-host")


def _address(listener: Listener, port: int) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{'http' if listener.tls is None else 'https'}://{host}:{port}/"
