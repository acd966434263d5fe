"""``assay-stream ingest``: observations over HTTP, and the tokens of those who send them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from assay_stream.cli.options import Bootstrap, TlsCert, TlsKey, WebPort, address_of, serving_tls
from assay_stream.cli.parameters import flag, option
from assay_stream.cli.shared import say
from assay_stream.config import load_settings
from assay_stream.errors import ConfigurationError, needing_extra
from assay_stream.files.local import Aside
from assay_stream.model.schemas import OPENAPI_FILE, all_files

_EXTRA = "ingest"

ingest_app = typer.Typer()


@ingest_app.callback(invoke_without_command=True)
def ingest(
    context: typer.Context,
    listen: str = option("Serve on this host:port.", default="127.0.0.1:8088"),
    clients: Path | None = option("TOML file of those who may publish, and as whom."),
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    client_ca: Path | None = option("Authorities of client certificates (PEM): clients may come with one (mTLS)."),
    behind_tls: bool = flag("Serve plain HTTP beyond this machine: TLS ends in front of it."),
    allow_host: list[str] | None = option("A name that clients may use in Host. Repeatable."),
    openapi: bool = flag("Print the OpenAPI document, and exit."),
    web_port: WebPort = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Take observations over HTTP (CloudEvents) from clients that don't speak Kafka.

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
        from assay_stream.ingest.process import run_ingest
        from assay_stream.observe.http.tap import Listener
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    host, port = address_of(listen)
    tls = None if tls_cert is None else serving_tls(tls_cert, tls_key, client_ca)
    if tls is None and client_ca is not None:
        raise ConfigurationError("bad_option", "--client-ca needs --tls-cert")
    listener = Listener(host=host, port=port, tls=tls, hosts=frozenset(name.lower() for name in allow_host or ()))
    if tls is None and not listener.is_loopback and not behind_tls:
        raise ConfigurationError(
            "bad_option", "tokens must not cross a network in the clear: give --tls-cert, or --behind-tls"
        )
    run_ingest(settings, clients, listener, web_port=web_port)


@ingest_app.command()
def token(
    clients: Annotated[Path, option("The file that gets the entry; it is made if missing.", "--clients")],
    observer_id: Annotated[str, option("The observer that the client is.")],
    server: Annotated[list[str], option("A server that it may report on, or a glob. Repeatable.")],
    days: int | None = option("For how many days. Default: without end.", min=1, max=3_650),
) -> None:
    """Make a token, print it once, and add its hash to the file of clients."""
    with needing_extra(_EXTRA):
        from assay_stream.ingest.clients import hash_of, new_token, read_clients
    made = new_token()
    entry = {"observer_id": observer_id, "servers": server, "token": hash_of(made)}
    if days is not None:
        entry["expires"] = (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    try:
        before = clients.read_text(encoding="utf-8", errors="surrogateescape").rstrip() if clients.exists() else ""
        # Texts of JSON are texts of TOML.
        made_entry = "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in entry.items())
        content = f"{before}\n\n[[clients]]\n{made_entry}".lstrip().encode(errors="surrogateescape")
        read_clients(content, str(clients))
        with Aside() as aside:
            path = aside.path(clients)
            path.touch(mode=0o600)
            path.write_bytes(content)
    except OSError as error:
        raise ConfigurationError("bad_clients", f"cannot write {clients}: {error.strerror}") from None
    typer.echo(made)
    say(f"{clients} has its hash; the token is shown only now")
