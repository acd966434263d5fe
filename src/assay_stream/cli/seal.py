"""``assay-stream seal``: sign what the evidence topic holds, check it, archive it, and prove records to others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream.bindings.erasures import Account, Erasures
from assay_stream.cli.evidence import ControlFiles, act_row, known_erasures, print_erased
from assay_stream.cli.options import (
    Bootstrap,
    Force,
    Format,
    WebPort,
    read_input,
    refuse_existing_file,
    write_key_files,
)
from assay_stream.cli.output import json_line, print_json, print_line, refusal
from assay_stream.cli.shared import argument, brokers_of, flag, on_kafka, option, say
from assay_stream.config import Settings, command_settings, load_settings
from assay_stream.errors import ConfigurationError, InputError, OperatingError, needing_extra
from assay_stream.files.local import Aside, writing
from assay_stream.files.seal_files import FileLogs, read_private_key, read_public_keys, record_in, write_logs
from assay_stream.kafka.ranges import KafkaLogs, committed_offsets
from assay_stream.kafka.topics import topic_names
from assay_stream.limits import LINE_BYTES_MAX
from assay_stream.model.checkpoint import RANGE_RECORDS_MAX, origin_of
from assay_stream.model.record import TOPIC_NAMES, Role
from assay_stream.schemes import tlog
from assay_stream.schemes.tlog import is_key_name
from assay_stream.seal.check import (
    Expected,
    Fault,
    Report,
    SealOutcome,
    expected_in,
    expected_of,
    heads_as_json,
    outcome_of,
    verify_logs,
)
from assay_stream.seal.proof import Chain, chain_of, check_proof, check_tlog_proof, consistency, inclusion, last_of
from assay_stream.text.escaping import shown

_ROW = "{:<40} {:>10} {:>8} {:>9} {:>9} {:>12} {:>10} {:>7}"
_RESTORE = "find the later copy of evidence and checkpoints, and who put this one in its place"
_FIXES = {
    "partition_missing": "the whole partition was sealed, and its checkpoints are gone: " + _RESTORE,
    "partitions_missing": "the topic has lost partitions: " + _RESTORE,
    "tail_cut": "the end of what was sealed is gone: " + _RESTORE,
    "sealed_offset_ahead": "the end of what was sealed is gone: " + _RESTORE,
    "sibling_head_differs": "the partition has another past than when its siblings were sealed: " + _RESTORE,
    "expected_head_differs": "the partition has another past than the one that is expected: " + _RESTORE,
}
"""What to do about a head that is wrong."""
_SUMMARY = {
    SealOutcome.HOLDS: "holds: everything sealed and still there is unchanged; unsealed records are not covered",
    SealOutcome.BROKEN: "broken",
    SealOutcome.PARTLY_SEALED: "partly sealed: what is sealed holds, and there are partitions with evidence of which "
    "nothing is sealed: seal them (assay-stream seal --once), and find out why if they were sealed before",
    SealOutcome.NOTHING_VERIFIED: "nothing verified: nothing is sealed, or retention deleted all that was",
}
_EXIT_CODES = {SealOutcome.HOLDS: 0, SealOutcome.BROKEN: 1}
_NOTHING_VERIFIED = 3


def as_json(outcome: SealOutcome, reports: list[Report], files: list[FileLogs]) -> dict[str, Any]:
    def row(fault: Fault) -> dict[str, Any]:
        why = {"detail": fault.detail, "fix": _FIXES[fault.code]} if fault.kind == "head" else {}
        return {"kind": fault.kind, "offset": fault.offset, "code": fault.code, **why}

    return {
        "result": outcome.value,
        "logs": [
            {
                **{name: getattr(report, name) for name in ("topic", "partition", "checkpoints", "sealed_to")},
                "sealed_size": report.tree_size,
                "root": str(report.roots[report.tree_size]) if report.tree_size else None,
                **{name: getattr(report, name) for name in ("verified", "expired", "unsealed", "faults_count")},
                "erased": dict(report.erased),
                "faults": list(map(row, report.faults)),
            }
            for report in reports
        ],
        "bad_lines_count": sum(logs.bad_lines_count for logs in files),
        "bad_lines": [line._asdict() for logs in files for line in logs.bad_lines],
    }


def print_table(outcome: SealOutcome, reports: list[Report], files: list[FileLogs]) -> None:
    print_line(_ROW.format("LOG", "VERIFIED", "SEALED", "EXPIRED", "UNSEALED", "CHECKPOINTS", "SEALED TO", "FAULTS"))
    for report in reports:
        sealed_to = "-" if report.sealed_to is None else report.sealed_to
        counts = (report.verified, report.tree_size, report.expired, report.unsealed, report.checkpoints, sealed_to)
        print_line(_ROW.format(_name(report), *counts, report.faults_count))
    for report in reports:
        for fault in report.faults:
            what = "checkpoint record" if fault.kind == "checkpoint" else "offset"
            why = f": {shown(fault.detail)}. {_FIXES[fault.code]}" if fault.kind == "head" else ""
            code = f": {fault.code}" if fault.code else ""
            print_line(f"{fault.kind:<10} {_name(report)} {what} {fault.offset}{code}{why}")
        if report.faults_count > len(report.faults):
            print_line(f"and {report.faults_count - len(report.faults)} more in {_name(report)}")
    for logs in files:
        for line in logs.bad_lines:
            print_line(f"unreadable {shown(line.file)} line {line.line}")
        if logs.bad_lines_count > len(logs.bad_lines):
            print_line(f"and {logs.bad_lines_count - len(logs.bad_lines)} more such lines")
    print_line(_SUMMARY[outcome])


def _name(report: Report) -> str:
    return f"{shown(report.topic) or '(unknown)'}/{report.partition}"


SealLogs = FileLogs | KafkaLogs
Checkpoints = Annotated[
    list[Path] | None, option("Archive, or folder of `seal archive`. Repeatable. Default: Kafka.", "--checkpoints")
]
PublicKeysOption = Annotated[list[Path], option("Public key to trust. Repeatable.", "--key", metavar="PUB.pem")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLogs:
    """Where evidence and checkpoints are."""

    evidence: list[Path] | None = option("Archive, or folder of `seal archive`. Repeatable. Default: Kafka.")
    checkpoints: Checkpoints = None
    log_start: list[str] | None = option(
        "For archives: where the log began, after retention, when it was archived. `seal archive` prints it.",
        metavar="PARTITION:OFFSET",
    )
    bootstrap_servers: Bootstrap = None
    control: ControlFiles = None

    def account(self) -> Account:
        """Return the account of what was erased: of evidence in files only by the control records that are given."""
        is_known = self.control or not self.evidence
        return Account(partial(known_erasures, self.control, self.bootstrap_servers) if is_known else Erasures)

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
    if paths:
        with closing(FileLogs(paths, role, starts=starts)) as files:
            yield files
        return
    settings = command_settings(bootstrap_servers=bootstrap)
    with brokers_of(settings) as runner, KafkaLogs(settings, [role], runner) as logs:
        yield logs


def verify(
    key: PublicKeysOption,
    logs: SealedLogs,
    partition: list[int] | None = option("Only this partition. Repeatable."),
    expect: list[str] | None = option(
        "What was sealed at an earlier time: a file written by --write-head, or the number of records of a "
        "partition and the root of their tree. Repeatable.",
        metavar="FILE|PARTITION:SIZE[:ROOT]",
    ),
    write_head: Path | None = option(
        "If nothing is broken, write what is sealed now to this file, for a later --expect. Keep it where "
        "nobody who runs the brokers can alter it. An existing file is replaced only if it is expected, too."
    ),
    target: Format = "table",
) -> int:
    """Check evidence against its checkpoints, and name the offset and kind of up to 100 faults per partition.

    Exit code 0 if everything that is sealed and still there holds, 1 if anything is broken or cut off, 2 for a wrong
    command line or unusable file, 3 if nothing could be verified, or nothing in a partition that has evidence.
    """
    keys = read_public_keys(key)
    expected: list[Expected] = []
    for text in expect or ():
        expected += expected_in(read_input(Path(text)), text) if Path(text).exists() else [expected_of(text)]
    if write_head is not None and str(write_head) not in (expect or ()):
        refuse_existing_file(write_head, force=False, otherwise=f"expect what is in it, too: --expect {write_head}")
    elif write_head is not None and partition:
        raise ConfigurationError(
            "bad_option", "the heads of some partitions must not replace those of all: leave out --partition"
        )
    sealed_offsets = {}
    if not logs.evidence and not logs.checkpoints:
        # Before checkpoints are read, so that all of them are covered.
        settings = command_settings(bootstrap_servers=logs.bootstrap_servers)
        committed = on_kafka(settings, lambda settings: committed_offsets(settings, "seal"))
        topic = topic_names(settings)[Role.EVIDENCE]
        sealed_offsets = {number: offset for (name, number), offset in committed.items() if name == topic}
    account = logs.account()
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
            account=account,
        )
    files = [given for given in (records, seals) if isinstance(given, FileLogs)]
    outcome = outcome_of(reports, bad_lines=sum(given.bad_lines_count for given in files))
    if target == "json":
        rows = [act_row(act, erased=account.erased[act.scope_id]) for act in account.used()]
        print_json(as_json(outcome, reports, files) | {"erasures": rows})
    else:
        print_table(outcome, reports, files)
        print_erased(account)
    unknown = any(fault.code == "erasure_unknown" for report in reports for fault in report.faults)
    if unknown and logs.evidence and not logs.control:
        say("what is missing may have been erased on record: give an archive with control records (--control)")
    if write_head is not None and outcome in (SealOutcome.HOLDS, SealOutcome.PARTLY_SEALED):
        with writing(write_head), Aside() as aside:
            aside.path(write_head).write_bytes(json_line(heads_as_json(reports)).encode() + b"\n")
    elif write_head is not None:
        say(f"{write_head} is not written: {outcome.value.replace('_', ' ')}")
    lacking = sorted(set(partition or ()) - {report.partition for report in reports})
    if lacking:
        say(f"there is neither evidence nor a checkpoint of partition {', '.join(map(str, lacking))}")
    # What was asked for and is not there was not verified.
    return _EXIT_CODES.get(outcome, _NOTHING_VERIFIED) or (_NOTHING_VERIFIED if lacking else 0)


def archive(
    output: Annotated[Path, option("Folder for the files; it must be empty or missing.")],
    gzip: bool = flag("Compress the files."),
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


DEFAULT_LOG_NAME = "assay-stream"

seal_app = typer.Typer()


@seal_app.callback(invoke_without_command=True)
def seal(
    context: typer.Context,
    key: Path | None = option("PEM file with the private key (password: ASSAY_STREAM_SEAL_KEY_PASSWORD)."),
    also_trust: list[Path] | None = option(
        "Also continue after checkpoints by this key: the previous one. Repeatable.", metavar="PUB.pem"
    ),
    once: bool = flag("Seal what is there now, then exit."),
    every_records: int = option("Maximum records per checkpoint.", default=4_096, min=1, max=RANGE_RECORDS_MAX),
    every_s: float = option("Maximum delay of a checkpoint, seconds.", default=60.0, min=0.1, max=86_400),
    log_name: str = option(
        "Name of your own, such as example.com/production, that starts the origin of each partition's log "
        "in signed notes. Never change it: a log under another name is another log.",
        default=DEFAULT_LOG_NAME,
    ),
    web_port: WebPort = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Seal evidence, and check it later.

    Without a subcommand this is the sealer: it follows the evidence topic and writes a signed checkpoint over each
    range, until SIGTERM or SIGINT. Run one per deployment: a second one fences the first.
    """
    if context.invoked_subcommand is not None:
        if key is not None or also_trust:
            raise ConfigurationError("bad_option", "give --key and --also-trust after the subcommand, not before it")
        return
    if key is None:
        raise ConfigurationError("bad_option", "--key is required: assay-stream seal keygen --out seal.pem creates one")
    if not is_key_name(log_name):
        raise ConfigurationError("bad_option", "--log-name must not be empty, nor contain white space or a plus")
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    private = read_private_key(key, _password(settings))
    trusted = read_public_keys(also_trust or ()) | tlog.keys_of([private.public_key()])
    with needing_extra("worker"):
        from assay_stream.worker.sealing import SealPlan, run_sealer
    plan = SealPlan(
        key=private, trusted=trusted, every_records=every_records, every_s=every_s, log_name=log_name, once=once
    )
    run_sealer(settings, plan, web_port=web_port)


@seal_app.command()
def keygen(out: Annotated[Path, option("New file for the private key. The public key goes to *.pub.pem.")]) -> None:
    """Generate an ed25519 key pair, and print the id of the key.

    The private key is encrypted if ASSAY_STREAM_SEAL_KEY_PASSWORD is set. Only its owner can read the file.
    """
    if out.is_dir():
        raise ConfigurationError("bad_option", f"{out} is a folder: name a file in it, as in --out {out / 'seal.pem'}")
    password = _password(load_settings())
    key = Ed25519PrivateKey.generate()
    write_key_files(
        (out, tlog.private_pem(key, password.encode() if password else None)),
        (out.with_suffix(".pub.pem"), tlog.public_pem(key.public_key())),
    )
    typer.echo(tlog.key_id(key.public_key()))


def _password(settings: Settings) -> str | None:
    given = settings.seal_key_password
    return None if given is None else given.get_secret_value()


Partition = Annotated[int, option("The evidence partition.", min=0)]


def prove(
    key: PublicKeysOption,
    partition: Partition,
    output: Annotated[Path, option("File for the proof, which must not exist.")],
    force: Force = False,
    offset: int | None = option("Prove that the record at this offset is sealed.", min=0),
    two: tuple[int, int] | None = option(
        "Prove that the tree of checkpoint TO starts with that of FROM; by their numbers, from 0.",
        "--consistency",
        metavar="FROM TO",
    ),
    target: Literal["json", "tlog-proof"] = option(
        "Form of an inclusion proof: JSON or C2SP tlog-proof.", "--format", default="json"
    ),
    checkpoints: Checkpoints = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Write a proof that needs only public keys to check.

    With --offset: that this record is in the tree of the last checkpoint, without revealing any other record.
    """
    if (offset is None) == (two is None):
        raise ConfigurationError("bad_option", "pass either --offset or --consistency")
    if two is not None and target == "tlog-proof":
        raise ConfigurationError("bad_option", "tlog-proof has no form for consistency: leave out --format")
    refuse_existing_file(output, force=force)
    with _chain(checkpoints, bootstrap_servers, partition, key) as chain:
        if offset is None:
            text = json_line(consistency(chain, *(two or (0, 0)))) + "\n"
        elif target == "tlog-proof":
            text = inclusion(chain, offset).as_tlog()
        else:
            text = json_line(inclusion(chain, offset).as_json()) + "\n"
    with writing(output), Aside() as aside:
        aside.path(output).write_text(text, encoding="utf-8")
    say(f"wrote {output}")


def check_proof_file(
    file: Annotated[Path, argument("The proof, in either form.", metavar="FILE")],
    key: PublicKeysOption,
    record: Path | None = option("File with the record as one archive line. Required for a tlog-proof."),
) -> bool:
    """Check a proof without any log, and print the answer as one JSON object.

    Exit code 0 if it holds, 1 if not. Without --record it is not checked which record the proof is about.
    """
    keys = read_public_keys(key)
    raw, held = read_input(file), None
    if record is not None:
        lines = [line for line in read_input(record, bytes_max=LINE_BYTES_MAX).splitlines() if line.strip()]
        held = record_in(lines[0], record.name, Role.EVIDENCE) if len(lines) == 1 else None
        if held is None:
            message = f"{record} must hold one line of an archive of evidence, and nothing else"
            raise InputError("bad_record_line", message)
    is_tlog = raw.startswith(tlog.PROOF_TAG.encode())
    if is_tlog and held is None:
        raise ConfigurationError("bad_option", "a tlog-proof does not name its record: pass it with --record")
    try:
        answer = check_tlog_proof(raw, keys, held) if is_tlog and held is not None else check_proof(raw, keys, held)
    except InputError as error:
        print_json(refusal(error))
        return True
    print_json({"valid": True, **answer})
    return False


def checkpoint(
    key: PublicKeysOption, partition: Partition, checkpoints: Checkpoints = None, bootstrap_servers: Bootstrap = None
) -> None:
    """Print the last checkpoint of a partition as a signed note (C2SP tlog-checkpoint)."""
    with _chain(checkpoints, bootstrap_servers, partition, key) as chain:
        # In UTF-8 whatever the locale: its bytes are what was signed.
        typer.echo(last_of(chain).note.encode(), nl=False)


def vkey(
    key: PublicKeysOption,
    partition: Partition,
    log_name: str = option("The sealer's --log-name.", default=DEFAULT_LOG_NAME),
    topic: str = option("The evidence topic, prefix included.", default=TOPIC_NAMES[Role.EVIDENCE]),
) -> None:
    """Print the public key of one partition's log for other verifiers (C2SP signed-note), one line per key."""
    for public in read_public_keys(key).values():
        print_line(tlog.verifier_key(origin_of(log_name, topic, partition), public))


@contextmanager
def _chain(paths: list[Path] | None, bootstrap: str | None, partition: int, key: list[Path]) -> Iterator[Chain]:
    keys = read_public_keys(key)
    with logs_of(Role.CHECKPOINTS, paths, bootstrap) as seals:
        names = [name for name in seals.names() if name.partition == partition]
        if len(names) != 1:
            others = sorted({name.partition for name in seals.names()})
            raise InputError(
                "checkpoint_not_found",
                f"there must be one log of checkpoints for partition {partition}, and there are {len(names)}; "
                f"there are some for {', '.join(map(str, others)) or 'none'}",
            )
        yield lambda: chain_of(((record.origin.offset, record.value) for record in seals.records(names[0])), keys)


seal_app.command()(verify)
seal_app.command()(archive)
seal_app.command()(prove)
seal_app.command("check-proof")(check_proof_file)
seal_app.command()(checkpoint)
seal_app.command()(vkey)
