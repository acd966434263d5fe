"""``assay-stream console``: web pages over a store, filled by a thread beside them, and who may sign in.

Pages read the store through their own read-only connections. If filling fails, it is retried after a pause, and pages
show a notice until it runs.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self
from urllib.parse import urlsplit

import structlog
import typer

from assay_stream.cli.options import AsJson, Bootstrap, TlsCert, TlsKey, address_of, origin_of, serving_tls
from assay_stream.cli.output import print_rows
from assay_stream.cli.shared import argument, flag, log_to_stderr, option, say, stop_event
from assay_stream.cli.store import StoreFolder, store_folder
from assay_stream.config import Settings, command_settings, load_settings
from assay_stream.errors import AssayStreamError, ConfigurationError, InputError, needing_extra
from assay_stream.kafka.connection import open_admin
from assay_stream.limits import CONSOLE_LIMITS, HTTP_LIMITS, ConsoleLimits
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import Filler
from assay_stream.worker.storing import StoreFilling

if TYPE_CHECKING:
    from assay_stream.console.identity import Identity
    from assay_stream.observe.http.listener import Listener


_STOP_LIMIT_S = 15.0
"""A batch that is being committed, and a consumer that is being closed, take a few seconds."""

_log = structlog.get_logger(__name__)


def pause_s(failures: int, limits: ConsoleLimits = CONSOLE_LIMITS) -> float:
    """Return the delay before the next attempt, after some consecutive failures."""
    return min(limits.filler_pause_first_s * 2.0 ** min(failures - 1, 32), limits.filler_pause_max_s)


class StoreFillingThread:
    """Fill a store from the topics, once started, while the context is active; on exit, finish the current batch."""

    def __init__(self, settings: Settings, folder: Path, tell: Callable[[str], object]) -> None:
        self._settings, self._folder, self._tell = settings, folder, tell
        self.problem: str | None = None
        """Why the store is not being filled; ``None`` while it is."""
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._stop_filling: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="store-filling", daemon=True)
        self.start = self._thread.start

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stopping.set()
            self._stop_filling()
        if self._thread.is_alive():
            self._thread.join(_STOP_LIMIT_S)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            started_s = time.monotonic()
            try:
                asyncio.run(self._fill())
                continue
            except AssayStreamError as error:
                why = f"{error.code}: {error.message}"
            except Exception as error:  # noqa: BLE001 - a thread that ends unseen would leave a store that grows stale
                _log.exception("store_filling_failed")
                why = type(error).__name__
            failures = 1 if time.monotonic() - started_s > CONSOLE_LIMITS.filler_pause_max_s else failures + 1
            wait_s = pause_s(failures)
            self.problem = f"Filling the store failed ({why}). Next try in {wait_s:g} s."
            self._tell(self.problem)
            self._stopping.wait(wait_s)

    async def _fill(self) -> None:
        with schema.writing(self._folder) as connection:
            filling, loop = StoreFilling(self._settings, Filler(connection)), asyncio.get_running_loop()
            with self._lock:
                if self._stopping.is_set():
                    return
                self._stop_filling = lambda: loop.call_soon_threadsafe(filling.stop)
            try:
                # The page says why there are no brokers, or why they refuse us; filling itself would wait.
                async with open_admin(self._settings):
                    self.problem = None
                await filling.run()
            finally:
                with self._lock:
                    self._stop_filling = lambda: None


user_app = typer.Typer(no_args_is_help=True, help="Users of the console that have a password.")

_Name = Annotated[str, argument("Name to sign in with.")]
_Identity = Annotated[Path, option("The console's identity file; `add` creates it if missing.", "--identity")]
_DEFAULT = Path("console.toml")


@user_app.command()
def add(
    name: _Name,
    role: str = option("viewer: read-only; operator: may also decide, with --decide.", default="viewer"),
    identity: _Identity = _DEFAULT,
) -> None:
    """Add a user, or give one a new role and password. The password is asked for, or read from standard input."""
    with needing_extra("console"):
        from assay_stream.console.identity import UserRole, changing_users, new_user
    if role not in set(UserRole):
        raise ConfigurationError("bad_option", "--role is viewer or operator")
    # The file may be left of an identity file that was lost, and has people's passwords.
    users_file = _users_file(identity) if identity.exists() else identity.with_suffix(".users")
    user = new_user(name, UserRole(role), _password())
    with changing_users(users_file) as users:
        users[name] = user
    if not identity.exists():
        identity.write_text(f'[local]\nusers = "{users_file.name}"\n', encoding="utf-8")
        say(f"created {identity}")
    say(f"{name} may sign in as {role}: assay-stream console --identity {identity}")


@user_app.command()
def remove(name: _Name, identity: _Identity = _DEFAULT) -> None:
    """Remove a user; sessions of this user end at once."""
    with needing_extra("console"):
        from assay_stream.console.identity import changing_users
    with changing_users(_users_file(identity)) as users:
        if users.pop(name, None) is None:
            raise InputError("bad_user", "there is no such user: see `assay-stream console user list`")
    say(f"{name} has been removed")


@user_app.command("list")
def list_users(identity: _Identity = _DEFAULT, as_json: AsJson = False) -> None:
    """List the users and their roles."""
    with needing_extra("console"):
        from assay_stream.console.identity import read_users
    path = _users_file(identity)
    users = read_users(path) if path.exists() else {}
    rows = [{"name": user.name, "role": user.role.value} for user in users.values()]
    print_rows(rows, ("name", "role"), "json" if as_json else "table", whole=True)


def _users_file(identity: Path) -> Path:
    with needing_extra("console"):
        from assay_stream.console.identity import read_identity
    local = read_identity(identity).local
    if local is None:
        raise ConfigurationError("bad_identity", f"{identity} has no table [local]: its users have no passwords here")
    return local.users


def _password() -> str:
    if sys.stdin.isatty():
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return password
    return sys.stdin.readline(4_096).rstrip("\r\n")


console_app = typer.Typer(invoke_without_command=True)
console_app.add_typer(user_app, name="user")


@console_app.callback()
def console(
    context: typer.Context,
    store: StoreFolder = None,
    listen: str = option("Serve on this host:port.", default="127.0.0.1:8090"),
    allow_host: list[str] | None = option("Host name that browsers may use. Repeatable."),
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    behind_login: bool = flag("Listen on other addresses than loopback, behind an authenticating TLS proxy."),
    identity: Path | None = option("TOML file: who may sign in, and how. Without it, there is no sign-in."),
    decide: bool = flag("Let operators decide; publishes to Kafka. Needs --identity."),
    fill: bool = flag("Also fill the store from Kafka, as `store run` does."),
    web_port: int | None = option("Serve /healthz, /readyz and /metrics on this port.", min=0, max=65_535),
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Serve web pages over a store until interrupted: alerts with diffs, servers, tools, evidence, digests.

    By default it is read-only, has no sign-in, and listens on loopback only. With --identity, users sign in (local
    users, OpenID Connect, or a proxy that authenticates them); with --decide, operators can decide in it.
    """
    if context.invoked_subcommand is not None:
        return
    with needing_extra("console"):
        from assay_stream.console.identity import read_identity
        from assay_stream.observe.http.listener import Listener
        from assay_stream.worker.telemetry import configure_logs
    folder = store_folder(store)
    host, port = address_of(listen)
    tls = serving_tls(tls_cert, tls_key)
    known = None if identity is None else read_identity(identity)
    own_host = urlsplit((known and known.address) or "").hostname
    hosts = frozenset(name.lower() for name in [*(allow_host or ()), own_host] if name)
    listener = Listener(host=host, port=port, tls=tls, hosts=hosts)
    _check(listener, known, behind_login=behind_login, decide=decide)
    settings = command_settings(bootstrap_servers=bootstrap_servers) if decide or fill else None
    hosted = None if web_port is None else load_settings()
    if hosted is None:
        log_to_stderr("console")
        logging.getLogger("assay_stream.console").setLevel(logging.INFO)  # who signs in
    else:
        configure_logs(hosted)
    deciding = settings if decide else None
    tell = say if hosted is None else _log.error
    with StoreFillingThread(settings, folder, tell) if fill and settings else nullcontext() as filling:
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
    with needing_extra("console"):
        from assay_stream.console.authentication import open_authenticator
        from assay_stream.console.deciding import KafkaPublish
        from assay_stream.console.service import ConsoleMetrics, ConsoleService, ConsoleWatch, StoreReader
        from assay_stream.observe.http.listener import Listener, serve
    stop, reader = stop_event(), StoreReader(folder)
    metrics = ConsoleMetrics((hosted or load_settings()).producer())
    async with AsyncExitStack() as stack:
        stack.callback(reader.close)
        authenticator = publish = None
        if identity is not None:
            authenticator = open_authenticator(identity, decides=settings is not None, is_tls=bool(listener.tls))
            stack.push_async_callback(authenticator.aclose)
        if filling is None and hosted is None:  # a supervised one may start before the store: /readyz says so
            schema.reading(folder).close()
        if settings is not None:
            kafka = KafkaPublish(settings)
            stack.push_async_callback(kafka.aclose)
            publish = metrics.counting(kafka)
        service = ConsoleService(
            reader,
            listener,
            authenticator=authenticator,
            publish=publish,
            filling=lambda: None if filling is None else filling.problem,
            note=metrics.answered,
        )

        def started(port: int) -> None:
            address = f"{origin_of(listener, port)}/"
            mode = "read-only" if settings is None else "operators decide"
            if hosted is None:
                say(f"{address} (store {folder}, {mode})")
            else:
                _log.info("console_started", address=address, store=str(folder), mode=mode)
            if filling is not None:
                filling.start()

        def serving(port: int) -> None:
            _log.info("serving_metrics", port=port)

        try:
            async with asyncio.TaskGroup() as group:
                if hosted is not None and web_port is not None:
                    is_filled = None if filling is None else lambda: filling.problem is None
                    watch = ConsoleWatch(reader, metrics, streams=lambda: service.streams, is_filled=is_filled)
                    pages = Listener(host=hosted.web_host, port=web_port)
                    group.create_task(serve(watch.application(), pages, HTTP_LIMITS, serving, stop))
                await serve(service.application(), listener, HTTP_LIMITS, started, stop)
        except* AssayStreamError as errors:
            raise errors.exceptions[0] from None
    if hosted is not None:
        _log.info("console_ended")


def _check(listener: Listener, identity: Identity | None, *, behind_login: bool, decide: bool) -> None:
    if decide and identity is None:
        raise ConfigurationError("bad_option", "--decide needs --identity, since each decision records its author")
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
            "the console has no login: listen on 127.0.0.1, give --identity, or put a proxy that has one in front of "
            "it and give --behind-login",
        )
    if not listener.hosts:
        raise ConfigurationError("bad_option", "give the name that browsers use with --allow-host")
