"""``assay-stream export`` and ``bundle``: evidence and alerts for other tools, and bundles checked."""

from __future__ import annotations

import asyncio
from collections.abc import Collection as Some
from pathlib import Path
from typing import Annotated

import typer

from assay_stream.cli.files import Force, refuse_existing_file, refuse_filled_folder
from assay_stream.cli.output import print_json
from assay_stream.cli.shared import Bootstrap, quiet_client_logs, say
from assay_stream.config import Settings, command_settings
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.export.bundle_file import verify_bundle
from assay_stream.export.export import Collection, export_bundles, export_parquet, export_timesketch, numbered_bundles
from assay_stream.export.input import Kind, Selection, Stored, stored_in, time_us_of
from assay_stream.export.parquet import check_installed
from assay_stream.limits import BUNDLE_LIMITS
from assay_stream.model.record import Role
from assay_stream.replay.selection import OFFSETS_METAVAR, offset_ranges

export_app = typer.Typer(help="Evidence, alerts and definitions for other tools.", no_args_is_help=True)
bundle_app = typer.Typer(help="Evidence bundles of Assay.", no_args_is_help=True)

_ROLES = {Kind.EVIDENCE: Role.EVIDENCE, Kind.ALERTS: Role.ALERTS, Kind.DEFINITIONS: Role.DEFINITIONS}

Inputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--input",
        help="Bundle, archive (NDJSON, plain or compressed), or folder of a replay. May be given several times. "
        "Default: from Kafka.",
    ),
]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Only what is of this time (RFC 3339) or later.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only what is before this time (RFC 3339).")]
Servers = Annotated[list[str] | None, typer.Option("--server-id", help="Only this server. May be given several times.")]
Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--offsets",
        metavar=OFFSETS_METAVAR,
        help="Only evidence of calls at these offsets of the call topic, the end exclusive, either may be "
        "missing. May be given several times.",
    ),
]


@export_app.command("assay-bundle")
def assay_bundle(
    output: Annotated[Path, typer.Option(help="The bundle (tar.gz), which must not exist.")],
    inputs: Inputs = None,
    force: Force = False,
    since: Since = None,
    until: Until = None,
    server_id: Servers = None,
    offsets: Ranges = None,
    run_id: Annotated[str | None, typer.Option(help="Default: made from the content, so it repeats.")] = None,
    split: Annotated[
        int | None,
        typer.Option(min=1, max=BUNDLE_LIMITS.events_max, help="Several bundles, of so many events at most."),
    ] = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Write evidence as a bundle that Assay's verifier takes. Equal evidence gives equal bytes.

    Prints a summary as one JSON object. Exit code 1, and no file, where there is nothing to export.
    """
    for path in (output, *numbered_bundles(output)):
        refuse_existing_file(path, force=force)
    selection = _selection(since, until, server_id, offsets)
    with Collection(selection, frozenset({Kind.EVIDENCE})) as collection:
        _collect(collection, inputs, {Kind.EVIDENCE}, bootstrap_servers)
        written = export_bundles(collection, output, run_id=run_id, split=split)
        _tell({Kind.EVIDENCE: sum(manifest.event_count for _, manifest in written)}, collection, bundles=[
            {"file": str(path), "run_id": manifest.run_id, "events": manifest.event_count,
             "run_root": str(manifest.run_root)}
            for path, manifest in written
        ])  # fmt: skip


@export_app.command()
def parquet(
    output: Annotated[Path, typer.Option(help="Folder for the datasets; made if missing, else it must be empty.")],
    inputs: Inputs = None,
    force: Force = False,
    since: Since = None,
    until: Until = None,
    server_id: Servers = None,
    offsets: Ranges = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Write evidence.parquet, alerts.parquet and definitions.parquet.

    Prints a summary as one JSON object. Exit code 1, and no file, where there is nothing to export.
    """
    check_installed()
    refuse_filled_folder(output, force=force)
    selection = _selection(since, until, server_id, offsets)
    with Collection(selection, frozenset(Kind)) as collection:
        _collect(collection, inputs, set(Kind), bootstrap_servers)
        _tell(export_parquet(collection, output), collection)


@export_app.command()
def timesketch(
    output: Annotated[Path, typer.Option(help="The timeline, which must not exist; its name ends in .csv or .jsonl.")],
    inputs: Inputs = None,
    force: Force = False,
    since: Since = None,
    until: Until = None,
    server_id: Servers = None,
    offsets: Ranges = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Write evidence and alerts as a timeline that Timesketch imports.

    Prints a summary as one JSON object. Exit code 1, and no file, where there is nothing to export.
    """
    if output.suffix not in (".csv", ".jsonl"):
        raise ConfigurationError("bad_option", "--output must end in .csv or .jsonl: Timesketch goes by the name")
    refuse_existing_file(output, force=force)
    kinds = {Kind.EVIDENCE, Kind.ALERTS}
    with Collection(_selection(since, until, server_id, offsets), frozenset(kinds)) as collection:
        _collect(collection, inputs, kinds, bootstrap_servers)
        _tell(export_timesketch(collection, output), collection)


@bundle_app.command()
def verify(file: Annotated[Path, typer.Argument(metavar="FILE", help="The bundle.")]) -> None:
    """Hold a bundle against every rule of the format, and print the answer as one JSON object.

    Exit code 0 if it keeps them, 1 if it breaks one. That it keeps them says that nothing was changed since it was
    written; not who wrote it: a bundle is not signed.
    """
    try:
        manifest = verify_bundle(file)
    except InputError as error:
        if error.code == "unreadable_file":
            raise
        print_json({"valid": False, "code": error.code, "path": error.path, "message": error.message})
        raise typer.Exit(1) from None
    answer = {"valid": True, "run_id": manifest.run_id, "events": manifest.event_count}
    print_json(answer | {"run_root": str(manifest.run_root), "producer": dict(manifest.producer)})


def _selection(
    since: str | None, until: str | None, server_ids: list[str] | None, offsets: list[str] | None
) -> Selection:
    return Selection(
        since_us=_time_us(since),
        until_us=_time_us(until),
        server_ids=frozenset(server_ids or ()),
        offsets=offset_ranges(offsets or ()),
    )


def _time_us(text: str | None) -> int | None:
    if text is None:
        return None
    time_us = time_us_of(text)
    if time_us is None:
        raise InputError("bad_time", "write the time as RFC 3339 with its offset: 2026-03-01T10:00:00Z")
    return time_us


def _collect(collection: Collection, inputs: list[Path] | None, kinds: Some[Kind], bootstrap: str | None) -> None:
    if inputs:
        collection.take(stored_in(inputs))
        return
    quiet_client_logs()
    asyncio.run(_from_kafka(collection, kinds, command_settings(bootstrap_servers=bootstrap)))


async def _from_kafka(collection: Collection, kinds: Some[Kind], settings: Settings) -> None:
    from assay_stream.kafka.connection import start_admin
    from assay_stream.kafka.lookup import read_records

    await (await start_admin(settings, waiting=say)).close()
    for kind in kinds:
        async for record in read_records(settings, _ROLES[kind]):
            if record.value is not None:
                where = f"{record.origin.topic}/{record.origin.partition}/{record.origin.offset}"
                collection.take([Stored(where, record.value, kind)])


def _tell(counts: dict[Kind, int], collection: Collection, **more: object) -> None:
    written = {kind.value: count for kind, count in counts.items()}
    print_json({"written": written, "left_out": collection.left_out, **more})
    if not any(counts.values()):
        read = f"none of the {collection.left_out} records that were read is asked for"
        say(f"nothing to export: {read if collection.left_out else 'there is no record'}")
        raise typer.Exit(1)
