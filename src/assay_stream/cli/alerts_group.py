"""``assay-stream alerts``: its commands, the most used first."""

import typer

from assay_stream.cli import alerts, alerts_triage, showing, suppressing

alerts_app = typer.Typer(help="Triage, export, forward and suppress alerts.", no_args_is_help=True)
alerts_app.command("list")(showing.list_alerts)
for command in (
    *(showing.show, showing.explain),
    *(alerts_triage.acknowledge, alerts_triage.assign, alerts_triage.comment, alerts_triage.close),
    *(alerts_triage.reopen, suppressing.suppress, suppressing.unsuppress, alerts.export, alerts.forward),
):
    alerts_app.command()(command)
