"""The ``assay-stream`` command and its error handling."""

import sys
from typing import Annotated

import typer

from assay_stream import __version__
from assay_stream.cli import (
    agents,
    alerts,
    alerts_triage,
    archiving,
    compare,
    completion,
    console,
    coverage,
    demo,
    drift,
    evidence,
    exporting,
    extmcp,
    fingerprint,
    handshake,
    ingest,
    inventory,
    list_watch,
    looking_back,
    operating,
    pins,
    policy_plan,
    publishing,
    replay,
    rules,
    schemapin,
    seal_checking,
    seal_proofs,
    sealing,
    showing,
    store,
    suppressing,
    tap,
    validate,
    verify,
)
from assay_stream.cli.groups import Sentences, Tasks
from assay_stream.cli.shared import quiet_client_logs, say
from assay_stream.errors import AssayStreamError, IntegrityError, OperatingError
from assay_stream.kafka.refusals import explained

app = typer.Typer(
    name="assay-stream",
    cls=Tasks,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(demo.demo)
app.command()(fingerprint.fingerprint)
app.command()(drift.drift)
app.command()(publishing.publish)
app.command()(replay.replay)
app.command()(compare.compare)
app.command()(archiving.archive)
app.command()(validate.validate)
app.command()(verify.verify)
app.command()(looking_back.asof)
app.command()(looking_back.timeline)
app.command()(looking_back.trace)
app.command()(coverage.coverage)
app.command("conformance", hidden=True)(handshake.check)  # the former name
app.command(cls=tap.TapCommand, context_settings={"allow_interspersed_args": False})(tap.tap)
app.command()(extmcp.extmcp)
app.command()(list_watch.list_watch)
app.add_typer(schemapin.schemapin_app, name="schemapin")
app.add_typer(handshake.handshake_app, name="handshake")
app.add_typer(operating.topics_app, name="topics")
app.add_typer(pins.pins_app, name="pins")
app.add_typer(rules.policy_app, name="policy")
app.add_typer(rules.keys_app, name="keys")
rules.policy_app.command()(policy_plan.plan)
app.add_typer(alerts.alerts_app, name="alerts")
app.add_typer(inventory.servers_app, name="servers")
app.add_typer(inventory.tools_app, name="tools")
app.add_typer(inventory.observers_app, name="observers")
app.add_typer(evidence.evidence_app, name="evidence")
alerts.alerts_app.command("list")(showing.list_alerts)
alerts.alerts_app.command()(showing.show)
alerts.alerts_app.command()(showing.explain)
app.add_typer(agents.agents_app, name="agents")
app.add_typer(store.store_app, name="store")
for command in (*alerts_triage.COMMANDS, suppressing.suppress, suppressing.unsuppress, alerts.export, alerts.forward):
    alerts.alerts_app.command()(command)
app.add_typer(exporting.export_app, name="export")
app.add_typer(exporting.bundle_app, name="bundle")
app.add_typer(ingest.ingest_app, name="ingest")
app.add_typer(sealing.seal_app, name="seal")
sealing.seal_app.command()(seal_checking.verify)
sealing.seal_app.command()(seal_checking.archive)
sealing.seal_app.command()(seal_proofs.prove)
sealing.seal_app.command("check-proof")(seal_proofs.check_proof_file)
sealing.seal_app.command()(seal_proofs.checkpoint)
sealing.seal_app.command()(seal_proofs.vkey)
app.command()(operating.worker)
app.add_typer(console.console_app, name="console")
app.command()(completion.completion)
for group in app.registered_groups:
    group.cls = Sentences


_EXIT_CODES: dict[type[AssayStreamError], int] = {OperatingError: 3, IntegrityError: 4}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: ARG001 - acts through its callback
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Record which tool definition each MCP tool call used, as evidence on Kafka.

    New here? `assay-stream demo --no-broker` shows what it does in seconds, without Kafka or Java.
    """
    quiet_client_logs()


def run() -> None:
    completion.prepare()
    try:
        app()
    except Exception as error:
        known = explained(error)
        if known is None:
            raise
        say(str(known))
        sys.exit(_EXIT_CODES.get(type(known), 2))
