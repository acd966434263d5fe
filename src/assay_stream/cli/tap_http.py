"""``assay-stream tap --listen``: the options of a tap over HTTP, and the process that serves it."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay_stream.cli.options import TlsCert, TlsKey, VantageOptions
from assay_stream.cli.parameters import option
from assay_stream.cli.shared import say, stop_event
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.files.local import read_toml
from assay_stream.observe import Sink

if TYPE_CHECKING:
    from assay_stream.observe.gate import Rule
    from assay_stream.observe.http.tap import Listener
    from assay_stream.observe.http.upstreams import Upstream

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

    def check_unused(self) -> None:
        """Refuse options that have no effect without ``--listen``."""
        if any(getattr(self, field.name) for field in fields(self)):
            raise ConfigurationError("bad_upstream", "these options need --listen host:port")

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

    def listener(self, settings: Settings) -> Listener:
        from assay_stream.observe.http.tap import Listener

        host, port = address_of(self.listen or "")
        key = settings.auth_context_key
        options: dict[str, Any] = {}
        try:
            if self.tls_cert is not None:
                options["tls"] = serving_tls(self.tls_cert, self.tls_key)
            if self.upstream_ca is not None:
                options["upstream_tls"] = ssl.create_default_context(cafile=self.upstream_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError("cannot_listen", f"a certificate cannot be used: {error.strerror}") from None
        return Listener(
            host=host,
            port=port,
            hosts=frozenset(name.lower() for name in self.allow_host or ()),
            origins=frozenset(self.allow_origin or ()),
            context_key=b"" if key is None else key.get_secret_value().encode(),
            **options,
        )


def address_of(listen: str) -> tuple[str, int]:
    """Parse the host and port to listen on; raises ``cannot_listen``."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError("cannot_listen", "--listen must be host:port, for example 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def origin_of(listener: Listener, port: int) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{'http' if listener.tls is None else 'https'}://{host}:{port}"


def serving_tls(certificate: Path, key: Path | None, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return the server's TLS context; ``client_ca`` signs client certificates. Raises ``cannot_listen``."""
    try:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        if client_ca is not None:
            tls.load_verify_locations(client_ca)
            tls.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError("cannot_listen", f"a certificate cannot be used: {error.strerror}") from None
    return tls


async def serve(
    upstreams: Sequence[Upstream], listener: Listener, sink: Sink, rule: Rule | None, *, hide: bool
) -> None:
    """Serve until SIGTERM or SIGINT; ``rule`` decides on calls, ``hide`` drops refused tools from lists."""
    from assay_stream.observe.http.tap import run_http_tap

    # What inspects shares the interpreter with what passes, and must not keep it for the usual 5 ms.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)

    def ready(port: int) -> None:
        for upstream in upstreams:
            say(f"{origin_of(listener, port)}{upstream.path} -> {upstream.url} ({upstream.vantage.server_id})")

    await run_http_tap(upstreams, listener, sink=sink, stop=stop_event(), ready=ready, rule=rule, hide=hide)
