"""``assay-stream seal prove``, ``check-proof``, ``checkpoint`` and ``vkey``: proofs over sealed evidence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from assay_stream.cli.files import Force, read_input, refuse_existing_file
from assay_stream.cli.options import Bootstrap
from assay_stream.cli.output import json_line, print_json
from assay_stream.cli.seal_checking import Checkpoints, PublicKeysOption, logs_of
from assay_stream.cli.sealing import DEFAULT_LOG_NAME
from assay_stream.cli.shared import say
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.failures import writing
from assay_stream.files.seal_files import LogName, Logs, record_in
from assay_stream.files.seal_keys import read_public_keys
from assay_stream.limits.files import LINE_BYTES_MAX
from assay_stream.model.record import TOPIC_NAMES, Record, Role
from assay_stream.schemes import tlog
from assay_stream.seal.checkpoint import origin_of
from assay_stream.seal.proof import (
    Chain,
    Shown,
    chain_of,
    check_proof,
    check_tlog_proof,
    consistency,
    inclusion,
    last_of,
)

Partition = Annotated[int, typer.Option(min=0, help="The evidence partition.")]


ProofFormat = Literal["json", "tlog-proof"]


def prove(
    key: PublicKeysOption,
    partition: Partition,
    output: Annotated[Path, typer.Option(help="File for the proof, which must not exist.")],
    force: Force = False,
    offset: Annotated[int | None, typer.Option(min=0, help="Prove that the record at this offset is sealed.")] = None,
    two: Annotated[
        tuple[int, int] | None,
        typer.Option(
            "--consistency",
            metavar="FROM TO",
            help="Prove that the tree of checkpoint TO starts with that of FROM; by their numbers, from 0.",
        ),
    ] = None,
    target: Annotated[
        ProofFormat, typer.Option("--format", help="Form of an inclusion proof: JSON or C2SP tlog-proof.")
    ] = "json",
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
    with writing(output):
        output.write_text(text, encoding="utf-8")
    say(f"wrote {output}")


def check_proof_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The proof, in either form.")],
    key: PublicKeysOption,
    record: Annotated[
        Path | None, typer.Option(help="File with the record as one archive line. Required for a tlog-proof.")
    ] = None,
) -> None:
    """Check a proof without any log, and print the answer as one JSON object.

    Exit code 0 if it holds, 1 if not. Without --record it is not checked which record the proof is about.
    """
    keys = read_public_keys(key)
    raw, held = read_input(file), None if record is None else _record(record)
    is_tlog = raw.startswith(tlog.PROOF_TAG.encode())
    if is_tlog and held is None:
        raise ConfigurationError("bad_option", "a tlog-proof does not name its record: pass it with --record")
    try:
        answer = (
            check_tlog_proof(raw, keys, held)
            if is_tlog and held is not None
            else _shown_as_json(check_proof(raw, keys, held))
        )
    except InputError as error:
        print_json({"valid": False, "code": error.code, "path": error.path, "message": error.message})
        raise typer.Exit(1) from None
    print_json({"valid": True, **answer})


def checkpoint(
    key: PublicKeysOption, partition: Partition, checkpoints: Checkpoints = None, bootstrap_servers: Bootstrap = None
) -> None:
    """Print the last checkpoint of a partition as a signed note (C2SP tlog-checkpoint)."""
    with _chain(checkpoints, bootstrap_servers, partition, key) as chain:
        typer.echo(last_of(chain).note, nl=False)


def vkey(
    key: PublicKeysOption,
    partition: Partition,
    log_name: Annotated[str, typer.Option(help="The sealer's --log-name.")] = DEFAULT_LOG_NAME,
    topic: Annotated[str, typer.Option(help="The evidence topic, prefix included.")] = TOPIC_NAMES[Role.EVIDENCE],
) -> None:
    """Print the public key of one partition's log as other verifiers take it (C2SP signed-note), one line a key."""
    for public in read_public_keys(key).values():
        typer.echo(tlog.verifier_key(origin_of(log_name, topic, partition), public))


@contextmanager
def _chain(paths: list[Path] | None, bootstrap: str | None, partition: int, key: list[Path]) -> Iterator[Chain]:
    """Open the checkpoints of one partition, verified with public keys."""
    keys = read_public_keys(key)
    with logs_of(Role.CHECKPOINTS, paths, bootstrap) as seals:
        name = _chain_name(seals, partition)
        yield lambda: chain_of(((record.origin.offset, record.value) for record in seals.records(name)), keys)


def _record(path: Path) -> Record:
    lines = [line for line in read_input(path, bytes_max=LINE_BYTES_MAX).splitlines() if line.strip()]
    found = record_in(lines[0], path.name, Role.EVIDENCE) if len(lines) == 1 else None
    if found is None:
        raise InputError("bad_record_line", f"{path} must hold one line of an archive of evidence, and nothing else")
    return found


def _shown_as_json(shown: Shown) -> dict[str, Any]:
    made = shown.checkpoint
    answer: dict[str, Any] = {"kind": shown.kind, "topic": made.topic, "partition": made.partition}
    if shown.first is not None:
        answer |= {"first_checkpoint": shown.first.sequence, "first_tree_size": shown.first.tree_size}
    else:
        answer |= {"offset": shown.offset, "leaf_index": shown.leaf_index, "record_checked": shown.record_checked}
    return answer | {
        "checkpoint": made.sequence,
        "tree_size": made.tree_size,
        "root": str(made.root),
        "sealed_at": made.sealed_at,
        "key_id": made.key_id,
    }


def _chain_name(seals: Logs, partition: int) -> LogName:
    names = [name for name in seals.names() if name.partition == partition]
    if len(names) != 1:
        others = sorted({name.partition for name in seals.names()})
        raise InputError(
            "checkpoint_not_found",
            f"there must be one log of checkpoints for partition {partition}, and there are {len(names)}; "
            f"there are some for {', '.join(map(str, others)) or 'none'}",
        )
    return names[0]
