"""``assay-stream store``: fill the store that commands and the console read, and say how far it is."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from time import time_ns
from typing import Annotated

import typer

from assay_stream.cli.evidence import refuse_held
from assay_stream.cli.options import AsJson, Bootstrap, WebPort, copied_stdin
from assay_stream.cli.output import print_json, print_line
from assay_stream.cli.shared import Refusals, argument, flag, name_refused, option
from assay_stream.cli.sources import make_source, noted
from assay_stream.cli.store_sources import results_in
from assay_stream.config import load_settings
from assay_stream.errors import ConfigurationError, InputError, OperatingError, needing_extra
from assay_stream.files.local import reading
from assay_stream.files.spool import LogSpool
from assay_stream.model.record import Record
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import ROLES, Filler, erasures_in, fill
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.schema import FILES_DEPLOYMENT, PositionRow, StoreStatus
from assay_stream.replay.order import Selection
from assay_stream.replay.run import FILES
from assay_stream.text.escaping import counted, shown
from assay_stream.text.times import time_ms_text
from assay_stream.worker.storing import bounds_of

store_app = typer.Typer(help="Keep a store of inventory, evidence, alerts and decisions.", no_args_is_help=True)

StoreFolder = Annotated[
    Path | None, option("Folder of the store. Default: ASSAY_STREAM_STORE.", "--store", metavar="FOLDER")
]
Rebuild = Annotated[bool, flag("Start with an empty store, replacing an existing one.", "--rebuild")]
_ROLE_OF_FILE = {name: role for role, name in FILES.items() if role in ROLES}


def store_folder(given: Path | None) -> Path:
    folder = load_settings().store if given is None else given
    if folder is None:
        raise ConfigurationError("no_store", "name the store's folder: --store FOLDER, or ASSAY_STREAM_STORE")
    return folder


@store_app.command()
def run(
    store: StoreFolder = None,
    rebuild: Rebuild = False,
    once: bool = flag("Read what is there now, then exit."),
    web_port: WebPort = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Fill the store from the topics, and keep it up to date until SIGTERM or SIGINT.

    Continues where it stopped: records and positions are committed together. One process fills a store; any number
    can read it at the same time.
    """
    settings, folder = load_settings(bootstrap_servers=bootstrap_servers), store_folder(store)
    with needing_extra("worker"):
        from assay_stream.worker.storing import run_store
    if rebuild:
        _refuse_held(folder)
    run_store(settings, folder, rebuild=rebuild, once=once, web_port=web_port)


@store_app.command()
def load(
    inputs: Annotated[
        list[Path], argument("What `replay` or `archive` wrote: files, folders, or `-` (stdin).", metavar="PATH...")
    ],
    store: StoreFolder = None,
    rebuild: Rebuild = False,
) -> None:
    """Fill a new store from files: the results of a replay, or recorded observations, which are replayed first."""
    folder = store_folder(store)
    if not rebuild and (folder / schema.FILE).exists():
        raise ConfigurationError(
            "store_exists", f"there is a store in {folder}: choose another folder, or give --rebuild to replace it"
        )
    _refuse_held(folder)
    paths = _files_in(inputs)
    for path in paths:
        with reading(path):
            path.stat()
    refused = Refusals()
    with schema.replacing(folder) as connection:
        filler = Filler(connection)
        filler.begin(FILES_DEPLOYMENT)
        fill(connection, _records(paths, refused))
        filler.refresh()
        # Whoever loads old files wants them: only the size is bounded.
        now_us = time_ns() // 1_000
        bounds = replace(bounds_of(load_settings()), age_us=now_us)
        while filler.keep_within(bounds, now_us=now_us):
            pass
        found = Store(connection).status()
    _show(found)
    name_refused(refused)


def _refuse_held(folder: Path) -> None:
    """Refuse to replace a store that knows of a legal hold: it may have what its topics no longer have."""
    path = folder / schema.FILE
    if not path.exists():
        return
    try:
        # Not read-only: SQLite then leaves no files of its own behind.
        with schema.failures(path), closing(sqlite3.connect(path)) as connection:
            erasures = erasures_in(connection)
    except (InputError, OperatingError):  # damaged, or of another version: it is replaced for that reason
        return
    refuse_held(erasures)


@store_app.command()
def status(store: StoreFolder = None, as_json: AsJson = False) -> bool:
    """Show what the store holds, and what it dropped: positions, lag, ages, sizes. Exit code 1 if anything was lost."""
    folder = store_folder(store)
    opened = Store(schema.reading(folder))
    with schema.failures(folder):
        found = opened.status()
    opened.close()
    if as_json:
        print_json({**asdict(found), "positions": [each._asdict() | {"lag": each.lag} for each in found.positions]})
    else:
        _show(found)
    return any(each.lost for each in found.positions)


_STALE_S = 60
_NOUNS = {
    "evidence": ("record of evidence", "records of evidence"),
    "alert": ("alert", "alerts"),
    "finding": ("finding", "findings"),
    "definition": ("definition", "definitions"),
    "decision": ("decision", "decisions"),
    "verdict": ("verdict", "verdicts"),
    "catalogue": ("tool list", "tool lists"),
    "seen": ("sighting of a list", "sightings of lists"),
    "fact": ("fact of the registry", "facts of the registry"),
}
_BOUNDS = {
    "age": "too old",
    "erased": "erased on record",
    "size": "no room",
    "server": "beyond what one server may take",
}


def _show(found: StoreStatus) -> None:
    print_line(f"store version {found.schema_version}, filled from {shown(found.deployment)}")
    held = ", ".join(counted(found.counts[kind], *nouns) for kind, nouns in _NOUNS.items())
    print_line(f"{found.size_bytes / 1_048_576:,.1f} MiB: {held}")
    if found.oldest_us is not None and found.newest_us is not None:
        print_line(f"evidence from {_time(found.oldest_us)} to {_time(found.newest_us)}")
    if found.complete_since_us is not None:
        print_line(f"evidence before {_time(found.complete_since_us)} is not here")
    for each in found.drops:
        print_line(f"dropped, {_BOUNDS[each.bound]}: {counted(each.rows, *_NOUNS[each.kind])}")
    if found.drops:
        print_line("What was dropped is still in its topic, as long as that keeps it")
    for topic, logs in groupby(found.positions, key=lambda each: each.topic):
        print_line(_topic_line(topic, list(logs), is_live=found.is_live))
    if found.looked_us is not None:
        age_s = time_ns() // 1_000_000_000 - found.looked_us // 1_000_000
        idle = f", {age_s:,} s ago: nothing fills the store now. Start assay-stream store run"
        print_line(f"as of {_time(found.looked_us)}{idle if age_s >= _STALE_S else ''}")
    if found.is_live and any(each.lag is None for each in found.positions):
        print_line(
            "lag unknown: the end of a topic was not read yet. assay-stream store run reads it once it is connected"
        )


def _topic_line(topic: str, logs: list[PositionRow], *, is_live: bool) -> str:
    read, refused, lost = (sum(getattr(each, name) for each in logs) for name in ("read", "refused", "lost"))
    said = [f"{counted(read, 'record')} read from {counted(len(logs), 'partition')}"]
    if is_live and any(each.lag is None for each in logs):
        said.append("lag unknown")
    elif is_live:
        behind = sum(each.lag or 0 for each in logs)
        said.append(f"{behind:,} behind" if behind else "up to date")
    said += [f"{refused:,} refused"] if refused else []
    said += [f"{lost:,} lost to retention"] if lost else []
    return f"{shown(topic)}: {', '.join(said)}"


def _time(time_us: int) -> str:
    return time_ms_text(time_us // 1_000)


def _files_in(paths: list[Path]) -> list[Path]:
    """Expand folders; results are included only if no recorded observations give them."""
    found: dict[Path, None] = {}
    for path in map(copied_stdin, paths):
        inside = [path]
        if path.is_dir():
            # A hidden file is one that somebody is still writing.
            inside = sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith("."))
            inside = [each for each in inside if _result_name(each) not in FILES.values()] or inside
            if not inside:
                raise InputError("unreadable_file", f"{path} has no files: give another folder, or the file itself")
        # `Path.resolve` has an error of its own for a link that leads to itself.
        found.update(dict.fromkeys(Path(os.path.realpath(each)) for each in inside))
    return list(found)


def _result_name(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".zst")


def _records(paths: list[Path], refused: Refusals) -> Iterator[Record]:
    """Yield records of results as they are, records of archived logs in offset order, then those derived from recorded
    observations.
    """
    observed = []
    with LogSpool() as archived:
        for path in paths:
            name = _result_name(path)
            role = _ROLE_OF_FILE.get(name)
            if role is not None:
                for record in results_in(path, role):
                    if record.origin.topic == str(path):
                        yield record
                    else:
                        archived.add(record)
            elif name not in FILES.values():
                observed.append(path)
        archived.finish()
        for log in archived.logs():
            yield from archived.read(log)
    if observed:
        yield from noted(make_source(observed, False, Selection(), load_settings()).derived(), refused)
