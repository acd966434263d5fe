"""``assay-stream seal verify`` and ``seal archive``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from assay_stream.cli.files import read_input, refuse_existing_file
from assay_stream.cli.output import json_line, print_json
from assay_stream.cli.seal_report import Format, as_json, print_table
from assay_stream.cli.shared import Bootstrap, quiet_client_logs, say
from assay_stream.config import command_settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.files.aside import Aside
from assay_stream.files.seal_files import FileLogs, write_logs
from assay_stream.files.seal_keys import read_public_keys
from assay_stream.model.record import Role
from assay_stream.seal.check import Report
from assay_stream.seal.heads import Expected, expected_in, expected_of, heads_as_json
from assay_stream.verify.seals import Outcome, outcome_of, verify_logs

if TYPE_CHECKING:
    from assay_stream.kafka.ranges import KafkaLogs

_EXIT_CODES = {Outcome.HOLDS: 0, Outcome.BROKEN: 1, Outcome.NOTHING_VERIFIED: 3, Outcome.PARTLY_SEALED: 3}


Evidence = Annotated[
    list[Path] | None,
    typer.Option(
        "--evidence", help="Archive of evidence, or folder of `seal archive`; may be repeated. Default: from Kafka."
    ),
]
Checkpoints = Annotated[
    list[Path] | None,
    typer.Option(
        "--checkpoints",
        help="Archive of checkpoints, or folder of `seal archive`; may be repeated. Default: from Kafka.",
    ),
]
Keys = Annotated[
    list[Path],
    typer.Option("--key", metavar="PUB.pem", help="Public key whose checkpoints count. May be given several times."),
]
LogStarts = Annotated[
    list[str] | None,
    typer.Option(
        "--log-start",
        metavar="PARTITION:OFFSET",
        help="For archives: where the log began when it was archived, after retention. `seal archive` prints it.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to a group."""
    app.command()(verify)
    app.command()(archive)


def verify(
    key: Keys,
    evidence: Evidence = None,
    checkpoints: Checkpoints = None,
    partition: Annotated[list[int] | None, typer.Option(help="Only this partition. May be repeated.")] = None,
    log_start: LogStarts = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|PARTITION:SIZE[:ROOT]",
            help="What was sealed at an earlier time: a file of --write-head, or so many records of a partition, "
            "and the root of their tree. May be repeated.",
        ),
    ] = None,
    write_head: Annotated[
        Path | None,
        typer.Option(
            help="If nothing is broken, write what is sealed now to this file, for a later --expect. Keep it "
            "where nobody who runs the brokers can alter it. One that exists is replaced if it is expected, too."
        ),
    ] = None,
    target: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.TABLE,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Hold evidence against its checkpoints, and name the offset and kind of every fault, up to 100 a partition.

    Exit code 0 if all that is sealed and still there holds, 1 if anything is broken or cut off, 2 for a wrong
    command line or unusable file, 3 if nothing could be verified, or nothing in a partition that has evidence.
    """
    keys = read_public_keys(key)
    expected = [head for text in expect or () for head in _expected(text)]
    if write_head is not None and str(write_head) not in (expect or ()):
        refuse_existing_file(write_head, force=False)
    elif write_head is not None and partition:
        raise ConfigurationError(
            "bad_option", "the heads of some partitions must not replace those of all: leave out --partition"
        )
    from_kafka = not evidence and not checkpoints
    sealed_offsets = _sealed_offsets(bootstrap_servers) if from_kafka else {}
    with _logs(evidence, checkpoints, log_start, bootstrap_servers) as (records, seals):
        reports = verify_logs(
            records,
            seals,
            keys,
            partitions=partition or (),
            expected=expected,
            partition_count=None if isinstance(records, FileLogs) else len(records.names()),
            claims_before=None if isinstance(seals, FileLogs) else seals.settled,
            sealed_offsets=sealed_offsets,
        )
    files = [logs for logs in (records, seals) if isinstance(logs, FileLogs)]
    outcome = outcome_of(reports, bad_lines=sum(logs.bad_lines_count for logs in files))
    if target is Format.JSON:
        print_json(as_json(outcome, reports, files))
    else:
        print_table(outcome, reports, files)
    if write_head is not None:
        _write_head(write_head, outcome, reports)
    lacking = sorted(set(partition or ()) - {report.partition for report in reports})
    if lacking:
        say(f"there is neither evidence nor a checkpoint of partition {', '.join(map(str, lacking))}")
    # What was asked for and is not there was not verified.
    raise typer.Exit(_EXIT_CODES[outcome] or (_EXIT_CODES[Outcome.NOTHING_VERIFIED] if lacking else 0))


def _expected(text: str) -> list[Expected]:
    path = Path(text)
    if path.exists():
        return expected_in(read_input(path), text)
    return [expected_of(text)]


def _write_head(path: Path, outcome: Outcome, reports: list[Report]) -> None:
    if outcome not in (Outcome.HOLDS, Outcome.PARTLY_SEALED):
        say(f"{path} is not written: {outcome.value.replace('_', ' ')}")
        return
    try:
        with Aside() as aside:
            aside.path(path).write_bytes(json_line(heads_as_json(reports)).encode() + b"\n")
    except OSError as error:
        raise ConfigurationError("unwritable_file", f"cannot write {path}: {error.strerror}") from None


def _sealed_offsets(bootstrap: str | None) -> dict[int, int]:
    """Return what the sealer has committed, before any checkpoint is read: they are then all behind it."""
    from assay_stream.kafka.connection import start_admin
    from assay_stream.kafka.lookup import committed_offsets
    from assay_stream.kafka.topics import topic_names

    quiet_client_logs()
    settings = command_settings(bootstrap_servers=bootstrap)

    async def committed() -> dict[tuple[str, int], int]:
        await (await start_admin(settings, waiting=say)).close()
        return await committed_offsets(settings, "seal")

    topic = topic_names(settings)[Role.EVIDENCE]
    return {number: offset for (name, number), offset in asyncio.run(committed()).items() if name == topic}


def archive(
    output: Annotated[Path, typer.Option(help="Folder for the files; made if missing, else it must be empty.")],
    gzip: Annotated[bool, typer.Option("--gzip", help="Compress the files.")] = False,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Copy evidence and checkpoints from Kafka into files that `seal verify` reads, one for each partition.

    Prints a summary as one JSON object, with the start of each log that retention has cut.
    """
    with _logs(None, None, None, bootstrap_servers) as (records, seals):
        if not isinstance(seals, FileLogs) and not seals.at_rest:
            raise OperatingError(
                "checkpoints_moving",
                "checkpoints are written all the time, so that the ends of the partitions would not fit together: "
                "stop the sealer for as long as this takes, or have it seal less often",
            )
        written = write_logs(output, records, seals, compress=gzip)
        starts = {str(name.partition): records.start(name) for name in records.names() if records.start(name)}
    print_json({"written": written, "log_start": starts})


class _Sources(NamedTuple):
    evidence: FileLogs | KafkaLogs
    checkpoints: FileLogs | KafkaLogs


@contextmanager
def _logs(
    evidence: list[Path] | None, checkpoints: list[Path] | None, log_start: list[str] | None, bootstrap: str | None
) -> Iterator[_Sources]:
    if log_start and not evidence:
        raise ConfigurationError("bad_option", "--log-start is for --evidence: Kafka knows where its logs begin")
    starts = _starts(log_start)
    # Checkpoints first: what they cover is then within the end of the evidence.
    with (
        logs_of(Role.CHECKPOINTS, checkpoints, bootstrap) as seals,
        logs_of(Role.EVIDENCE, evidence, bootstrap, starts) as records,
    ):
        yield _Sources(records, seals)


@contextmanager
def logs_of(
    role: Role, paths: list[Path] | None, bootstrap: str | None, starts: dict[int, int] | None = None
) -> Iterator[FileLogs | KafkaLogs]:
    """Open the logs of one kind: of archives if there are any, else of Kafka."""
    if paths:
        yield FileLogs(paths, role, starts=starts)
        return
    from assay_stream.kafka.connection import start_admin
    from assay_stream.kafka.ranges import KafkaLogs

    quiet_client_logs()
    settings = command_settings(bootstrap_servers=bootstrap)
    with asyncio.Runner() as runner:

        async def reach() -> None:
            await (await start_admin(settings, waiting=say)).close()

        runner.run(reach())
        with KafkaLogs(settings, role, runner) as logs:
            yield logs


def _starts(texts: list[str] | None) -> dict[int, int]:
    starts = {}
    for text in texts or ():
        number, _, offset = text.partition(":")
        if not (number.isdecimal() and offset.isdecimal()):
            raise ConfigurationError("bad_option", "write --log-start as PARTITION:OFFSET, for example 3:1200")
        starts[int(number)] = int(offset)
    return starts
