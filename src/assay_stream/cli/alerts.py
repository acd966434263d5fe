"""``assay-stream alerts``: export alerts to a file and forward them to receivers."""

import os
import socket
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_stream.alerts.formats import CONTENT_TYPES, AlertFormat, as_lines, read_alert, render, view_of
from assay_stream.alerts.formats.syslog import EXAMPLE_ENTERPRISE
from assay_stream.alerts.index import AlertSelection, SeverityLevel
from assay_stream.cli.files import input_lines
from assay_stream.cli.options import Bootstrap, grouped, time_option
from assay_stream.cli.shared import Refusals, on_kafka, show_refused
from assay_stream.cli.store_sources import AlertOptions, every_row, open_store
from assay_stream.config import Settings, command_settings, load_settings
from assay_stream.errors import ConfigurationError, InputError, needing_extra
from assay_stream.forward.receivers import Receiver, Subscription, is_address, parse_target, secret_from, tls_context
from assay_stream.kafka.lookup import read_records
from assay_stream.model.record import Role
from assay_stream.readmodel.rows import AlertFilter

ServerFilter = Annotated[str | None, typer.Option(help="Only alerts about this server.")]
Since = Annotated[int | None, time_option("Only alerts of this time or later.")]
SeverityFilter = Annotated[
    SeverityLevel | None,
    typer.Option("--severity", "--min-severity", help="Only alerts of this severity or a higher one."),
]


@grouped
def export(
    looking: AlertOptions,
    target: Annotated[AlertFormat, typer.Option("--format", help="What to write.")] = AlertFormat.OCSF,
    since: Since = None,
    server_id: ServerFilter = None,
    severity: SeverityFilter = None,
) -> None:
    """Write alerts to standard output, one per line (SARIF: one document): of a store, the latest record of each.

    Bad alerts are reported and left out, and the exit code is then 2.
    """
    selection = AlertSelection(
        since_ms=None if since is None else since // 1_000, server_id=server_id, severity=severity
    )
    refused = Refusals()
    alerts: Iterable[dict[str, Any]]
    if looking.file is None and looking.store is not None:
        alerts = (alert for alert in stored_alerts(looking) if selection.wants(view_of(alert)))
    else:
        alerts = chosen_alerts(looking.file, selection, refused, bootstrap=looking.bootstrap_servers)
    for line in as_lines(alerts, target):
        sys.stdout.buffer.write(line.encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()
    show_refused(refused)


def forward(
    to: Annotated[
        str | None, typer.Option("--to", help="webhook:URL or syslog:HOST:PORT[,udp|tcp|tls]; TCP is the default.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Several receivers (TOML): webhook, syslog, Splunk HEC, Slack, Teams, PagerDuty: docs/forwarding.md."
        ),
    ] = None,
    target: Annotated[
        AlertFormat | None,
        typer.Option("--format", help="What to send. Default: ocsf to a webhook, cef to a syslog receiver."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Consumer group, one per receiver. Default: <group prefix>-forward-webhook or -syslog."),
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=0.1, max=300.0, help="How long one attempt may take.")] = 10.0,
    header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=VARIABLE", help="Webhook: a further header, its value from an environment variable."
        ),
    ] = None,
    hmac_variable: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="Webhook: sign with the secret in this environment variable.")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="Authorities that take the place of the usual ones (PEM).")
    ] = None,
    enterprise: Annotated[
        int, typer.Option(min=0, help="Syslog: private enterprise number of the structured data.")
    ] = EXAMPLE_ENTERPRISE,
    web_port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Serve /healthz, /readyz and /metrics on this port.")
    ] = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Follow the alerts and deliver each at least once, until told to stop.

    A receiver that does not answer is waited for, and holds up no other. What it refuses for good goes to the dead
    letters.

    Example: assay-stream alerts forward --config receivers.toml
    """
    from assay_stream.forward.configured import read_receivers

    with needing_extra("worker"):
        from assay_stream.forward.forwarder import run_forwarders
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    if config is not None:
        if any(given is not None for given in (to, target, group, header, hmac_variable, ca_file)):
            raise ConfigurationError("bad_option", "with --config, what concerns a receiver stands in the file")
        subscriptions = read_receivers(_bytes_of(config), str(config), group_prefix=settings.group_prefix)
    elif to is not None:
        named = (header, hmac_variable, ca_file)
        subscriptions = [_subscription(to, target, group, named, settings, timeout_s=timeout_s, enterprise=enterprise)]
    else:
        raise ConfigurationError("bad_option", "name a receiver with --to, or a file of receivers with --config")
    run_forwarders(settings, subscriptions, web_port=web_port)


def _bytes_of(config: Path) -> bytes:
    try:
        return config.read_bytes()
    except OSError as error:
        raise ConfigurationError("bad_receivers", f"cannot read {config}: {error.strerror}") from None


def _subscription(
    to: str,
    target: AlertFormat | None,
    group: str | None,
    named: tuple[str | None, str | None, Path | None],
    settings: Settings,
    *,
    timeout_s: float,
    enterprise: int,
) -> Subscription:
    """Build the subscription for the receiver on the command line.

    Args:
        named: header, variable of the HMAC secret, and CA file.
    """
    from assay_stream.forward.syslog import Syslog
    from assay_stream.forward.webhook import Webhook

    header, hmac_variable, ca_file = named
    kind, _, place = to.partition(":")
    receiver: Receiver
    if kind == "webhook" and is_address(place):
        target = target or AlertFormat.OCSF
        receiver = Webhook(
            place,
            content_type=CONTENT_TYPES[target],
            timeout_s=timeout_s,
            tls=tls_context(ca_file),
            header=None if header is None else _header(header),
            secret=None if hmac_variable is None else secret_from(hmac_variable, os.environ).encode(),
        )
    elif kind == "syslog" and (found := parse_target(place)) is not None:
        target = target or AlertFormat.CEF
        if header is not None or hmac_variable is not None:
            raise ConfigurationError("bad_option", "--header and --hmac-variable are for webhooks")
        receiver = Syslog(
            found, host=socket.gethostname(), timeout_s=timeout_s, tls=tls_context(ca_file), enterprise=enterprise
        )
    else:
        raise ConfigurationError(
            "bad_receiver", "--to is webhook:http(s)://HOST/PATH or syslog:HOST:PORT[,udp|tcp|tls] ([::1] for IPv6)"
        )
    return Subscription(
        name="forward",
        receiver=receiver,
        group=f"{settings.group_prefix}-forward-{kind}" if group is None else group,
        write=partial(render, target=target),
    )


def chosen_alerts(
    file: Path | None, selection: AlertSelection, refused: list[str], *, bootstrap: str | None
) -> Iterator[dict[str, Any]]:
    """Yield the selected alerts from a file or from Kafka.

    Raises:
        InputError: ``unreadable_file``.
        ConfigurationError: ``topic_missing``.
    """
    for where, value in _stored(file, bootstrap):
        try:
            alert = read_alert(value)
        except InputError as error:
            refused.append(f"{where}: {error}")
            continue
        if selection.wants(view_of(alert)):
            yield alert


def stored_alerts(looking: AlertOptions) -> Iterator[dict[str, Any]]:
    """Yield the latest record of every alert in a store, most severe first.

    Raises:
        InputError: ``store_unreadable``.
        ConfigurationError: ``store_missing``, ``store_version``.
    """
    with open_store(looking) as opened:
        for row in every_row(lambda paging: opened.store.alerts(AlertFilter(state=None), paging)):
            yield opened.store.alert(row.uid).records[-1]


def _stored(file: Path | None, bootstrap: str | None) -> Iterator[tuple[str, bytes | None]]:
    if file is not None:
        for number, line in input_lines(None if str(file) == "-" else file):
            yield f"line {number}", line
        return
    yield from on_kafka(command_settings(bootstrap_servers=bootstrap), _from_kafka)


async def _from_kafka(settings: Settings) -> list[tuple[str, bytes | None]]:
    return [(str(record.origin), record.value) async for record in read_records(settings, Role.ALERTS)]


def _header(text: str) -> tuple[str, str]:
    name, equals, variable = text.partition("=")
    if not equals or not name or not variable:
        raise ConfigurationError("bad_option", "--header is NAME=VARIABLE, the name of an environment variable")
    return name, secret_from(variable, os.environ)
