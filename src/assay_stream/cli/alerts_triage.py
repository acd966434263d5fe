"""``assay-stream alerts acknowledge``, ``assign``, ``comment``, ``close`` and ``reopen``: work on an alert."""

from typing import Annotated

import typer

from assay_stream.cli.deciding import Deciding
from assay_stream.cli.options import AlertFile, grouped
from assay_stream.cli.shared import say
from assay_stream.cli.showing import Uid
from assay_stream.cli.store_sources import AlertOptions, open_store
from assay_stream.model.record import Role
from assay_stream.report.decisions import AlertAct, alert_decision
from assay_stream.text.escaping import visible


@grouped
def acknowledge(uid: Uid, by: Deciding, file: AlertFile = None) -> None:
    """Acknowledge an alert: it stays quiet until its severity rises, it closes, or it comes back."""
    _do("acknowledge", uid, by, file)


@grouped
def assign(
    uid: Uid, by: Deciding, to: Annotated[str, typer.Option("--to", help="Assignee.")], file: AlertFile = None
) -> None:
    """Assign an alert to somebody."""
    _do("assign", uid, by, file, assignee=to)


@grouped
def comment(uid: Uid, by: Deciding, file: AlertFile = None) -> None:
    """Comment on an alert, open or closed: the reason is the comment."""
    _do("comment", uid, by, file)


@grouped
def close(uid: Uid, by: Deciding, file: AlertFile = None) -> None:
    """Close an alert. It stays closed until its cause has ended and comes back, or becomes more severe."""
    _do("close", uid, by, file)


@grouped
def reopen(uid: Uid, by: Deciding, file: AlertFile = None) -> None:
    """Reopen a closed alert."""
    _do("reopen", uid, by, file)


def _do(act: AlertAct, uid: str, by: Deciding, file: AlertFile, assignee: str | None = None) -> None:
    with open_store(AlertOptions(file=file, bootstrap_servers=by.bootstrap_servers), Role.ALERTS) as opened:
        for text in opened.refused:
            say(text)
        row = opened.store.alert(uid).row
    by.decide(alert_decision(act, server_id=row.server_id, uid=row.uid, assignee=assignee))
    say(f"{act}: {row.uid[:12]} ({row.kind}, {visible('/'.join(filter(None, (row.server_id, row.tool_name))))})")
