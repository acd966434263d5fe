"""``assay-stream replay``: the same engine over files, with no broker."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import orjson
import typer

from assay_stream import __version__
from assay_stream.cli.compare import AlertFiles, compare_folder
from assay_stream.cli.options import RedactionDisable, RedactionEnable, RedactionNames
from assay_stream.config import load_settings
from assay_stream.core.errors import InputError
from assay_stream.core.evidence import Producer
from assay_stream.core.observation import CallProfile
from assay_stream.core.record import Output, Role
from assay_stream.forensics import replay as core
from assay_stream.forensics.archive import read_file, rejected_line

_FILES = {
    Role.EVIDENCE: "evidence.ndjson",
    Role.ALERTS: "alerts.ndjson",
    Role.DEFINITIONS: "definitions.ndjson",
    Role.CHANGES: "changes.ndjson",
    Role.REJECTED: "rejected.ndjson",
}


def replay(
    inputs: Annotated[
        list[Path],
        typer.Option("--input", help="Recorded observations (NDJSON). May be given several times."),
    ],
    output: Annotated[Path, typer.Option(help="Folder for the results; made if missing.")],
    redaction_enable: RedactionEnable = None,
    redaction_disable: RedactionDisable = None,
    redaction_names: RedactionNames = None,
    call_profile: Annotated[
        CallProfile | None,
        typer.Option(help="What every call must satisfy. Default: ASSAY_STREAM_CALL_PROFILE, else assay."),
    ] = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option("--compare", help="Hold the result against this recorded evidence. May be repeated."),
    ] = None,
    alerts: AlertFiles = None,
) -> None:
    """Replay recorded observations through the engine, into files.

    Writes evidence.ndjson, alerts.ndjson, definitions.ndjson, changes.ndjson and rejected.ndjson. The same input
    gives the same bytes. Prints a summary as one JSON object.
    """
    records = (record for path in inputs for record in read_file(path))
    settings = load_settings(
        redaction_enable=redaction_enable,
        redaction_disable=redaction_disable,
        redaction_names=redaction_names,
        call_profile=call_profile,
    )
    producer = Producer(version=__version__, git=settings.git_commit)
    counts: Counter[str] = Counter({role.value: 0 for role in _FILES})
    labels: Counter[str] = Counter()
    seen_definitions: set[bytes | None] = set()
    try:
        output.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            files = {role: stack.enter_context((output / name).open("wb")) for role, name in _FILES.items()}
            outputs = core.replay(
                records,
                producer=producer,
                redaction=settings.redaction(),
                call_profile=settings.call_profile,
            )
            for written in outputs:
                if written.role is Role.DEFINITIONS:
                    # The definition topic is compacted: the same definition stands there once.
                    if written.key in seen_definitions:
                        continue
                    seen_definitions.add(written.key)
                labels[written.label] += 1
                if written.role in files:
                    files[written.role].write(_line(written) + b"\n")
                    counts[written.role.value] += 1
    except OSError as error:
        raise InputError("unwritable_folder", f"cannot write to {output}: {error.strerror}") from None
    typer.echo(orjson.dumps({"written": counts, "what": dict(sorted(labels.items()))}).decode())
    if compare:
        compare_folder(settings, output, inputs, compare, alerts)


def _line(output: Output) -> bytes:
    return rejected_line(output) if output.role is Role.REJECTED else output.value or b""
