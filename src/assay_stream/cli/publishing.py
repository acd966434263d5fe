"""``assay-stream publish`` and ``ingest``: observations from recordings and over HTTP, to Kafka or to a file."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from assay_stream.cli.options import (
    STANDARD_INPUT,
    Bootstrap,
    Force,
    TlsCert,
    TlsKey,
    VantageOptions,
    WebPort,
    address_of,
    every_line,
    pieces,
    refuse_existing_file,
    serving_tls,
    stated_servers,
)
from assay_stream.cli.shared import Refusals, argument, flag, on_kafka, option, say, show_refused
from assay_stream.config import Settings, command_settings, load_settings
from assay_stream.errors import ConfigurationError, InputError, OperatingError, needing_extra
from assay_stream.files.archive import files_in
from assay_stream.files.local import Aside, writing
from assay_stream.kafka.connection import connection_options
from assay_stream.kafka.ranges import read_foreign
from assay_stream.kafka.topics import topic_names
from assay_stream.limits import REFUSED_RECORDS_MAX
from assay_stream.model.schemas import OPENAPI_FILE, all_files
from assay_stream.observe import (
    FileSink,
    Observation,
    ObservationPublisher,
    PublisherLimits,
    Sink,
    from_assay_log,
    from_mcp_wire,
    from_observations,
)
from assay_stream.observe.logs.calls import SpanKind, Whose, from_log
from assay_stream.observe.observation import stated_prefixes
from assay_stream.plugins import LOGS, LogReader

_ROOM_PAUSE_S = 0.01


_OURS = ("mcp-wire", "assay-log", "observations")
if TYPE_CHECKING:
    CaptureFormat = str
else:
    CaptureFormat = Literal[(*_OURS, *LOGS.names())]
Observations = Iterable[Observation] | AsyncIterable[Observation]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What the logs of other products leave open."""

    server: list[str] | None = option("NAME=SERVER: your name for a server of the log. Repeatable.")
    prefix: list[str] | None = option("PREFIX=SERVER: what a gateway puts before a server's tool names. Repeatable.")
    topic: str | None = option("otlp-*: the Kafka topic that holds the spans, instead of files.")
    span_kind: SpanKind = option("Whose spans are calls (otlp-*).", default="server")

    def whose(self, server_id: str | None, vantage: VantageOptions) -> Whose:
        return Whose(
            vantage=vantage.of(server_id or "-"),
            has_default=server_id is not None,
            servers=stated_servers(self.server or ()),
            prefixes=stated_prefixes(self.prefix or ()),
            span_kind=self.span_kind,
        )


def publish(
    source: Annotated[
        CaptureFormat,
        option(
            "mcp-wire: captured JSON-RPC lines {dir, ts, msg}; assay-log: Assay decision log; "
            "observations: our own events; toolhive, hangar: their audit logs; otlp-*: OpenTelemetry spans.",
            "--from",
        ),
    ],
    vantage: VantageOptions,
    logs: LogOptions,
    files: list[Path] | None = argument("NDJSON files, folders of them, or `-` (stdin)."),
    server_id: str | None = option("Your name for the server (not for observations)."),
    dry_run: bool = flag("Write to --output; do not contact a broker."),
    output: Path | None = option("With --dry-run: the new NDJSON file."),
    force: Force = False,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Publish recorded traffic as observations.

    The same file yields the same events with the same ids, so publishing it twice does no harm. Bad lines are
    reported and skipped; the others are published. Exit code 2 if any line was bad.
    """
    if dry_run != (output is not None):
        raise ConfigurationError("bad_option", "--dry-run and --output go together")
    if bool(files) == (logs.topic is not None):
        raise ConfigurationError("bad_option", "give files, `-` for standard input, or with --from otlp-*, --topic")
    log = None if source in _OURS else LOGS.load(source)
    if logs.topic is not None and (log is None or not log.in_topics):
        raise ConfigurationError("bad_option", f"--from {source} reads files: leave --topic out")
    if log is None and logs != LogOptions():
        raise ConfigurationError("bad_option", "--server, --prefix and --span-kind are for logs of other products")
    if source in ("mcp-wire", "assay-log") and server_id is None:
        raise ConfigurationError("bad_option", f"--from {source} needs --server-id")
    if source == "observations" and (server_id is not None or vantage != VantageOptions()):
        raise ConfigurationError("bad_option", "observations name their server and observer: leave these options out")
    if output is not None:
        refuse_existing_file(output, force=force)
    given = [file for path in files or () for file in files_in(path, skipped=say)]
    whose = None if log is None else logs.whose(server_id, vantage)
    reader = _Reader(source=source, server_id=server_id or "-", vantage=vantage, log=log, whose=whose, topic=logs.topic)
    with Aside() as aside:
        target = None
        if output is not None:
            with writing(output):
                target = aside.path(output)
        delivered = deliver(reader.observations(given, bootstrap_servers), target, bootstrap_servers)
        if output is not None and not delivered and output.exists():
            aside.drop()
    refused, lacking = reader.refused, reader.lacking
    done = "published" if output is None else "wrote"
    typer.echo(f"{done} {delivered}, refused {len(refused) + refused.left_out}", err=True)
    if lacking:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(lacking.items()))
        typer.echo(f"not in the log: {counts}", err=True)
    show_refused(refused, REFUSED_RECORDS_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Read recorded traffic, and note the lines that were refused, and what logs of others leave out."""

    source: CaptureFormat
    server_id: str
    vantage: VantageOptions
    log: LogReader | None
    whose: Whose | None
    topic: str | None
    refused: Refusals = field(default_factory=Refusals)
    lacking: Counter[str] = field(default_factory=Counter)

    async def observations(self, files: Iterable[Path], bootstrap: str | None) -> AsyncIterator[Observation]:
        for path in files:
            for each in self._read(path, pieces(path) if self.log and self.log.split else every_line(path)):
                yield each
        if self.topic is not None:
            settings = command_settings(bootstrap_servers=bootstrap)
            async with aclosing(read_foreign(settings, self.topic)) as values:
                async for place, value in values:
                    for each in self._read(place, [value]):
                        yield each

    def _read(self, place: Path | str, content: Iterable[bytes]) -> Iterator[Observation]:
        name = "standard input" if place == STANDARD_INPUT else place

        def collect(error: InputError) -> None:
            self.refused.append(f"{name}: {error}")

        if self.log is not None and self.whose is not None:
            return from_log(self.source, content, self.whose, self.lacking, on_error=collect)
        if self.source == "observations":
            return from_observations(content, on_error=collect)
        seen = self.vantage.of(self.server_id)
        if self.source == "assay-log":
            return from_assay_log(content, server_id=seen.server_id, observer_id=seen.observer_id, on_error=collect)
        return from_mcp_wire(
            content,
            server_id=seen.server_id,
            observer_id=seen.observer_id,
            server_scoped=seen.server_scoped,
            auth_context=seen.auth_context,
            on_error=collect,
        )


def deliver(observations: Observations, output: Path | BinaryIO | None, bootstrap: str | None) -> int:
    settings = command_settings(bootstrap_servers=bootstrap)
    key = settings.keyed_by()
    if output is not None:
        return asyncio.run(_drain(observations, FileSink(output, digest_key=key)))

    async def publish(settings: Settings) -> int:
        with ObservationPublisher(
            connection_options(settings), topics=topic_names(settings), call_spread=settings.call_spread, digest_key=key
        ) as publisher:
            return await _drain(observations, publisher)

    return on_kafka(settings, publish)


async def _each(found: Observations) -> AsyncIterator[Observation]:
    if isinstance(found, AsyncIterable):
        async for each in found:
            yield each
    else:
        for each in found:
            yield each


async def _drain(observations: Observations, sink: Sink) -> int:
    limits, count = PublisherLimits(), 0
    records_max, bytes_max = limits.queue_records_max // 2, limits.queue_bytes_max // 2
    try:
        async for observation in _each(observations):
            count += 1
            while sink.stats.queued >= records_max or sink.stats.queued_bytes >= bytes_max:
                await asyncio.sleep(_ROOM_PAUSE_S)
            sink.publish(observation)
    finally:
        await sink.aclose(timeout_s=60.0)
    stats = sink.stats
    if stats.delivered != count:
        raise OperatingError(
            "not_delivered",
            f"{count - stats.delivered} of {count} events were not delivered: {dict(stats.dropped)}. "
            "Run the command again: an event that arrives twice changes nothing",
        )
    return count


_EXTRA = "ingest"

ingest_app = typer.Typer()


@ingest_app.callback(invoke_without_command=True)
def ingest(
    context: typer.Context,
    listen: str = option("Serve on this host:port.", default="127.0.0.1:8088"),
    clients: Path | None = option("Client credentials (TOML)."),
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    client_ca: Path | None = option("CA certificates that sign client certificates (PEM), for mTLS."),
    behind_tls: bool = flag("Serve plain HTTP on other addresses than loopback: a proxy in front terminates TLS."),
    allow_host: list[str] | None = option("Host name that clients may use. Repeatable."),
    openapi: bool = flag("Print the OpenAPI document, and exit."),
    web_port: WebPort = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Accept observations over HTTP (CloudEvents) from clients that don't speak Kafka.

    202 means that Kafka has acknowledged every event of the request. Clients send to /v1/events with a token, or with a
    certificate, and publish under their own name only.
    """
    if context.invoked_subcommand is not None:
        return
    if openapi:
        typer.echo(all_files()[OPENAPI_FILE], nl=False)
        return
    if clients is None:
        raise ConfigurationError("bad_option", "--clients is required: assay-stream ingest token makes an entry")
    with needing_extra(_EXTRA):
        from assay_stream.ingest.service import run_ingest
        from assay_stream.observe.http.listener import Listener
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    host, port = address_of(listen)
    tls = serving_tls(tls_cert, tls_key, client_ca)
    listener = Listener(host=host, port=port, tls=tls, hosts=frozenset(name.lower() for name in allow_host or ()))
    if tls is None and not listener.is_loopback and not behind_tls:
        raise ConfigurationError(
            "bad_option", "tokens must not cross a network in the clear: give --tls-cert, or --behind-tls"
        )
    run_ingest(settings, clients, listener, web_port=web_port)


@ingest_app.command()
def token(
    clients: Annotated[Path, option("File to add the entry to; created if missing.", "--clients")],
    observer_id: Annotated[str, option("Observer id of the client.")],
    server: Annotated[list[str], option("A server that it may report on, or a glob. Repeatable.")],
    days: int | None = option("Days until the token expires. Default: never.", min=1, max=3_650),
) -> None:
    """Generate a token, print it once, and add its hash to the clients file."""
    with needing_extra(_EXTRA):
        from assay_stream.ingest.requests import hash_of, new_token, read_clients
    made = new_token()
    entry = {"observer_id": observer_id, "servers": server, "token": hash_of(made)}
    if days is not None:
        entry["expires"] = (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    try:
        with Aside() as aside:
            # Before the file is read: two runs at a time would lose the entry of one.
            path = aside.path(clients, mode=0o600)
            before = clients.read_text(encoding="utf-8", errors="surrogateescape").rstrip() if clients.exists() else ""
            # Texts of JSON are texts of TOML.
            made_entry = "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in entry.items())
            content = f"{before}\n\n[[clients]]\n{made_entry}".lstrip().encode(errors="surrogateescape")
            read_clients(content, str(clients))
            path.write_bytes(content)
    except OSError as error:
        raise ConfigurationError("bad_clients", f"cannot write {clients}: {error.strerror}") from None
    typer.echo(made)
    say(f"{clients} has its hash; the token is shown only now")
