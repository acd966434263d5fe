"""Options shared by several commands, and groups of them that a command takes as one parameter."""

import inspect
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from assay_stream.cli.files import files_option
from assay_stream.cli.output import ReportFormat, RowFormat
from assay_stream.config import Settings, command_settings
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.model.cloudevents import ACCEPTED, operator_time_us
from assay_stream.observe import Vantage


def time_option(help_: str, *names: str, ahead: bool = False) -> Any:
    """Return an option that parses a time to microseconds since the epoch."""

    def parse(text: str) -> int:
        return operator_time_us(text, now_us=time.time_ns() // 1_000, ahead=ahead)

    return typer.Option(*names, parser=parse, metavar="TIME", help=f"{help_} TIME: {ACCEPTED}.")


def check_span(since_us: int | None, until_us: int | None) -> None:
    """Refuse a span that ends before it begins: its empty result would look as if nothing had happened."""
    if since_us is not None and until_us is not None and since_us > until_us:
        raise InputError("bad_time", "--since is after --until: exchange them")


Bootstrap = Annotated[
    str | None, typer.Option(help="Kafka brokers, host:port. Default: ASSAY_STREAM_BOOTSTRAP_SERVERS.")
]
Apply = Annotated[bool, typer.Option("--apply", help="Write. Without it, only print what would be written.")]
ServerId = Annotated[str, typer.Option(help="Your name for the server.")]
ServerIds = Annotated[list[str] | None, typer.Option("--server-id", help="Only this server. Repeatable.")]
AnyServerId = Annotated[str | None, typer.Option(help="Only this server.")]
AnyTool = Annotated[str | None, typer.Option("--tool", help="Only this tool.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Format = Annotated[RowFormat, typer.Option("--format", help="A table for people, or one JSON object per line.")]
Report = Annotated[ReportFormat, typer.Option("--format", help="A table for people, one JSON object per line, or CSV.")]
FromKafka = Annotated[bool, typer.Option("--from-kafka", help="Read the deployment's topics, in no consumer group.")]
Inputs = Annotated[list[Path] | None, files_option("--input", help="Recorded observations (NDJSON). Repeatable.")]
EvidenceFiles = Annotated[
    list[Path] | None, files_option("--evidence", help="Evidence (NDJSON). Repeatable.", kind="evidence")
]
AlertFile = Annotated[
    Path | None, files_option("--input", "--from-file", help="Alerts (NDJSON), in place of the topics.", kind="alerts")
]
SnapshotPartitions = Annotated[int | None, typer.Option(min=1, help="Partitions of the recorded snapshot topic.")]
ProgressOption = Annotated[
    bool | None, typer.Option(help="Report progress on standard error. Default: only on a terminal.")
]
WebPort = Annotated[
    int | None, typer.Option(min=1, max=65_535, help="Serve /healthz, /readyz and /metrics on this port.")
]
TlsCert = Annotated[
    Path | None, typer.Option(help="Certificate to serve HTTPS with (PEM, its key in the same file or --tls-key).")
]
TlsKey = Annotated[Path | None, typer.Option(help="Private key of that certificate.")]
ObserverId = Annotated[
    str | None, typer.Option(envvar="ASSAY_STREAM_OBSERVER_ID", help="Name of this proxy. Default: the host's name.")
]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take several options as one dataclass parameter, each field of which is an option."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind) and isinstance(kind, type)}
    options: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        given = [(name, hints[name], parameter.default)]
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            given = [
                (field.name, types[field.name], inspect.Parameter.empty if field.default is MISSING else field.default)
                for field in fields(groups[name])
            ]
        for option, annotation, default in given:
            options[option] = inspect.Parameter(
                option, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
            )

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    run.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in options.items()}
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOptions:
    """Settings that a command which replays can override."""

    bootstrap_servers: Bootstrap = None
    redaction_enable: Annotated[str | None, typer.Option(help="Redaction rules to turn on, comma-separated.")] = None
    redaction_disable: Annotated[str | None, typer.Option(help="Redaction rules to turn off, comma-separated.")] = None
    redaction_names: Annotated[str | None, typer.Option(help="More sensitive key names, comma-separated.")] = None

    def settings(self, **further: object) -> Settings:
        return command_settings(**{field.name: getattr(self, field.name) for field in fields(self)}, **further)


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageOptions:
    """Who observes which server."""

    observer_id: ObserverId = None
    unscoped: Annotated[bool, typer.Option("--unscoped", help="Keep the server's id out of definition digests.")] = (
        False
    )
    auth_context: Annotated[str | None, typer.Option(help="Label (not a secret) for the permissions in use.")] = None

    def of(self, server_id: str) -> Vantage:
        return Vantage(
            server_id=server_id,
            observer_id=observer_or_host(self.observer_id),
            server_scoped=not self.unscoped,
            auth_context=self.auth_context,
        )


def observer_or_host(observer_id: str | None) -> str:
    return observer_id if observer_id is not None else socket.gethostname()


def stated_servers(pairs: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=SERVER`` options: the operator's server names by their names elsewhere."""
    servers: dict[str, str] = {}
    for pair in pairs:
        name, equals, server_id = pair.partition("=")
        if not equals or not name or not server_id.strip():
            raise ConfigurationError("bad_option", "write --server NAME=SERVER")
        servers[name] = server_id
    return servers
