"""``assay-stream seal verify`` and ``seal archive``."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from assay_stream.cli.files import read_input, refuse_existing_file
from assay_stream.cli.options import Bootstrap, Format, grouped
from assay_stream.cli.output import RowFormat, json_line, print_json
from assay_stream.cli.seal_report import as_json, print_table
from assay_stream.cli.shared import brokers_of, on_kafka, say
from assay_stream.config import command_settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.files.aside import Aside
from assay_stream.files.failures import writing
from assay_stream.files.seal_files import FileLogs, write_logs
from assay_stream.files.seal_keys import read_public_keys
from assay_stream.kafka.ranges import KafkaLogs, committed_offsets
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role
from assay_stream.seal.check import Report
from assay_stream.seal.heads import Expected, expected_in, expected_of, heads_as_json
from assay_stream.verify.seals import SealOutcome, outcome_of, verify_logs

_EXIT_CODES = {
    SealOutcome.HOLDS: 0,
    SealOutcome.BROKEN: 1,
    SealOutcome.NOTHING_VERIFIED: 3,
    SealOutcome.PARTLY_SEALED: 3,
}

SealLogs = FileLogs | KafkaLogs
Checkpoints = Annotated[
    list[Path] | None,
    typer.Option("--checkpoints", help="Archive, or folder of `seal archive`. Repeatable. Default: Kafka."),
]
PublicKeysOption = Annotated[
    list[Path], typer.Option("--key", metavar="PUB.pem", help="Public key to trust. Repeatable.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLogs:
    """Where evidence and checkpoints are."""

    evidence: Annotated[
        list[Path] | None, typer.Option(help="Archive, or folder of `seal archive`. Repeatable. Default: Kafka.")
    ] = None
    checkpoints: Checkpoints = None
    log_start: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTITION:OFFSET",
            help="For archives: where the log began, after retention, when it was archived. `seal archive` prints it.",
        ),
    ] = None
    bootstrap_servers: Bootstrap = None

    @contextmanager
    def opened(self) -> Iterator[tuple[SealLogs, SealLogs]]:
        if self.log_start and not self.evidence:
            raise ConfigurationError("bad_option", "--log-start is for --evidence: Kafka knows where its logs begin")
        starts = {}
        for text in self.log_start or ():
            number, _, offset = text.partition(":")
            if not (number.isdecimal() and offset.isdecimal()):
                raise ConfigurationError("bad_option", "write --log-start as PARTITION:OFFSET, for example 3:1200")
            starts[int(number)] = int(offset)
        # Checkpoints first: what they cover is then within the end of the evidence.
        with (
            logs_of(Role.CHECKPOINTS, self.checkpoints, self.bootstrap_servers) as seals,
            logs_of(Role.EVIDENCE, self.evidence, self.bootstrap_servers, starts) as records,
        ):
            yield records, seals


@contextmanager
def logs_of(
    role: Role, paths: list[Path] | None, bootstrap: str | None, starts: dict[int, int] | None = None
) -> Iterator[SealLogs]:
    """Open the logs of one kind: archives if given, else Kafka."""
    if paths:
        yield FileLogs(paths, role, starts=starts)
        return
    settings = command_settings(bootstrap_servers=bootstrap)
    with brokers_of(settings) as runner, KafkaLogs(settings, role, runner) as logs:
        yield logs


@grouped
def verify(
    key: PublicKeysOption,
    logs: SealedLogs,
    partition: Annotated[list[int] | None, typer.Option(help="Only this partition. Repeatable.")] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|PARTITION:SIZE[:ROOT]",
            help="What was sealed at an earlier time: a file written by --write-head, or the number of records of a "
            "partition and the root of their tree. Repeatable.",
        ),
    ] = None,
    write_head: Annotated[
        Path | None,
        typer.Option(
            help="If nothing is broken, write what is sealed now to this file, for a later --expect. Keep it where "
            "nobody who runs the brokers can alter it. An existing file is replaced only if it is expected, too."
        ),
    ] = None,
    target: Format = RowFormat.TABLE,
) -> None:
    """Check evidence against its checkpoints, and name the offset and kind of up to 100 faults per partition.

    Exit code 0 if everything that is sealed and still there holds, 1 if anything is broken or cut off, 2 for a wrong
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
    from_kafka = not logs.evidence and not logs.checkpoints
    sealed_offsets = _sealed_offsets(logs.bootstrap_servers) if from_kafka else {}
    with logs.opened() as (records, seals):
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
    files = [given for given in (records, seals) if isinstance(given, FileLogs)]
    outcome = outcome_of(reports, bad_lines=sum(given.bad_lines_count for given in files))
    if target is RowFormat.JSON:
        print_json(as_json(outcome, reports, files))
    else:
        print_table(outcome, reports, files)
    if write_head is not None:
        _write_head(write_head, outcome, reports)
    lacking = sorted(set(partition or ()) - {report.partition for report in reports})
    if lacking:
        say(f"there is neither evidence nor a checkpoint of partition {', '.join(map(str, lacking))}")
    # What was asked for and is not there was not verified.
    raise typer.Exit(_EXIT_CODES[outcome] or (_EXIT_CODES[SealOutcome.NOTHING_VERIFIED] if lacking else 0))


def _expected(text: str) -> list[Expected]:
    path = Path(text)
    return expected_in(read_input(path), text) if path.exists() else [expected_of(text)]


def _write_head(path: Path, outcome: SealOutcome, reports: list[Report]) -> None:
    if outcome not in (SealOutcome.HOLDS, SealOutcome.PARTLY_SEALED):
        say(f"{path} is not written: {outcome.value.replace('_', ' ')}")
        return
    with writing(path), Aside() as aside:
        aside.path(path).write_bytes(json_line(heads_as_json(reports)).encode() + b"\n")


def _sealed_offsets(bootstrap: str | None) -> dict[int, int]:
    """Return the offsets that the sealer has committed. Call before reading checkpoints, so that all of them are
    covered.
    """
    settings = command_settings(bootstrap_servers=bootstrap)
    committed = on_kafka(settings, lambda settings: committed_offsets(settings, "seal"))
    topic = topic_names(settings)[Role.EVIDENCE]
    return {number: offset for (name, number), offset in committed.items() if name == topic}


def archive(
    output: Annotated[Path, typer.Option(help="Folder for the files; it must be empty or missing.")],
    gzip: Annotated[bool, typer.Option("--gzip", help="Compress the files.")] = False,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Copy evidence and checkpoints from Kafka into files that `seal verify` reads, one for each partition.

    Prints a summary as one JSON object, with the start of each log that retention has cut.
    """
    with SealedLogs(bootstrap_servers=bootstrap_servers).opened() as (records, seals):
        if not isinstance(seals, FileLogs) and not seals.at_rest:
            raise OperatingError(
                "checkpoints_moving",
                "checkpoints are being written all the time, so the ends of the partitions would not fit together: "
                "stop the sealer while this runs, or let it seal less often",
            )
        written = write_logs(output, records, seals, compress=gzip)
        starts = {str(name.partition): records.start(name) for name in records.names() if records.start(name)}
    print_json({"written": written, "log_start": starts})
