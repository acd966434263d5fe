"""``assay-stream coverage``: what is observed of which server, by whom, and what is not."""

from typing import Annotated

import typer

from assay_stream.cli.options import Bootstrap, FromKafka, Inputs, Report, check_span, time_option
from assay_stream.cli.output import ReportFormat, print_rows
from assay_stream.cli.shared import NOTHING_FOUND, collecting_seldom, on_kafka, say
from assay_stream.cli.sources import make_source
from assay_stream.config import Settings, command_settings
from assay_stream.kafka.lookup import read_records
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.record import Role
from assay_stream.replay.selection import Selection
from assay_stream.report.coverage import GRAVE, CoverageCounts
from assay_stream.verify.evidence import Recorded, of_record

_COLUMNS = (
    *("what", "name", "lists", "calls", "lost", "exact", "observer", "server", "unbound", "bound_share"),
    *("last_list", "last_call", "silent_since", "gaps"),
)
_HOUR_US = 3_600_000_000


def coverage(
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
    since: Annotated[int | None, time_option("Only calls of this time or later. Every list counts.")] = None,
    until: Annotated[int | None, time_option("Only records of this time or earlier.")] = None,
    silent_after: Annotated[
        float, typer.Option(min=0, help="Hours without a record after which a server or observer is silent.")
    ] = 48,
    target: Report = ReportFormat.TABLE,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Report lists and calls by server and observer, how calls were bound, and what nobody observed.

    Times are event times; what is silent shows from --until or, without it, the latest record. Exit code 0: every
    call rests on a list, and nobody is silent. 1: a row has the gap never_listed, calls_unlisted,
    observations_lost or silent.
    5: nothing is recorded.
    """
    check_span(since, until)
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    counted = CoverageCounts(since_us=since, until_us=until)
    source = make_source(inputs, from_kafka, Selection(), settings)
    with collecting_seldom():
        if from_kafka:
            on_kafka(settings, lambda settings: _from_topics(settings, counted, since))
        else:
            with source.spool() as spool:
                source.read(lambda record: counted.take_snapshot(record) if record.role is Role.SNAPSHOTS else None)
                for outputs in source.replay(spool).steps():
                    for output in outputs:
                        if output.role is Role.EVIDENCE:
                            counted.take_evidence(Recorded("replayed", output.value or b""))
    rows = list(counted.rows(silent_after_us=int(silent_after * _HOUR_US)))
    if not rows:
        say("no list and no call is recorded: check the source and the times")
        raise typer.Exit(NOTHING_FOUND)
    print_rows(rows, _COLUMNS, target)
    if any(GRAVE.intersection(row["gaps"]) for row in rows):
        raise typer.Exit(1)


async def _from_topics(settings: Settings, counted: CoverageCounts, since_us: int | None) -> None:
    async for record in read_records(settings, Role.SNAPSHOTS):
        counted.take_snapshot(record)
    # Event times may lie after the record's own.
    since_ms = None if since_us is None else max(since_us // 1_000 - DEFAULT_LIMITS.future_max_ms, 0)
    async for record in read_records(settings, Role.EVIDENCE, since_ms=since_ms):
        counted.take_evidence(of_record(record))
